// SPDX-License-Identifier: GPL-2.0
/*
 * The subnet management agent (InfiniBand Architecture, volume 1, chapter 14).
 * The caller holds swib_fab_mutex.
 */
#include "swib.h"

static struct swib_port *end_port(struct swib_node *n, struct swib_port *in)
{
	return n->is_switch ? &n->port[0] : in;
}

/* Does the M_Key allow this SMP?  14.2.4 */
static bool mkey_ok(struct swib_port *p, struct ib_smp *s)
{
	struct ib_port_info *pi = &p->pi;
	u16 lease = be16_to_cpu(pi->mkey_lease_period);

	if (!pi->mkey || pi->mkey == s->mkey) {
		p->mkey_expires = 0;
		return true;
	}
	if (p->mkey_expires && time_after(jiffies, p->mkey_expires)) {
		pi->mkeyprot_resv_lmc &= 0x3f;		/* the lease is over: all may read it */
		p->mkey_expires = 0;
	}
	if (s->method == IB_MGMT_METHOD_GET && pi->mkeyprot_resv_lmc >> 6 < 2)
		return true;
	if (lease && !p->mkey_expires)
		p->mkey_expires = (jiffies + lease * HZ) ?: 1;
	pi->mkey_violations = cpu_to_be16(min(be16_to_cpu(pi->mkey_violations) + 1, 0xffff));
	swib_trap_mkey(p, s);
	return false;
}

static void set_end_port(struct swib_port *p, const struct ib_port_info *in)
{
	struct ib_port_info *pi = &p->pi;
	bool prefix = pi->gid_prefix != in->gid_prefix;

	pi->mkey = in->mkey;
	pi->gid_prefix = in->gid_prefix;
	pi->lid = in->lid;
	pi->sm_lid = in->sm_lid;
	pi->mkey_lease_period = in->mkey_lease_period;
	pi->mkeyprot_resv_lmc = in->mkeyprot_resv_lmc;
	pi->clientrereg_resv_subnetto = in->clientrereg_resv_subnetto & 0x1f;
	if (prefix)
		swib_port_event(p, IB_EVENT_GID_CHANGE);
}

static __be16 set_state(struct swib_port *p, int state, int phys)
{
	if (phys == SWIB_PHYS_DISABLED) {
		p->disabled = true;
		swib_link_eval(p);
	} else if (phys == SWIB_PHYS_POLLING && p->disabled) {
		p->disabled = false;
		swib_link_eval(p);
	}
	switch (state) {
	case IB_PORT_NOP:
		return 0;
	case IB_PORT_DOWN:
		if (phys != SWIB_PHYS_DISABLED)
			swib_port_bounce(p);
		return 0;
	case IB_PORT_ARMED:
		if (swib_state(p) != IB_PORT_INIT && swib_state(p) != IB_PORT_ARMED)
			return SWIB_MAD_BAD_FIELD;
		swib_set_state(p, IB_PORT_ARMED);
		return 0;
	case IB_PORT_ACTIVE:
		if (swib_state(p) == IB_PORT_ACTIVE)
			return 0;
		if (swib_state(p) != IB_PORT_ARMED)
			return SWIB_MAD_BAD_FIELD;
		swib_set_state(p, IB_PORT_ACTIVE);
		swib_port_event(p, IB_EVENT_PORT_ACTIVE);
		return 0;
	}
	return SWIB_MAD_BAD_FIELD;
}

/* all: the value that stands for everything supported; 0 leaves it as it is */
static u8 enable(u8 old, u8 in, u8 supported, u8 all)
{
	if (in == all)
		return supported;
	return in & supported ?: old;
}

