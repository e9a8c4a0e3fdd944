// SPDX-License-Identifier: GPL-2.0
/* Switches: forwarding of data and management packets.  Caller holds swib_fab_mutex. */
#include "swib.h"

static void forward(struct swib_node *n, struct swib_port *in, struct swib_pkt *k);

/* A directed route response on its way back, hop_ptr already points at this hop. */
static void forward_back(struct swib_node *n, struct swib_pkt *k)
{
	struct ib_smp *s = (void *)k->data;
	u8 out;

	if (!s->hop_ptr) {
		if (be16_to_cpu(s->dr_slid) == SWIB_PERM)
			return;
		k->slid = swib_lid(&n->port[0]);
		k->dlid = be16_to_cpu(s->dr_slid);
		forward(n, NULL, k);
		return;
	}
	out = s->return_path[s->hop_ptr];
	k->slid = SWIB_PERM;
	k->dlid = SWIB_PERM;
	if (out >= 1 && out <= n->nports)
		swib_port_tx(&n->port[out], k);
}

/* A packet for the switch itself. */
static void local(struct swib_node *n, struct swib_port *in, struct swib_pkt *k)
{
	struct ib_smp *s = (void *)k->data;
	enum swib_mad_result r = SWIB_MAD_PASS;
	u16 lid;

	if (n->silent || k->len < sizeof(struct ib_mad))
		return;
	if (k->dqpn == 0)
		r = swib_sma(n, in, s, false);
	else if (k->dqpn == 1 && s->mgmt_class == IB_MGMT_CLASS_PERF_MGMT)
		r = swib_pma(n, in, (struct ib_mad *)k->data);
	if (r != SWIB_MAD_REPLY)
		return;
	k->slow_ms = n->slow_ms;
	if (s->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE) {
		if (s->hop_ptr != s->hop_cnt + 1)
			return;
		s->hop_ptr--;
		forward_back(n, k);
		return;
	}
	lid = k->slid;
	k->slid = k->dlid == SWIB_PERM ? swib_lid(&n->port[0]) : k->dlid;
	k->dlid = lid;
	swap(k->dqpn, k->sqpn);
	k->has_grh = false;
	forward(n, NULL, k);
}

/* in is NULL for packets of the switch itself */
static void forward(struct swib_node *n, struct swib_port *in, struct swib_pkt *k)
{
	int i;
	u8 out;

	if (in && (k->dlid == SWIB_PERM || k->dlid == swib_lid(&n->port[0]))) {
		local(n, in, k);
		return;
	}
	if (k->dlid == SWIB_PERM)
		return;
	if (k->dlid >= SWIB_MCLID) {
		u32 m = k->dlid - SWIB_MCLID;

		if (m >= SWIB_MFT)
			return;
		for (i = 1; i <= n->nports; i++)
			if ((n->mft[m][i / 16] >> (i % 16) & 1) && (!in || i != in->num))
				swib_port_tx(&n->port[i], k);
		return;
	}
	if (k->dlid > n->lft_top)
		return;
	out = n->lft[k->dlid];
	if (out >= 1 && out <= n->nports)
		swib_port_tx(&n->port[out], k);
}

static void directed_route(struct swib_port *in, struct swib_pkt *k)
{
	struct swib_node *n = in->node;
	struct ib_smp *s = (void *)k->data;
	u8 out = 0;

	if (s->hop_cnt >= IB_SMP_MAX_PATH_HOPS || s->hop_ptr > s->hop_cnt + 1)
		return;
	if (!ib_get_smp_direction(s)) {
		if (!s->hop_ptr && s->hop_cnt) {	/* end of a LID routed first part */
			s->hop_ptr++;
			out = s->initial_path[s->hop_ptr];
		} else if (s->hop_ptr && s->hop_ptr < s->hop_cnt) {
			s->return_path[s->hop_ptr] = in->num;
			s->hop_ptr++;
			out = s->initial_path[s->hop_ptr];
		} else if (s->hop_ptr == s->hop_cnt) {
			if (s->hop_cnt)
				s->return_path[s->hop_ptr] = in->num;
			s->hop_ptr++;
			local(n, in, k);
			return;
		}
		k->slid = SWIB_PERM;
		k->dlid = SWIB_PERM;
		if (out >= 1 && out <= n->nports)
			swib_port_tx(&n->port[out], k);
		return;
	}
	if (!s->hop_ptr)
		return;
	s->hop_ptr--;
	forward_back(n, k);
}

/* A packet arrives at a port of a switch. */
static void switch_rx(struct swib_port *in, struct swib_pkt *k)
{
	struct swib_node *n = in->node;
	struct ib_smp *s = (void *)k->data;

	if (k->dqpn == 0 && k->len >= sizeof(*s) &&
	    s->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE &&
	    (k->dlid == SWIB_PERM || k->dlid == swib_lid(&n->port[0])))
		directed_route(in, k);
	else
		forward(n, in, k);
}

static const struct swib_node_ops ops = {
	.rx = switch_rx,
	.link_changed = swib_trap_link,
};

int swib_switch_add(int idx, unsigned int nports, u64 guid, const char *desc)
{
	struct swib_node *n;
	int r;

	if (idx < 0 || idx >= SWIB_MAX_SWITCH || nports < 1 || nports > SWIB_MAX_SW_PORTS)
		return -EINVAL;
	if (swib_switches[idx])
		return -EEXIST;
	n = kzalloc(sizeof(*n), GFP_KERNEL);
	if (!n)
		return -ENOMEM;
	n->is_switch = true;
	n->ops = &ops;
	n->idx = idx;
	n->guid = guid ?: SWIB_GUID_BASE + 0xff0000 + idx;
	if (desc && *desc)
		strscpy(n->desc, desc, sizeof(n->desc));
	else
		snprintf(n->desc, sizeof(n->desc), "swib switch %d", idx);
	r = swib_node_init(n, nports, 32);
	if (r) {
		swib_node_free(n);
		kfree(n);
		return r;
	}
	mutex_lock(&swib_fab_mutex);
	swib_switches[idx] = n;
	mutex_unlock(&swib_fab_mutex);
	return 0;
}

void swib_switch_del(int idx)
{
	struct swib_node *n = swib_switches[idx];

	if (!n)
		return;
	mutex_lock(&swib_fab_mutex);
	swib_switches[idx] = NULL;
	mutex_unlock(&swib_fab_mutex);
	swib_node_free(n);
	kfree(n);
}
