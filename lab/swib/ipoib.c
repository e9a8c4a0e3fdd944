// SPDX-License-Identifier: GPL-2.0
/*
 * Enhanced IPoIB, as mlx5 has it where the kernel has CONFIG_MLX5_CORE_IPOIB:
 * ib_ipoib keeps paths, groups and the broadcast group, and the driver has the
 * queues of the link and of its P_Key children (struct rdma_netdev).  There is no
 * connected mode, and an MTU takes effect by opening the queues again.
 */
#include <linux/ethtool.h>
#include <linux/wait_bit.h>
#include "swib.h"

#define SENDS	128			/* under way, before the link's queue stops */
#define RECVS	256
#define GRH	40
#define HEAD	4			/* the header of RFC 4391 */
#define PSEUDO	20			/* the address that ib_ipoib has before it */
#define CHANNELS 4			/* of a parent, at most; by name only */

struct buf {
	struct ib_cqe cqe;
	struct ib_sge sge;
};

struct link {
	struct rdma_netdev rn;		/* ib_ipoib takes it for the private data */
	struct net_device *nd;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_cqe sent;
	struct buf *bufs;
	atomic_t sends, recvs;		/* under way */
	u32 qkey;
	u16 pkey_index;
	struct link *parent;		/* of a P_Key child */
	int children;			/* RTNL */
	u32 channels;
	bool open;
};

static void receive(struct link *l, const u8 *data, const struct ib_wc *wc)
{
	const struct ib_grh *grh = (const struct ib_grh *)data;
	bool has_grh = wc->wc_flags & IB_WC_GRH;
	struct net_device *nd = l->nd;
	int len = (int)wc->byte_len - GRH;
	struct sk_buff *skb;

	/* what this link sent to a group comes back */
	if (has_grh && wc->src_qp == l->qp->qp_num &&
	    !memcmp(&grh->sgid, nd->dev_addr + 4, sizeof(grh->sgid)))
		return;
	skb = len < HEAD ? NULL : dev_alloc_skb(PSEUDO + len);
	if (!skb) {
		nd->stats.rx_dropped++;
		return;
	}
	memset(skb_put(skb, PSEUDO), 0, PSEUDO);
	skb_put_data(skb, data + GRH, len);
	skb->dev = nd;
	skb->protocol = *(__be16 *)(skb->data + PSEUDO);
	if (!has_grh || grh->dgid.raw[0] != 0xff)
		skb->pkt_type = PACKET_HOST;
	else if (!memcmp(&grh->dgid, nd->broadcast + 4, sizeof(grh->dgid)))
		skb->pkt_type = PACKET_BROADCAST;
	else
		skb->pkt_type = PACKET_MULTICAST;
	skb_reset_mac_header(skb);
	skb_pull(skb, PSEUDO + HEAD);
	nd->stats.rx_packets++;
	nd->stats.rx_bytes += len;
	netif_rx(skb);
}

static int post_recv(struct link *l, struct buf *b)
{
	struct ib_recv_wr wr = { .wr_cqe = &b->cqe, .sg_list = &b->sge, .num_sge = 1 };

	return ib_post_recv(l->qp, &wr, NULL);
}

static void recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct buf *b = container_of(wc->wr_cqe, struct buf, cqe);
	struct link *l = cq->cq_context;

	if (wc->status == IB_WC_SUCCESS)
		receive(l, (const u8 *)(uintptr_t)b->sge.addr, wc);
	/* of a stopped link each buffer comes back once */
	if ((wc->status != IB_WC_SUCCESS || post_recv(l, b)) && atomic_dec_and_test(&l->recvs))
		wake_up_var(&l->recvs);
}

static void send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct link *l = cq->cq_context;
	int left = atomic_dec_return(&l->sends);

	if (left <= SENDS / 2 && READ_ONCE(l->open) && netif_queue_stopped(l->nd))
		netif_wake_queue(l->nd);
	if (!left)
		wake_up_var(&l->sends);
}

/* The packet begins with the header; the verbs copy it before they return. */
static int link_send(struct net_device *nd, struct sk_buff *skb, struct ib_ah *ah, u32 dqpn)
{
	struct link *l = netdev_priv(nd);
	struct ib_sge sge = { .lkey = l->pd->local_dma_lkey };
	struct ib_ud_wr wr = {
		.wr = {
			.wr_cqe = &l->sent,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		},
		.ah = ah,
		.remote_qpn = dqpn,
		.remote_qkey = l->qkey,
	};

	if (skb->len > nd->mtu + HEAD || skb_linearize(skb)) {
		nd->stats.tx_dropped++;
		goto free;
	}
	sge.addr = (uintptr_t)skb->data;
	sge.length = skb->len;
	if (atomic_inc_return(&l->sends) >= SENDS)
		netif_stop_queue(nd);
	if (ib_post_send(l->qp, &wr.wr, NULL)) {
		nd->stats.tx_errors++;
		send_done(l->cq, NULL);
		goto free;
	}
	nd->stats.tx_packets++;
	nd->stats.tx_bytes += sge.length;
free:
	dev_kfree_skb_any(skb);
	return 0;	/* nothing under way needs the address handle */
}

