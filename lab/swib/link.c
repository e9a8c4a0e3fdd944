// SPDX-License-Identifier: GPL-2.0
/* Nodes, ports, cables, and the state of links. */
#include <linux/log2.h>
#include "swib.h"

#define SWIB_LEGACY_SPEEDS	(IB_SPEED_SDR | IB_SPEED_DDR | IB_SPEED_QDR)

void swib_port_event(struct swib_port *p, enum ib_event_type t)
{
	struct ib_event ev = {};

	/* the core takes no event of a device that is not registered yet */
	if (p->node->is_switch || !p->node->dev || !READ_ONCE(p->node->dev->hca->dev))
		return;
	ev.device = &p->node->dev->ibdev;
	ev.element.port_num = p->num;
	ev.event = t;
	ib_dispatch_event(&ev);
}

/* Bits of enum ib_port_speed: PortInfo has those up to QDR and the others in two places. */
static u8 enabled_speeds(const struct swib_port *p)
{
	u8 ext = p->ext_enabled == SWIB_EXT_OFF ? 0 : p->ext_enabled;

	return (p->pi.linkspeedactive_enabled & SWIB_LEGACY_SPEEDS) | ext << 4;
}

/* What both ends are ready for; the far end of a wire is not known. */
static u8 common_speeds(const struct swib_port *p)
{
	return enabled_speeds(p) & (p->peer ? enabled_speeds(p->peer) : 0xff);
}

static u8 common_widths(const struct swib_port *p)
{
	return p->pi.link_width_enabled & (p->peer ? p->peer->pi.link_width_enabled : 0xff);
}

/* A link that is up stays up: what is enabled counts from the next training on. */
static bool ends_agree(const struct swib_port *p)
{
	return swib_phys(p) == SWIB_PHYS_LINKUP || (common_speeds(p) && common_widths(p));
}

/* The widest and fastest of what is there; the bit of 2x is the highest of all. */
static void set_active(struct swib_port *p, u8 widths, u8 speeds)
{
	u8 wide = widths & (IB_WIDTH_4X | IB_WIDTH_8X | IB_WIDTH_12X);
	u8 speed = rounddown_pow_of_two(speeds), legacy = speed;

	if (wide)
		p->pi.link_width_active = rounddown_pow_of_two(wide);
	else
		p->pi.link_width_active = widths & IB_WIDTH_2X ?: IB_WIDTH_1X;
	p->ext_active = speed >> 4;
	if (p->ext_active)
		legacy = IB_SPEED_QDR;
	p->pi.linkspeedactive_enabled = legacy << 4 | (p->pi.linkspeedactive_enabled & 0xf);
}

static void set_link(struct swib_port *p, bool up)
{
	int old = swib_state(p);

	if (up) {
		if (swib_phys(p) == SWIB_PHYS_LINKUP)
			return;
		swib_set_phys(p, SWIB_PHYS_LINKUP);
		swib_set_state(p, IB_PORT_INIT);
		set_active(p, common_widths(p), common_speeds(p));
	} else {
		if (swib_phys(p) == SWIB_PHYS_LINKUP)
			p->link_downed = min(p->link_downed + 1, 0xff);
		swib_set_phys(p, p->disabled ? SWIB_PHYS_DISABLED : p->stuck ?: SWIB_PHYS_POLLING);
		swib_set_state(p, IB_PORT_DOWN);
		if (old == IB_PORT_ACTIVE || old == IB_PORT_ARMED)
			swib_port_event(p, IB_EVENT_PORT_ERR);
	}
	if (p->node->is_switch)
		p->node->psc = true;
}

bool swib_port_ready(const struct swib_port *p)
{
	return !p->absent && !p->unplugged && !p->stuck && !p->disabled;
}

/* Brings both ends of a link to the state that follows from their switches. */
void swib_link_eval(struct swib_port *p)
{
	struct swib_port *q = p->peer;
	bool was = swib_phys(p) == SWIB_PHYS_LINKUP;
	bool up = swib_port_ready(p);

	if (p->node->ops->plug)
		p->node->ops->plug(p);
	if (q)
		up = up && swib_port_ready(q) && ends_agree(p);
	else
		up = up && p->wire && p->wire->up;
	if (p->wire)
		p->wire->ops->notify(p->wire);
	set_link(p, up);
	if (q)
		set_link(q, up);
	if (up == was)
		return;
	if (p->node->ops->link_changed)
		p->node->ops->link_changed(p->node);
	if (q && q->node != p->node && q->node->ops->link_changed)
		q->node->ops->link_changed(q->node);
}

