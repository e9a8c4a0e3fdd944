// SPDX-License-Identifier: GPL-2.0
/* What the kernel's InfiniBand core calls of devices, ports and virtual functions. */
#include <rdma/ib_addr.h>
#include "swib.h"

static int swib_query_device(struct ib_device *d, struct ib_device_attr *a, struct ib_udata *u)
{
	struct swib_hca *h = to_swib_dev(d)->hca;

	memset(a, 0, sizeof(*a));
	a->sys_image_guid = cpu_to_be64(h->node.guid);
	a->max_mr_size = ~0ULL;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = 0x5357;
	a->vendor_part_id = 0x4942;
	a->hw_ver = 1;
	a->max_qp = 65536;
	a->max_qp_wr = 16384;
	a->max_send_sge = SWIB_MAX_SGE;
	a->max_recv_sge = SWIB_MAX_SGE;
	a->max_sge_rd = 1;
	a->max_cq = 65536;
	a->max_cqe = 1 << 20;
	a->max_mr = 65536;
	a->max_pd = 65536;
	a->max_ah = 1 << 20;
	a->max_srq = 65536;
	a->max_srq_wr = 16384;
	a->max_srq_sge = SWIB_MAX_SGE;
	a->max_mcast_grp = 8192;
	a->max_mcast_qp_attach = 1024;
	a->max_total_mcast_qp_attach = 65536;
	a->max_pkeys = h->node.pkeys;
	a->device_cap_flags = IB_DEVICE_CHANGE_PHY_PORT | IB_DEVICE_PORT_ACTIVE_EVENT |
			      IB_DEVICE_SYS_IMAGE_GUID | IB_DEVICE_RC_RNR_NAK_GEN;
	a->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	return 0;
}

static void query_eth_port(struct swib_hca *h, u32 n, struct ib_port_attr *a)
{
	struct net_device *nd = swib_eth_active(h, n);
	bool up = nd && netif_running(nd) && netif_carrier_ok(nd);

	a->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	a->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	a->max_mtu = IB_MTU_4096;
	a->active_mtu = nd ? iboe_get_mtu(nd->mtu) : IB_MTU_1024;
	a->port_cap_flags = IB_PORT_CM_SUP;
	a->ip_gids = true;
	a->gid_tbl_len = 128;
	a->pkey_tbl_len = 1;
	if (nd)
		dev_put(nd);
}

static int swib_query_port(struct ib_device *d, u32 n, struct ib_port_attr *a)
{
	struct swib_port *p = swib_dev_port(to_swib_dev(d), n);
	struct ib_port_info *pi = &p->pi;

	a->max_msg_sz = 1 << 30;
	a->max_vl_num = 1;
	a->active_width = IB_WIDTH_4X;
	a->active_speed = IB_SPEED_QDR;
	if (swib_port_is_eth(to_swib_dev(d), n)) {
		query_eth_port(to_swib_dev(d)->hca, n, a);
		return 0;
	}
	a->active_width = pi->link_width_active;
	a->active_speed = swib_speed(p);
	a->state = swib_state(p);
	a->phys_state = swib_phys(p);
	a->max_mtu = pi->inittypereply_mtucap & 0xf;
	if (to_swib_dev(d)->hca->driver == SWIB_DRV_HFI1)
		a->phys_mtu = 10240;	/* which IPoIB takes from Omni-Path ports */
	a->active_mtu = (pi->neighbormtu_mastersmsl >> 4) ?: IB_MTU_2048;
	a->lid = swib_lid(p);
	a->lmc = swib_lmc(p);
	a->sm_lid = be16_to_cpu(pi->sm_lid);
	a->sm_sl = pi->neighbormtu_mastersmsl & 0xf;
	a->port_cap_flags = be32_to_cpu(pi->cap_mask);
	a->port_cap_flags2 = p->cap_mask2;
	a->gid_tbl_len = SWIB_GUIDS;
	a->pkey_tbl_len = p->node->pkeys;
	a->subnet_timeout = pi->clientrereg_resv_subnetto & 0x1f;
	return 0;
}

static int swib_query_gid(struct ib_device *d, u32 n, int i, union ib_gid *g)
{
	struct swib_port *p = swib_dev_port(to_swib_dev(d), n);

	memset(g, 0, sizeof(*g));
	if (swib_port_is_eth(to_swib_dev(d), n))
		return i < 128 ? 0 : -EINVAL;
	if (i >= SWIB_GUIDS)
		return -EINVAL;
	if (i == 0 || p->guid[i]) {
		g->global.subnet_prefix = p->pi.gid_prefix;
		g->global.interface_id = p->guid[i];
	}
	return 0;
}