static int attach(struct net_device *nd, struct ib_device *d, union ib_gid *gid, u16 mlid,
		  int set_qkey, u32 qkey)
{
	struct link *l = netdev_priv(nd);
	struct ib_qp_attr a = { .qkey = qkey };
	int r = 0;

	if (set_qkey) {
		l->qkey = qkey;
		r = ib_modify_qp(l->qp, &a, IB_QP_QKEY);
	}
	return r ?: ib_attach_mcast(l->qp, gid, mlid);
}

static int detach(struct net_device *nd, struct ib_device *d, union ib_gid *gid, u16 mlid)
{
	struct link *l = netdev_priv(nd);

	return ib_detach_mcast(l->qp, gid, mlid);
}

/* The index of the link's P_Key; ib_ipoib opens the link again when it changes. */
static void set_id(struct net_device *nd, int id)
{
	struct link *l = netdev_priv(nd);

	l->pkey_index = id;
}

static int to_rts(struct link *l)
{
	struct ib_qp_attr a = {
		.qp_state = IB_QPS_INIT,
		.qkey = l->qkey,
		.port_num = l->rn.port_num,
		.pkey_index = l->pkey_index,
	};
	int r;

	r = ib_modify_qp(l->qp, &a, IB_QP_STATE | IB_QP_QKEY | IB_QP_PORT | IB_QP_PKEY_INDEX);
	a.qp_state = IB_QPS_RTR;
	if (!r)
		r = ib_modify_qp(l->qp, &a, IB_QP_STATE);
	a.qp_state = IB_QPS_RTS;
	if (!r)
		r = ib_modify_qp(l->qp, &a, IB_QP_STATE | IB_QP_SQ_PSN);
	return r;
}

static int link_stop(struct net_device *nd)
{
	struct link *l = netdev_priv(nd);
	struct ib_qp_attr a = { .qp_state = IB_QPS_ERR };

	if (!l->open)
		return 0;
	WRITE_ONCE(l->open, false);
	netif_tx_disable(nd);
	ib_modify_qp(l->qp, &a, IB_QP_STATE);
	if (!wait_var_event_timeout(&l->recvs, !atomic_read(&l->recvs), 5 * HZ) ||
	    !wait_var_event_timeout(&l->sends, !atomic_read(&l->sends), 5 * HZ))
		netdev_warn(nd, "%d receive buffers and %d packets do not come back\n",
			    atomic_read(&l->recvs), atomic_read(&l->sends));
	a.qp_state = IB_QPS_RESET;
	ib_modify_qp(l->qp, &a, IB_QP_STATE);
	atomic_set(&l->recvs, 0);
	atomic_set(&l->sends, 0);
	return 0;
}

static int link_open(struct net_device *nd)
{
	struct link *l = netdev_priv(nd);
	int i, r;

	r = to_rts(l);
	WRITE_ONCE(l->open, true);
	for (i = 0; !r && i < RECVS; i++) {
		atomic_inc(&l->recvs);
		r = post_recv(l, &l->bufs[i]);
		if (r)
			atomic_dec(&l->recvs);
	}
	if (r)
		link_stop(nd);
	return r;
}

/* ib_ipoib takes the carrier away meanwhile.  A child's queues are its parent's. */
static int link_change_mtu(struct net_device *nd, int mtu)
{
	struct link *l = netdev_priv(nd);
	bool again = nd->dev.parent && l->open;
	int r = 0;

	if (again)
		link_stop(nd);
	WRITE_ONCE(nd->mtu, mtu);
	if (again)
		r = link_open(nd);
	if (again && !r)
		netif_tx_wake_all_queues(nd);
	return r;
}

static void link_uninit(struct net_device *nd)
{
	struct link *l = netdev_priv(nd);
	int i;

	if (l->parent)
		l->parent->children--;
	l->parent = NULL;
	if (!IS_ERR_OR_NULL(l->qp))
		ib_destroy_qp(l->qp);
	if (!IS_ERR_OR_NULL(l->cq))
		ib_free_cq(l->cq);
	if (!IS_ERR_OR_NULL(l->pd))
		ib_dealloc_pd(l->pd);
	for (i = 0; l->bufs && i < RECVS; i++)
		kfree((void *)(uintptr_t)l->bufs[i].sge.addr);
	kvfree(l->bufs);
}

static int make_bufs(struct link *l)
{
	struct buf *b;
	void *data;

	l->bufs = kvcalloc(RECVS, sizeof(*l->bufs), GFP_KERNEL);
	for (b = l->bufs; b && b < l->bufs + RECVS; b++) {
		b->cqe.done = recv_done;
		b->sge.length = GRH + ib_mtu_enum_to_int(IB_MTU_4096);
		b->sge.lkey = l->pd->local_dma_lkey;
		data = kmalloc(b->sge.length, GFP_KERNEL);
		if (!data)
			return -ENOMEM;
		b->sge.addr = (uintptr_t)data;
	}
	return b ? 0 : -ENOMEM;
}

