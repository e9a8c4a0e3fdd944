// SPDX-License-Identifier: Apache-2.0
/* Adapters and ports. */
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int get_port(int num, struct umad_port *p)
{
	uint8_t r[4096];
	uint32_t n = num, v[8], keys;
	int len = question(F_PORT, &n, 4, r, sizeof(r));

	memset(p, 0, sizeof(*p));
	if (len < 52)
		return -1;
	memcpy(v, r, 32);
	memcpy(p->ca_name, ca.name, NAME_LEN);
	p->portnum = num;
	p->base_lid = v[0];
	p->lmc = v[1];
	p->sm_lid = v[2];
	p->sm_sl = v[3];
	p->state = v[4];
	p->phys_state = v[5];
	p->rate = v[6];
	p->capmask = v[7];	/* network order, as the fields below */
	memcpy(&p->gid_prefix, r + 32, 8);
	memcpy(&p->port_guid, r + 40, 8);
	memcpy(&keys, r + 48, 4);
	if (keys > (unsigned)(len - 52) / 2)
		keys = (len - 52) / 2;
	p->pkeys = calloc(keys ? keys : 1, sizeof(uint16_t));
	if (!p->pkeys)
		return -1;
	memcpy(p->pkeys, r + 52, keys * 2);
	p->pkeys_size = keys;
	strcpy(p->link_layer, "InfiniBand");
	return 0;
}

/* resolve finds the port that a tool means: 0 is the first active one. */
int resolve(const char *name, int num)
{
	struct umad_port p;
	int best = -1, rank = -1;
	uint32_t i, first, n;

	pthread_mutex_lock(&lock);
	i = connected();
	first = ca.first;
	n = ca.nports;
	pthread_mutex_unlock(&lock);
	if (i || (name && *name && strcmp(name, ca.name)))
		return -1;
	if (num > 0 || n == 0)
		return num >= (int)first && num < (int)(first + n) ? num : -1;
	for (i = first; i < first + n; i++) {
		int r;

		if (get_port(i, &p) < 0)
			continue;
		r = p.state == 4 ? 2 : p.phys_state == 5;
		free(p.pkeys);
		if (r > rank) {
			rank = r;
			best = i;
		}
	}
	return best;
}

int umad_init(void)
{
	return 0;
}

int umad_done(void)
{
	return 0;
}

int umad_get_cas_names(char cas[][NAME_LEN], int max)
{
	int r;

	pthread_mutex_lock(&lock);
	r = connected() == 0 && max > 0;
	if (r)
		memcpy(cas[0], ca.name, NAME_LEN);
	pthread_mutex_unlock(&lock);
	return r;
}

int umad_get_ca_portguids(const char *name, uint64_t *guids, int max)
{
	struct umad_port p;
	int n = 0;
	uint32_t i;

	if (resolve(name, 0) < 0)
		return -ENODEV;
	/* entry 0 is switch port 0, as in the real library */
	if (ca.first > 0 && max > 0)
		guids[n++] = 0;
	for (i = ca.first; i < ca.first + ca.nports; i++) {
		if (n >= max)
			return -ENOMEM;
		if (get_port(i, &p) < 0)
			return -ENODEV;
		guids[n++] = p.port_guid;
		free(p.pkeys);
	}
	return n;
}

int umad_release_port(struct umad_port *p)
{
	free(p->pkeys);
	p->pkeys = NULL;
	p->pkeys_size = 0;
	return 0;
}

int umad_get_port(const char *name, int num, struct umad_port *p)
{
	num = resolve(name, num);
	if (num < 0)
		return -ENODEV;
	return get_port(num, p) < 0 ? -EIO : 0;
}

int umad_release_ca(struct umad_ca *c)
{
	for (int i = 0; i < MAX_PORTS; i++) {
		if (!c->ports[i])
			continue;
		umad_release_port(c->ports[i]);
		free(c->ports[i]);
		c->ports[i] = NULL;
	}
	return 0;
}

int umad_get_ca(const char *name, struct umad_ca *c)
{
	uint32_t i;

	if (resolve(name, 0) < 0)
		return -ENODEV;
	memset(c, 0, sizeof(*c));
	memcpy(c->ca_name, ca.name, NAME_LEN);
	c->node_type = ca.type;
	c->numports = ca.first ? ca.nports : 0;
	strcpy(c->fw_ver, "1.0.0");
	strcpy(c->ca_type, "simulator");
	strcpy(c->hw_ver, "0");
	c->node_guid = ca.node_guid;
	c->system_guid = ca.sys_guid;
	for (i = ca.first; i < ca.first + ca.nports && i < MAX_PORTS; i++) {
		c->ports[i] = calloc(1, sizeof(*c->ports[i]));
		if (!c->ports[i] || get_port(i, c->ports[i]) < 0) {
			umad_release_ca(c);
			return -EIO;
		}
	}
	return 0;
}

void umad_free_ca_device_list(struct umad_device_node *l)
{
	free(l);
}

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct umad_device_node *l = NULL;

	pthread_mutex_lock(&lock);
	if (connected() == 0 && (l = calloc(1, sizeof(*l))))
		l->ca_name = ca.name;
	pthread_mutex_unlock(&lock);
	return l;
}

int umad_sort_ca_device_list(struct umad_device_node **l, size_t n)
{
	(void)l;
	(void)n;
	return 0;	/* there is one device at most */
}
