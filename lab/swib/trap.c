// SPDX-License-Identifier: GPL-2.0
/*
 * Traps: notices that a node sends to its subnet manager on its own accord
 * (14.2.5.1).  Nobody repeats them; a lost trap is lost.  Caller holds
 * swib_fab_mutex.
 */
#include "swib.h"

static u64 trap_tid;

/* The port by which the subnet manager of p's node is reached, or NULL. */
static struct swib_port *way_out(struct swib_port *p, u16 sm)
{
	struct swib_node *n = p->node;
	u8 out;

	if (!sm || !swib_lid(p))
		return NULL;
	if (!n->is_switch)
		return swib_state(p) == IB_PORT_ACTIVE ? p : NULL;
	out = sm < SWIB_LFT ? n->lft[sm] : 0;
	if (out == 0 || out > n->nports)
		return NULL;
	return &n->port[out];
}

/* A notice about p, an end port; details follow the issuer's LID and the count. */
static void trap(struct swib_port *p, u8 type, u16 num, const void *details, size_t len)
{
	u16 sm = be16_to_cpu(p->pi.sm_lid);
	struct swib_port *out = way_out(p, sm);
	struct swib_pkt *k;
	struct ib_smp *s;

	if (!out)
		return;
	k = swib_mad_packet(out, swib_lid(p), sm);
	if (!k)
		return;
	s = (void *)k->data;
	s->base_version = 1;
	s->mgmt_class = IB_MGMT_CLASS_SUBN_LID_ROUTED;
	s->class_version = 1;
	s->method = IB_MGMT_METHOD_TRAP;
	s->tid = cpu_to_be64(++trap_tid);
	s->attr_id = IB_SMP_ATTR_NOTICE;
	s->data[0] = 0x80 | type;		/* generic */
	s->data[3] = p->node->is_switch ? 2 : 1;	/* producer */
	*(__be16 *)&s->data[4] = cpu_to_be16(num);
	*(__be16 *)&s->data[6] = cpu_to_be16(swib_lid(p));
	memcpy(&s->data[10], details, min_t(size_t, len, 54));
	swib_post(k);
	swib_kick();
}

/* 128: the state of a link of this switch changed. */
void swib_trap_link(struct swib_node *n)
{
	__be16 lid = cpu_to_be16(swib_lid(&n->port[0]));

	trap(&n->port[0], 1, 128, &lid, sizeof(lid));
}

/* 144: the capability mask or, if desc, the node description changed. */
void swib_trap_local(struct swib_port *p, bool desc)
{
	struct {
		__be16 pad;
		__be16 lid;
		u8 pad2;
		u8 other;
		__be32 cap_mask;
		__be16 changes;
	} __packed d = {
		.lid = cpu_to_be16(swib_lid(p)),
		.other = desc,
		.cap_mask = p->pi.cap_mask,
		.changes = cpu_to_be16(desc),		/* bit 0: NodeDescription */
	};

	trap(p, 4, 144, &d, sizeof(d));
}

/* 256: an SMP had the wrong M_Key. */
void swib_trap_mkey(struct swib_port *p, const struct ib_smp *s)
{
	struct {
		__be16 pad;
		__be16 lid;
		__be16 dr_slid;
		u8 method;
		u8 pad2;
		__be16 attr;
		__be32 mod;
		__be64 mkey;
	} __packed d = {
		.lid = cpu_to_be16(swib_lid(p)),
		.dr_slid = s->dr_slid,
		.method = s->method,
		.attr = s->attr_id,
		.mod = s->attr_mod,
		.mkey = s->mkey,
	};

	trap(p, 2, 256, &d, sizeof(d));
}