/* Takes the link down and up again, as a PortInfo Set with state Down does. */
void swib_port_bounce(struct swib_port *p)
{
	p->disabled = true;
	swib_link_eval(p);
	p->disabled = false;
	swib_link_eval(p);
}

/* CapabilityMask of a switch is that of port 0 and tells of all ports. */
static void note_speeds(struct swib_node *n, struct swib_port *p)
{
	struct swib_port *to = n->is_switch ? &n->port[0] : p;
	u32 caps = be32_to_cpu(to->pi.cap_mask);
	u8 ext = p->ext_supported, widths = p->pi.link_width_supported;
	int i;

	for (i = 1; n->is_switch && i <= n->nports; i++) {
		ext |= n->port[i].ext_supported;
		widths |= n->port[i].pi.link_width_supported;
	}
	to->cap_mask2 = (widths & IB_WIDTH_2X ? IB_PORT_LINK_WIDTH_2X_SUP : 0) |
			(ext & (IB_SPEED_HDR >> 4) ? IB_PORT_LINK_SPEED_HDR_SUP : 0) |
			(ext & (IB_SPEED_NDR >> 4) ? IB_PORT_LINK_SPEED_NDR_SUP : 0);
	caps &= ~(IB_PORT_EXTENDED_SPEEDS_SUP | IB_PORT_CAP_MASK2_SUP);
	if (ext)
		caps |= IB_PORT_EXTENDED_SPEEDS_SUP;
	if (to->cap_mask2)
		caps |= IB_PORT_CAP_MASK2_SUP;
	to->pi.cap_mask = cpu_to_be32(caps);
}

/*
 * The port can and does all up to this width and speed.  2x is younger than the
 * others: ports of HDR and NDR know it, and those that have no more.
 */
void swib_port_speed(struct swib_port *p, u8 width, u8 speed)
{
	u8 speeds = speed | (speed - 1), widths;

	if (width == IB_WIDTH_2X)
		widths = IB_WIDTH_1X | IB_WIDTH_2X;
	else
		widths = width | (width - 1);
	if (width != IB_WIDTH_1X && speed >= IB_SPEED_HDR)
		widths |= IB_WIDTH_2X;
	p->pi.link_width_supported = widths;
	p->pi.link_width_enabled = widths;
	p->pi.linkspeed_portstate = (speeds & SWIB_LEGACY_SPEEDS) << 4 | swib_state(p);
	p->pi.linkspeedactive_enabled = (p->pi.linkspeedactive_enabled & 0xf0) |
					(speeds & SWIB_LEGACY_SPEEDS);
	p->ext_supported = speeds >> 4;
	p->ext_enabled = p->ext_supported;
	note_speeds(p->node, p);
	if (swib_phys(p) == SWIB_PHYS_LINKUP) {
		swib_port_bounce(p);
		return;
	}
	set_active(p, width, speed);
	swib_link_eval(p);
}

static void flap_work(struct work_struct *w)
{
	struct swib_port *p = container_of(w, struct swib_port, flap.work);

	mutex_lock(&swib_fab_mutex);
	if (p->flap_left) {
		p->flap_left--;
		p->unplugged = p->flap_left & 1;
		swib_link_eval(p);
		if (p->flap_left)
			queue_delayed_work(swib_wq, &p->flap, msecs_to_jiffies(p->flap_ms));
	}
	mutex_unlock(&swib_fab_mutex);
}

/* Takes the link down and up the given number of times, ms for each state. */
void swib_flap(struct swib_port *p, unsigned int times, unsigned int ms)
{
	p->flap_left = 2 * times;
	p->flap_ms = ms;
	mod_delayed_work(swib_wq, &p->flap, 0);
}

void swib_cable(struct swib_port *p, struct swib_port *q)
{
	swib_uncable(p);
	swib_uncable(q);
	p->peer = q;
	q->peer = p;
	swib_link_eval(p);
}

void swib_uncable(struct swib_port *p)
{
	struct swib_port *q = p->peer;

	if (!q)
		return;
	p->peer = NULL;
	q->peer = NULL;
	swib_link_eval(p);
	swib_link_eval(q);
}

