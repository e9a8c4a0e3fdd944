// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of links: rules that packets meet when they leave a port.  A rule has a
 * probability; the random numbers come from a seeded generator, so that a run
 * can be repeated.  Caller holds swib_fab_mutex.
 */
#include <linux/prandom.h>
#include <linux/seq_file.h>
#include "swib.h"

enum action { DROP, DELAY, DUPLICATE, CORRUPT };

static const char * const action_names[] = {
	[DROP] = "drop",
	[DELAY] = "delay",
	[DUPLICATE] = "dup",
	[CORRUPT] = "corrupt",
};

#define SEED	1

struct fault {
	struct list_head list;
	struct swib_port *port;		/* NULL: every port */
	enum action action;
	bool mad, smp, data;		/* kinds of packets that it takes */
	u16 attr;			/* 0: all */
	u8 method;			/* 0: all */
	u8 class;			/* 0: all */
	unsigned int percent;
	unsigned int ms;		/* of a delay */
	int count;			/* that many more packets, -1: no end */
	u64 hits;
};

static LIST_HEAD(faults);
static struct rnd_state rnd;

static unsigned int percent(void)
{
	return prandom_u32_state(&rnd) % 100;
}

static bool matches(const struct fault *f, const struct swib_port *p, const struct swib_pkt *k)
{
	const struct ib_mad_hdr *m = (const void *)k->data;

	if (f->port && f->port != p)
		return false;
	if (k->dqpn > 1 || k->len < sizeof(struct ib_mad))
		return f->data;
	return (k->dqpn ? f->mad : f->smp) &&
	       (!f->attr || be16_to_cpu(m->attr_id) == f->attr) &&
	       (!f->method || m->method == f->method) && (!f->class || m->mgmt_class == f->class);
}

/*
 * Flips a bit of the attribute; the header stays readable.  A copy travels: the
 * packet itself may leave by other ports too.
 */
static void corrupt(struct swib_port *p, struct swib_pkt *k)
{
	u8 bit = 1 << prandom_u32_state(&rnd) % 8;
	u32 at = 64;

	if (k->len > at) {
		at += prandom_u32_state(&rnd) % (k->len - at);
		k->data[at] ^= bit;
		swib_delay(p, k, 0);
		k->data[at] ^= bit;
	} else {
		swib_delay(p, k, 0);
	}
}

/* true: the packet has been dealt with and does not go on */
static bool fault(struct swib_port *p, struct swib_pkt *k)
{
	struct fault *f;

	if (k->rc)
		return false;
	list_for_each_entry(f, &faults, list) {
		if (!f->count || !matches(f, p, k) || percent() >= f->percent)
			continue;
		if (f->count > 0)
			f->count--;
		f->hits++;
		switch (f->action) {
		case DROP:
			p->discards++;
			return true;
		case DELAY:
			swib_delay(p, k, f->ms);
			return true;
		case DUPLICATE:
			swib_delay(p, k, 0);
			return false;
		case CORRUPT:
			corrupt(p, k);
			return true;
		}
	}
	return false;
}

static void clear(void);

static int parse_method(const char *v, u8 *method)
{
	static const struct {
		const char *name;
		u8 method;
	} names[] = {
		{ "get", IB_MGMT_METHOD_GET }, { "set", IB_MGMT_METHOD_SET },
		{ "resp", IB_MGMT_METHOD_GET_RESP }, { "trap", IB_MGMT_METHOD_TRAP },
		{ "report", IB_MGMT_METHOD_REPORT },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(v, names[i].name)) {
			*method = names[i].method;
			return 0;
		}
	return kstrtou8(v, 0, method);
}