static int make_queues(struct link *l)
{
	struct ib_qp_init_attr a = {
		.cap = {
			.max_send_wr = SENDS,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_UD,
	};

	l->pd = ib_alloc_pd(l->rn.hca, 0);
	if (IS_ERR(l->pd))
		return PTR_ERR(l->pd);
	l->cq = ib_alloc_cq(l->rn.hca, l, SENDS + RECVS, 0, IB_POLL_UNBOUND_WORKQUEUE);
	if (IS_ERR(l->cq))
		return PTR_ERR(l->cq);
	a.send_cq = l->cq;
	a.recv_cq = l->cq;
	l->qp = ib_create_qp(l->pd, &a);
	if (IS_ERR(l->qp))
		return PTR_ERR(l->qp);
	l->sent.done = send_done;
	return make_bufs(l);
}

static const struct ethtool_ops child_ethtool_ops;

/* mlx5i_parent_get: the parent is searched for where the child is made. */
static int find_parent(struct net_device *nd)
{
	struct link *l = netdev_priv(nd);
	int i = dev_get_iflink(nd);
	struct net_device *p;

	if (i == nd->ifindex)
		return 0;
	p = __dev_get_by_index(dev_net(nd), i);
	if (!p)
		return -EINVAL;
	l->parent = netdev_priv(p);
	l->parent->children++;
	nd->ethtool_ops = &child_ethtool_ops;
	return 0;
}

/* The address has the queue pair's number and none of the flags of connected mode. */
static int link_init(struct net_device *nd)
{
	struct link *l = netdev_priv(nd);
	int r = find_parent(nd) ?: make_queues(l);
	__be32 qpn;

	if (r) {
		link_uninit(nd);
		return r;
	}
	qpn = cpu_to_be32(l->qp->qp_num);
	dev_addr_mod(nd, 0, &qpn, sizeof(qpn));
	return 0;
}

static const struct net_device_ops link_ops = {
	.ndo_init = link_init,
	.ndo_uninit = link_uninit,
	.ndo_open = link_open,
	.ndo_stop = link_stop,
	.ndo_change_mtu = link_change_mtu,
};

/* "mlx5_core[ib_ipoib]", which udev keeps as ID_NET_DRIVER. */
static void link_drvinfo(struct net_device *nd, struct ethtool_drvinfo *info)
{
	struct link *l = netdev_priv(nd);
	struct device *parent = l->rn.hca->dev.parent;

	snprintf(info->driver, sizeof(info->driver), "%s[ib_ipoib]", dev_driver_string(parent));
	strscpy(info->bus_info, dev_name(parent), sizeof(info->bus_info));
}

static void link_get_channels(struct net_device *nd, struct ethtool_channels *c)
{
	struct link *l = netdev_priv(nd);

	c->max_combined = CHANNELS;
	c->combined_count = l->channels;
}

/* mlx5i_set_channels */
static int link_set_channels(struct net_device *nd, struct ethtool_channels *c)
{
	struct link *l = netdev_priv(nd);

	if (l->children)
		return -EINVAL;
	l->channels = c->combined_count;
	return 0;
}

static const struct ethtool_ops link_ethtool_ops = {
	.get_drvinfo = link_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_channels = link_get_channels,
	.set_channels = link_set_channels,
};

/* mlx5i_pkey_ethtool_ops */
static const struct ethtool_ops child_ethtool_ops = {
	.get_drvinfo = link_drvinfo,
	.get_link = ethtool_op_get_link,
};

static int setup(struct ib_device *d, u32 port, struct net_device *nd, void *param)
{
	struct link *l = netdev_priv(nd);

	l->nd = nd;
	l->rn.hca = d;
	l->rn.port_num = port;
	l->rn.send = link_send;
	l->rn.attach_mcast = attach;
	l->rn.detach_mcast = detach;
	l->rn.set_id = set_id;
	l->channels = CHANNELS;
	nd->netdev_ops = &link_ops;
	nd->ethtool_ops = &link_ethtool_ops;
	return netif_set_real_num_tx_queues(nd, 1) ?: netif_set_real_num_rx_queues(nd, 1);
}

static int get_params(struct ib_device *d, u32 port, enum rdma_netdev_t type,
		      struct rdma_netdev_alloc_params *params)
{
	if (type != RDMA_NETDEV_IPOIB)
		return -EOPNOTSUPP;
	*params = (struct rdma_netdev_alloc_params) {
		.sizeof_priv = sizeof(struct link),
		.txqs = 1,
		.rxqs = 1,
		.initialize_rdma_netdev = setup,
	};
	return 0;
}

const struct ib_device_ops swib_ipoib_ops = {
	.rdma_netdev_get_params = get_params,
};