static int port_init(struct swib_node *n, int num)
{
	struct swib_port *p = &n->port[num];
	struct ib_port_info *pi = &p->pi;
	bool p0 = n->is_switch && num == 0;
	u32 caps = 0;

	p->node = n;
	p->num = num;
	INIT_DELAYED_WORK(&p->flap, flap_work);
	p->pkey = kcalloc(n->pkeys, sizeof(*p->pkey), GFP_KERNEL);
	p->sl2vl = kcalloc(n->is_switch ? n->nports + 1 : 1, sizeof(*p->sl2vl), GFP_KERNEL);
	if (!p->pkey || !p->sl2vl)
		return -ENOMEM;
	pi->gid_prefix = cpu_to_be64(0xfe80000000000000ULL);
	pi->link_width_enabled = IB_WIDTH_1X | IB_WIDTH_4X;
	pi->link_width_supported = IB_WIDTH_1X | IB_WIDTH_4X;
	pi->link_width_active = IB_WIDTH_4X;
	pi->linkspeed_portstate = 7 << 4 | IB_PORT_DOWN;
	pi->portphysstate_linkdown = SWIB_PHYS_POLLING << 4 | SWIB_PHYS_POLLING;
	pi->linkspeedactive_enabled = 4 << 4 | 7;	/* QDR */
	pi->neighbormtu_mastersmsl = IB_MTU_4096 << 4;
	pi->vlcap_inittype = 1 << 4;
	pi->inittypereply_mtucap = IB_MTU_4096;
	pi->operationalvl_pei_peo_fpi_fpo = 1 << 4;
	pi->resv_resptimevalue = 16;
	pi->guid_cap = n->is_switch ? (num ? 0 : 1) : SWIB_GUIDS;
	if (!n->is_switch)
		caps = IB_PORT_TRAP_SUP | IB_PORT_AUTO_MIGR_SUP | IB_PORT_SYS_IMAGE_GUID_SUP |
		       IB_PORT_CM_SUP | IB_PORT_VENDOR_CLASS_SUP | IB_PORT_CLIENT_REG_SUP;
	else if (p0)
		caps = IB_PORT_TRAP_SUP | IB_PORT_SYS_IMAGE_GUID_SUP;
	pi->cap_mask = cpu_to_be32(caps);
	p->pkey[0] = 0xffff;
	p->guid[0] = cpu_to_be64(n->is_switch ? n->guid : n->guid + num);
	if (p0) {
		swib_set_phys(p, SWIB_PHYS_LINKUP);
		swib_set_state(p, IB_PORT_ACTIVE);
	}
	return 0;
}

/* is_switch, ops, idx and guid of the node are set already. */
int swib_node_init(struct swib_node *n, unsigned int nports, unsigned int pkeys)
{
	int i, r;

	n->nports = nports;
	n->pkeys = pkeys;
	n->port = kvcalloc(nports + 1, sizeof(*n->port), GFP_KERNEL);
	if (!n->port)
		return -ENOMEM;
	for (i = n->is_switch ? 0 : 1; i <= nports; i++) {
		r = port_init(n, i);
		if (r)
			return r;
	}
	if (!n->is_switch)
		return 0;
	n->lft = kvmalloc(SWIB_LFT, GFP_KERNEL);
	n->mft = kvcalloc(SWIB_MFT, sizeof(*n->mft), GFP_KERNEL);
	if (!n->lft || !n->mft)
		return -ENOMEM;
	memset(n->lft, 0xff, SWIB_LFT);
	return 0;
}

/* Pulls the cables of a node out and frees what it has; may follow a failed init. */
void swib_node_free(struct swib_node *n)
{
	int i;

	if (n->port) {
		for (i = 0; i <= n->nports; i++)
			if (n->port[i].wire)
				n->port[i].wire->ops->detach(&n->port[i]);
		mutex_lock(&swib_fab_mutex);
		for (i = 0; i <= n->nports; i++) {
			n->port[i].flap_left = 0;
			if (n->port[i].peer)
				swib_uncable(&n->port[i]);
		}
		raw_notifier_call_chain(&swib_node_gone, 0, n);
		mutex_unlock(&swib_fab_mutex);
		for (i = 0; i <= n->nports; i++) {
			if (n->port[i].node)
				cancel_delayed_work_sync(&n->port[i].flap);
			kfree(n->port[i].pkey);
			kfree(n->port[i].sl2vl);
		}
	}
	kvfree(n->port);
	kvfree(n->lft);
	kvfree(n->mft);
	n->port = NULL;
	n->lft = NULL;
	n->mft = NULL;
}