static int parse_option(struct fault *f, char *opt)
{
	char *v = strchr(opt, '=');

	if (!v)
		return -EINVAL;
	*v++ = 0;
	if (!strcmp(opt, "percent"))
		return kstrtouint(v, 0, &f->percent) ?: f->percent > 100 ? -EINVAL : 0;
	if (!strcmp(opt, "ms"))
		return kstrtouint(v, 0, &f->ms);
	if (!strcmp(opt, "count"))
		return kstrtoint(v, 0, &f->count);
	if (!strcmp(opt, "attr"))
		return kstrtou16(v, 0, &f->attr);
	if (!strcmp(opt, "method"))
		return parse_method(v, &f->method);
	if (!strcmp(opt, "class"))
		return kstrtou8(v, 0, &f->class);
	if (!strcmp(opt, "kind")) {
		f->mad = !strcmp(v, "gmp") || !strcmp(v, "mad") || !strcmp(v, "all");
		f->smp = !strcmp(v, "smp") || !strcmp(v, "mad") || !strcmp(v, "all");
		f->data = !strcmp(v, "data") || !strcmp(v, "all");
		return f->mad || f->smp || f->data ? 0 : -EINVAL;
	}
	return -EINVAL;
}

/* fault PORT|all ACTION [option=value...] | fault clear | fault seed N */
int swib_fault_command(char *args)
{
	struct fault *f;
	char *word;
	u32 seed;
	int r;

	word = swib_word(&args);
	if (!strcmp(word, "clear")) {
		if (*swib_word(&args))
			return -EINVAL;
		clear();
		return 0;
	}
	if (!strcmp(word, "seed")) {
		r = kstrtou32(swib_word(&args), 0, &seed);
		if (!r && *swib_word(&args))
			r = -EINVAL;
		if (!r)
			prandom_seed_state(&rnd, seed);
		return r;
	}
	f = kzalloc(sizeof(*f), GFP_KERNEL);
	if (!f)
		return -ENOMEM;
	f->percent = 100;
	f->count = -1;
	f->mad = true;
	f->smp = true;
	r = -ENODEV;
	if (strcmp(word, "all")) {
		f->port = swib_port_by_name(word);
		if (!f->port)
			goto free;
	}
	r = match_string(action_names, ARRAY_SIZE(action_names), swib_word(&args));
	if (r < 0)
		goto free;
	f->action = r;
	while (*(word = swib_word(&args))) {
		r = parse_option(f, word);
		if (r)
			goto free;
	}
	list_add_tail(&f->list, &faults);
	return 0;
free:
	kfree(f);
	return r;
}

static int node_gone(struct notifier_block *nb, unsigned long event, void *n)
{
	struct fault *f, *t;

	list_for_each_entry_safe(f, t, &faults, list)
		if (f->port && f->port->node == n) {
			list_del(&f->list);
			kfree(f);
		}
	return NOTIFY_DONE;
}

static struct notifier_block node_nb = { .notifier_call = node_gone };

static void clear(void)
{
	struct fault *f, *t;

	list_for_each_entry_safe(f, t, &faults, list) {
		list_del(&f->list);
		kfree(f);
	}
	prandom_seed_state(&rnd, SEED);
}

void swib_fault_init(void)
{
	mutex_lock(&swib_fab_mutex);
	clear();		/* seeds the random numbers */
	swib_fault_hook = fault;
	raw_notifier_chain_register(&swib_node_gone, &node_nb);
	mutex_unlock(&swib_fab_mutex);
}

void swib_fault_exit(void)
{
	mutex_lock(&swib_fab_mutex);
	clear();
	swib_fault_hook = NULL;
	raw_notifier_chain_unregister(&swib_node_gone, &node_nb);
	mutex_unlock(&swib_fab_mutex);
}

static const char *kind(const struct fault *f)
{
	if (f->data)
		return f->mad ? "all" : "data";
	return !f->mad ? "smp" : f->smp ? "mad" : "gmp";
}

void swib_fault_show(struct seq_file *s)
{
	struct fault *f;

	list_for_each_entry(f, &faults, list) {
		seq_puts(s, "fault ");
		if (f->port)
			seq_printf(s, "%s%d/%d", f->port->node->is_switch ? "switch" : "hca",
				   f->port->node->idx, f->port->num);
		else
			seq_puts(s, "all");
		seq_printf(s, " %s kind %s percent %u ms %u attr 0x%x method 0x%x class 0x%x count %d hits %llu\n",
			   action_names[f->action], kind(f), f->percent, f->ms, f->attr,
			   f->method, f->class, f->count, f->hits);
	}
}