static void set_speeds(struct swib_port *p, const struct ib_port_info *in, u8 ext)
{
	struct ib_port_info *pi = &p->pi;
	u8 active = pi->linkspeedactive_enabled & 0xf0;

	pi->link_width_enabled = enable(pi->link_width_enabled, in->link_width_enabled,
					pi->link_width_supported, 0xff);
	pi->linkspeedactive_enabled = active | enable(pi->linkspeedactive_enabled & 0xf,
						      in->linkspeedactive_enabled & 0xf,
						      pi->linkspeed_portstate >> 4, 0xf);
	if (ext == SWIB_EXT_OFF && p->ext_supported)
		p->ext_enabled = ext;
	else if (ext != SWIB_EXT_OFF)
		p->ext_enabled = enable(p->ext_enabled, ext, p->ext_supported, SWIB_EXT_ALL);
}

static __be16 set_port_info(struct swib_port *p, const struct ib_port_info *in, u8 ext)
{
	struct ib_port_info *pi = &p->pi;
	struct swib_node *n = p->node;
	bool lid, sm;

	lid = pi->lid != in->lid || swib_lmc(p) != (in->mkeyprot_resv_lmc & 7);
	sm = pi->sm_lid != in->sm_lid ||
	     (pi->neighbormtu_mastersmsl & 0xf) != (in->neighbormtu_mastersmsl & 0xf);
	if (!n->is_switch || p->num == 0)
		set_end_port(p, in);
	set_speeds(p, in, ext);
	if (p->num && swib_phys(p) != SWIB_PHYS_LINKUP)
		swib_link_eval(p);	/* the ends may have something in common now */
	pi->neighbormtu_mastersmsl = in->neighbormtu_mastersmsl;
	pi->vl_high_limit = in->vl_high_limit;
	pi->vlstallcnt_hoqlife = in->vlstallcnt_hoqlife;
	pi->operationalvl_pei_peo_fpi_fpo = in->operationalvl_pei_peo_fpi_fpo ?:
					    pi->operationalvl_pei_peo_fpi_fpo;
	pi->localphyerrors_overrunerrors = in->localphyerrors_overrunerrors;
	if (lid)
		swib_port_event(p, IB_EVENT_LID_CHANGE);
	if (sm)
		swib_port_event(p, IB_EVENT_SM_CHANGE);
	if (in->clientrereg_resv_subnetto & 0x80)
		swib_port_event(p, IB_EVENT_CLIENT_REREGISTER);
	if (n->is_switch && p->num == 0)
		return 0;
	return set_state(p, in->linkspeed_portstate & 0xf, in->portphysstate_linkdown >> 4);
}

static __be16 port_info(struct swib_node *n, struct swib_port *in, struct ib_smp *s, bool set)
{
	u32 num = be32_to_cpu(s->attr_mod) & 0xff;
	struct ib_port_info *out = (void *)s->data;
	struct ib_port_info want;
	struct swib_port *p;
	__be16 status = 0;

	if (!n->is_switch && num == 0)
		num = in->num;
	if (num > n->nports || (!n->is_switch && num < 1))
		return SWIB_MAD_BAD_FIELD;
	p = &n->port[num];
	if (set) {
		memcpy(&want, s->data, sizeof(want));
		status = set_port_info(p, &want, s->data[63] & 0x1f);
	}
	memset(s->data, 0, sizeof(s->data));
	memcpy(out, &p->pi, sizeof(*out));
	out->local_port_num = in->num;
	*(__be16 *)&s->data[60] = cpu_to_be16(p->cap_mask2);
	s->data[62] = p->ext_active << 4 | p->ext_supported;
	s->data[63] = p->ext_enabled;
	if (s->mkey != p->pi.mkey && p->pi.mkeyprot_resv_lmc >> 6 == 1)
		out->mkey = 0;
	return status;
}