static int swib_query_pkey(struct ib_device *d, u32 n, u16 i, u16 *k)
{
	struct swib_port *p = swib_dev_port(to_swib_dev(d), n);

	if (swib_port_is_eth(to_swib_dev(d), n)) {
		*k = 0xffff;
		return i ? -EINVAL : 0;
	}
	if (i >= p->node->pkeys)
		return -EINVAL;
	*k = p->pkey[i];
	return 0;
}

/* The core keeps the GID table of a RoCE port itself, in add_gid order. */
static int swib_add_gid(const struct ib_gid_attr *a, void **context)
{
	return 0;
}

static int swib_del_gid(const struct ib_gid_attr *a, void **context)
{
	return 0;
}

static struct net_device *swib_get_netdev(struct ib_device *d, u32 n)
{
	if (!swib_port_is_eth(to_swib_dev(d), n))
		return NULL;
	return swib_eth_active(to_swib_dev(d)->hca, n);
}

static int swib_port_immutable(struct ib_device *d, u32 n, struct ib_port_immutable *im)
{
	struct ib_port_attr a = {};

	swib_query_port(d, n, &a);
	im->pkey_tbl_len = a.pkey_tbl_len;
	im->gid_tbl_len = a.gid_tbl_len;
	im->max_mad_size = IB_MGMT_MAD_SIZE;
	im->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	if (to_swib_dev(d)->hca->driver == SWIB_DRV_HFI1) {
		im->core_cap_flags = RDMA_CORE_PORT_INTEL_OPA;
		im->max_mad_size = OPA_MGMT_MAD_SIZE;
	}
	if (swib_dev_port(to_swib_dev(d), n)->no_smi)
		im->core_cap_flags &= ~RDMA_CORE_CAP_IB_SMI;
	if (!swib_port_is_eth(to_swib_dev(d), n))
		return 0;
	if (swib_roce) {
		im->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE | RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	} else {
		im->core_cap_flags = RDMA_CORE_PORT_RAW_PACKET;
		im->max_mad_size = 0;
	}
	return 0;
}

static enum rdma_link_layer swib_link_layer(struct ib_device *d, u32 n)
{
	return swib_port_is_eth(to_swib_dev(d), n) ? IB_LINK_LAYER_ETHERNET :
						     IB_LINK_LAYER_INFINIBAND;
}

static int swib_modify_port(struct ib_device *d, u32 n, int mask, struct ib_port_modify *m)
{
	struct swib_port *p = swib_dev_port(to_swib_dev(d), n);
	u32 c;

	mutex_lock(&swib_fab_mutex);
	c = be32_to_cpu(p->pi.cap_mask);
	c |= m->set_port_cap_mask;
	c &= ~m->clr_port_cap_mask;
	if (p->pi.cap_mask != cpu_to_be32(c)) {
		p->pi.cap_mask = cpu_to_be32(c);
		swib_trap_local(p, false);
	}
	mutex_unlock(&swib_fab_mutex);
	return 0;
}

static int swib_modify_device(struct ib_device *d, int mask, struct ib_device_modify *m)
{
	struct swib_node *n = &to_swib_dev(d)->hca->node;
	int i;

	if (mask & IB_DEVICE_MODIFY_NODE_DESC) {
		mutex_lock(&swib_fab_mutex);
		memcpy(d->node_desc, m->node_desc, sizeof(d->node_desc));
		for (i = 1; i <= n->nports; i++)
			swib_trap_local(&n->port[i], true);
		mutex_unlock(&swib_fab_mutex);
	}
	return 0;
}

static int swib_process_mad(struct ib_device *d, int flags, u32 n, const struct ib_wc *wc,
			    const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
			    size_t *out_size, u16 *out_pkey)
{
	struct swib_hca *h = to_swib_dev(d)->hca;
	struct swib_port *p = &h->node.port[n];
	enum swib_mad_result r = SWIB_MAD_PASS;

	*out = *in;
	mutex_lock(&swib_fab_mutex);
	switch (in->mad_hdr.mgmt_class) {
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		if (!h->node.dev)
			break;		/* half way through a removal */
		r = swib_sma(&h->node, p, (struct ib_smp *)out, flags & IB_MAD_IGNORE_MKEY);
		break;
	case IB_MGMT_CLASS_PERF_MGMT:
		r = swib_pma(&h->node, p, out);
		break;
	}
	mutex_unlock(&swib_fab_mutex);
	switch (r) {
	case SWIB_MAD_REPLY:
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
	case SWIB_MAD_DROP:
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED;
	default:
		return IB_MAD_RESULT_SUCCESS;
	}
}

