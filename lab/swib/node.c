// SPDX-License-Identifier: GPL-2.0
/*
 * What every other file stands on: locks, settings, which nodes exist and their
 * names, and the hooks by which a file above is called from one below.
 */
#include <linux/ctype.h>
#include "swib.h"

/* which adapters and switches exist */
DEFINE_MUTEX(swib_cfg_mutex);
/* the fabric: port state, tables, queue pairs, delivery */
DEFINE_MUTEX(swib_fab_mutex);
struct workqueue_struct *swib_wq;
struct workqueue_struct *swib_cqwq;

struct swib_hca *swib_hcas[SWIB_MAX_HCA];
struct swib_node *swib_switches[SWIB_MAX_SWITCH];

/* module parameters, see main.c */
unsigned int swib_nports = 1;
unsigned int swib_topo = 1;
unsigned int swib_pkeys = 32;
unsigned int swib_host;
bool swib_cm = true;
bool swib_roce = true;
bool swib_debug;

RAW_NOTIFIER_HEAD(swib_node_gone);
bool (*swib_fault_hook)(struct swib_port *p, struct swib_pkt *k);

/* h3, hca3 or s0, switch0; swib_cfg_mutex or swib_fab_mutex is held */
struct swib_node *swib_node_by_name(const char *name)
{
	const char *digits = name;
	unsigned int i;

	while (isalpha(*digits))
		digits++;
	if (kstrtouint(digits, 10, &i))
		return NULL;
	switch (*name) {
	case 'h':
		return i < SWIB_MAX_HCA && swib_hcas[i] ? &swib_hcas[i]->node : NULL;
	case 's':
		return i < SWIB_MAX_SWITCH ? swib_switches[i] : NULL;
	}
	return NULL;
}

/* h3/1 */
struct swib_port *swib_port_by_name(const char *name)
{
	struct swib_node *n;
	unsigned int num;
	char b[24], *slash;

	strscpy(b, name, sizeof(b));
	slash = strchr(b, '/');
	if (!slash)
		return NULL;
	*slash++ = 0;
	n = swib_node_by_name(b);
	if (!n || kstrtouint(slash, 10, &num) || num < 1 || num > n->nports)
		return NULL;
	return &n->port[num];
}

/* Splits the first word off; never NULL. */
char *swib_word(char **s)
{
	char *w;

	do
		w = strsep(s, " \t");
	while (w && !*w);
	return w ?: "";
}

/* Words that no command takes must not pass in silence. */
bool swib_too_much(char *a)
{
	return *swib_word(&a);
}