static void node_info(struct swib_node *n, struct swib_port *in, struct ib_smp *s)
{
	struct ib_node_info *ni = (void *)s->data;

	memset(s->data, 0, sizeof(s->data));
	ni->base_version = 1;
	ni->class_version = 1;
	ni->node_type = n->is_switch ? 2 : 1;
	ni->num_ports = n->nports;
	ni->sys_guid = cpu_to_be64(n->guid);
	ni->node_guid = cpu_to_be64(n->guid);
	ni->port_guid = n->is_switch ? cpu_to_be64(n->guid) : in->guid[0];
	ni->partition_cap = cpu_to_be16(n->pkeys);
	ni->device_id = cpu_to_be16(0x5749);
	ni->revision = cpu_to_be32(1);
	ni->local_port_num = in->num;
}

static __be16 switch_info(struct swib_node *n, struct ib_smp *s, bool set)
{
	if (!n->is_switch)
		return SWIB_MAD_UNSUP_ATTR;
	if (set) {
		n->lft_top = s->data[6] << 8 | s->data[7];
		memcpy(n->swinfo_def, &s->data[8], 3);
		n->life = s->data[11] >> 3;
		if (s->data[11] & 4)
			n->psc = false;
	}
	memset(s->data, 0, sizeof(s->data));
	*(__be16 *)&s->data[0] = cpu_to_be16(SWIB_LFT - 1);
	*(__be16 *)&s->data[4] = cpu_to_be16(SWIB_MFT);
	*(__be16 *)&s->data[6] = cpu_to_be16(n->lft_top);
	memcpy(&s->data[8], n->swinfo_def, 3);
	s->data[11] = n->life << 3 | (n->psc ? 4 : 0);
	*(__be16 *)&s->data[14] = cpu_to_be16(n->pkeys);
	return 0;
}

static __be16 guid_info(struct swib_port *p, struct ib_smp *s, u32 mod, bool set)
{
	if (mod >= DIV_ROUND_UP(SWIB_GUIDS, 8))
		return SWIB_MAD_BAD_FIELD;
	if (set) {
		/* the first is the port's own and read only */
		memcpy(&p->guid[1], s->data + 8, (SWIB_GUIDS - 1) * sizeof(__be64));
		swib_port_event(p, IB_EVENT_GID_CHANGE);
	}
	memcpy(s->data, p->guid, sizeof(p->guid));
	return 0;
}

static __be16 pkey_table(struct swib_node *n, struct swib_port *in, struct ib_smp *s, u32 mod,
			 bool set)
{
	__be16 *keys = (__be16 *)s->data;
	u32 block = mod & 0xffff, num = mod >> 16;
	struct swib_port *p = in;
	bool changed = false;
	int i;

	if (n->is_switch)
		p = num <= n->nports ? &n->port[num] : NULL;
	if (!p || block >= n->pkeys / 32)
		return SWIB_MAD_BAD_FIELD;
	for (i = 0; i < 32; i++) {
		u16 *have = &p->pkey[block * 32 + i];

		if (set && *have != be16_to_cpu(keys[i])) {
			*have = be16_to_cpu(keys[i]);
			changed = true;
		}
		keys[i] = cpu_to_be16(*have);
	}
	if (changed)
		swib_port_event(p, IB_EVENT_PKEY_CHANGE);
	return 0;
}

static __be16 sl_to_vl(struct swib_node *n, struct swib_port *in, struct ib_smp *s, u32 mod,
		       bool set)
{
	u32 input = n->is_switch ? mod >> 8 & 0xff : 0;
	struct swib_port *p = in;

	if (n->is_switch)
		p = (mod & 0xff) <= n->nports ? &n->port[mod & 0xff] : NULL;
	if (!p || input > n->nports)
		return SWIB_MAD_BAD_FIELD;
	if (set)
		memcpy(p->sl2vl[input], s->data, 8);
	memset(s->data, 0, sizeof(s->data));
	memcpy(s->data, p->sl2vl[input], 8);
	return 0;
}