/* ---- SR-IOV: what `ip link set ib0 vf N node_guid` reaches ------------- */

static struct swib_vf *vf_of(struct ib_device *d, int vf)
{
	struct swib_hca *h = to_swib_dev(d)->hca;

	return vf >= 0 && vf < h->num_vfs ? &h->vf[vf] : NULL;
}

static int swib_set_vf_guid(struct ib_device *d, int vf, u32 port, u64 guid, int type)
{
	struct swib_vf *v = vf_of(d, vf);

	if (!v)
		return -EINVAL;
	if (type == IFLA_VF_IB_NODE_GUID)
		v->node_guid = guid;
	else if (type == IFLA_VF_IB_PORT_GUID)
		v->port_guid[port] = guid;
	else
		return -EINVAL;
	return 0;
}

static int swib_get_vf_guid(struct ib_device *d, int vf, u32 port, struct ifla_vf_guid *node,
			    struct ifla_vf_guid *pguid)
{
	struct swib_vf *v = vf_of(d, vf);

	if (!v)
		return -EINVAL;
	node->vf = vf;
	node->guid = v->node_guid;
	pguid->vf = vf;
	pguid->guid = v->port_guid[port];
	return 0;
}

static int swib_get_vf_config(struct ib_device *d, int vf, u32 port, struct ifla_vf_info *ivf)
{
	struct swib_vf *v = vf_of(d, vf);

	if (!v)
		return -EINVAL;
	memset(ivf, 0, sizeof(*ivf));
	ivf->vf = vf;
	ivf->linkstate = v->link_state[port];
	return 0;
}

static int swib_set_vf_link_state(struct ib_device *d, int vf, u32 port, int state)
{
	struct swib_vf *v = vf_of(d, vf);

	if (!v)
		return -EINVAL;
	v->link_state[port] = state;
	return 0;
}

static int swib_get_vf_stats(struct ib_device *d, int vf, u32 port, struct ifla_vf_stats *st)
{
	return vf_of(d, vf) ? 0 : -EINVAL;
}

static void swib_fw_str(struct ib_device *d, char *s)
{
	strscpy(s, "1.0.0", IB_FW_VERSION_NAME_MAX);
}

static ssize_t hca_type_show(struct device *d, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "SWIB\n");
}
static DEVICE_ATTR_RO(hca_type);

static ssize_t hw_rev_show(struct device *d, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "1\n");
}
static DEVICE_ATTR_RO(hw_rev);

static ssize_t board_id_show(struct device *d, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "SWIB0000000001\n");
}
static DEVICE_ATTR_RO(board_id);

static struct attribute *swib_attrs[] = {
	&dev_attr_hca_type.attr,
	&dev_attr_hw_rev.attr,
	&dev_attr_board_id.attr,
	NULL
};

static const struct attribute_group swib_group = { .attrs = swib_attrs };

/* As in mlx5: a device without it cannot be moved to another network namespace. */
static void swib_disassociate_ucontext(struct ib_ucontext *context)
{
}

const struct ib_device_ops swib_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.add_gid = swib_add_gid,
	.del_gid = swib_del_gid,
	.device_group = &swib_group,
	.disassociate_ucontext = swib_disassociate_ucontext,
	.get_dev_fw_str = swib_fw_str,
	.get_link_layer = swib_link_layer,
	.get_netdev = swib_get_netdev,
	.get_port_immutable = swib_port_immutable,
	.get_vf_config = swib_get_vf_config,
	.get_vf_guid = swib_get_vf_guid,
	.get_vf_stats = swib_get_vf_stats,
	.modify_device = swib_modify_device,
	.modify_port = swib_modify_port,
	.process_mad = swib_process_mad,
	.query_device = swib_query_device,
	.query_gid = swib_query_gid,
	.query_pkey = swib_query_pkey,
	.query_port = swib_query_port,
	.set_vf_guid = swib_set_vf_guid,
	.set_vf_link_state = swib_set_vf_link_state,
};