static __be16 vl_arbitration(struct swib_node *n, struct swib_port *in, struct ib_smp *s, u32 mod,
			     bool set)
{
	struct swib_port *p = in;
	u32 block = mod >> 16;

	if (n->is_switch)
		p = (mod & 0xffff) <= n->nports ? &n->port[mod & 0xffff] : NULL;
	if (!p || block < 1 || block > 4)
		return SWIB_MAD_BAD_FIELD;
	if (set)
		memcpy(p->vlarb[block - 1], s->data, 64);
	memcpy(s->data, p->vlarb[block - 1], 64);
	return 0;
}

static __be16 linear_forwarding(struct swib_node *n, struct ib_smp *s, u32 mod, bool set)
{
	if (!n->is_switch || mod >= SWIB_LFT / 64)
		return SWIB_MAD_UNSUP_ATTR;
	if (set)
		memcpy(&n->lft[mod * 64], s->data, 64);
	memcpy(s->data, &n->lft[mod * 64], 64);
	return 0;
}

static __be16 multicast_forwarding(struct swib_node *n, struct ib_smp *s, u32 mod, bool set)
{
	__be16 *masks = (__be16 *)s->data;
	u32 block = mod & 0x1ff, pos = mod >> 28;
	int i;

	if (!n->is_switch || block >= SWIB_MFT / 32 || pos >= SWIB_MFT_POS)
		return SWIB_MAD_UNSUP_ATTR;
	for (i = 0; i < 32; i++) {
		if (set)
			n->mft[block * 32 + i][pos] = be16_to_cpu(masks[i]);
		masks[i] = cpu_to_be16(n->mft[block * 32 + i][pos]);
	}
	return 0;
}

/* trusted: the node's own software asks, the M_Key does not matter */
enum swib_mad_result swib_sma(struct swib_node *n, struct swib_port *in, struct ib_smp *s,
			      bool trusted)
{
	bool set = s->method == IB_MGMT_METHOD_SET;
	u32 mod = be32_to_cpu(s->attr_mod);
	__be16 status = 0;

	if (s->method != IB_MGMT_METHOD_GET && !set)
		return SWIB_MAD_PASS;
	if (s->attr_id == IB_SMP_ATTR_SM_INFO && !n->is_switch)
		return SWIB_MAD_PASS;		/* for the subnet manager process */
	if (!trusted && !mkey_ok(end_port(n, in), s))
		return SWIB_MAD_DROP;
	switch (s->attr_id) {
	case IB_SMP_ATTR_NODE_DESC:
		memset(s->data, 0, sizeof(s->data));
		memcpy(s->data, n->is_switch ? n->desc : n->dev->ibdev.node_desc, 64);
		break;
	case IB_SMP_ATTR_NODE_INFO:
		node_info(n, in, s);
		break;
	case IB_SMP_ATTR_SWITCH_INFO:
		status = switch_info(n, s, set);
		break;
	case IB_SMP_ATTR_GUID_INFO:
		status = guid_info(end_port(n, in), s, mod & 0xff, set);
		break;
	case IB_SMP_ATTR_PORT_INFO:
		status = port_info(n, in, s, set);
		break;
	case IB_SMP_ATTR_PKEY_TABLE:
		status = pkey_table(n, in, s, mod, set);
		break;
	case IB_SMP_ATTR_SL_TO_VL_TABLE:
		status = sl_to_vl(n, in, s, mod, set);
		break;
	case IB_SMP_ATTR_VL_ARB_TABLE:
		status = vl_arbitration(n, in, s, mod, set);
		break;
	case IB_SMP_ATTR_LINEAR_FORWARD_TABLE:
		status = linear_forwarding(n, s, mod, set);
		break;
	case IB_SMP_ATTR_MCAST_FORWARD_TABLE:
		status = multicast_forwarding(n, s, mod, set);
		break;
	default:
		status = SWIB_MAD_UNSUP_ATTR;
	}
	s->method = IB_MGMT_METHOD_GET_RESP;
	s->status = status;
	if (s->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		s->status |= IB_SMP_DIRECTION;
	return SWIB_MAD_REPLY;
}
