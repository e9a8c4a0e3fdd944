// SPDX-License-Identifier: GPL-2.0
/*
 * Ports of type Ethernet: links that one hub joins.  The RDMA device of the
 * adapter shows them as RoCE ports; dcb.c has their DCB operations.
 */
#include <linux/ethtool.h>
#include <linux/log2.h>
#include <linux/rculist.h>
#include "swib.h"

static DEFINE_SPINLOCK(hub_lock);
static LIST_HEAD(hub);

static void port_event(struct swib_eth *e, enum ib_event_type t)
{
	struct ib_event ev = {};
	struct swib_dev *d;

	rcu_read_lock();
	d = READ_ONCE(e->hca->dev);
	if (!d && swib_lag_second(e->hca))
		d = READ_ONCE(e->hca->lag_peer->dev);
	if (d) {
		ev.device = &d->ibdev;
		ev.element.port_num = e->port;
		ev.event = t;
		ib_dispatch_event(&ev);
	}
	rcu_read_unlock();
}

static int eth_open(struct net_device *nd)
{
	netif_start_queue(nd);
	port_event(swib_to_eth(nd), IB_EVENT_PORT_ACTIVE);
	return 0;
}

static int eth_stop(struct net_device *nd)
{
	netif_stop_queue(nd);
	port_event(swib_to_eth(nd), IB_EVENT_PORT_ERR);
	return 0;
}

static netdev_tx_t eth_xmit(struct sk_buff *skb, struct net_device *nd)
{
	const u8 *dst = skb->data;
	bool all = is_multicast_ether_addr(dst);
	struct swib_eth *e;
	struct sk_buff *c;

	nd->stats.tx_packets++;
	nd->stats.tx_bytes += skb->len;
	rcu_read_lock();
	list_for_each_entry_rcu(e, &hub, list) {
		if (e->nd == nd || !netif_running(e->nd) || !netif_carrier_ok(e->nd))
			continue;
		if (!all && !(e->nd->flags & IFF_PROMISC) &&
		    !ether_addr_equal(e->nd->dev_addr, dst))
			continue;
		c = skb_clone(skb, GFP_ATOMIC);
		if (c)
			dev_forward_skb(e->nd, c);
	}
	rcu_read_unlock();
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

/* ---- SR-IOV: what `ip link set eth0 vf N ...` reaches, with the rules that drivers have */

static struct swib_vf *vf_of(struct net_device *nd, int vf)
{
	struct swib_hca *h = swib_to_eth(nd)->hca;

	return vf >= 0 && vf < h->num_vfs ? &h->vf[vf] : NULL;
}

static struct swib_eth_vf *eth_vf_of(struct net_device *nd, int vf)
{
	struct swib_vf *v = vf_of(nd, vf);

	return v ? &v->eth[swib_to_eth(nd)->port] : NULL;
}

static int eth_set_vf_mac(struct net_device *nd, int vf, u8 *mac)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v || is_multicast_ether_addr(mac))
		return -EINVAL;
	ether_addr_copy(v->mac, mac);
	return 0;
}

static int eth_set_vf_vlan(struct net_device *nd, int vf, u16 vlan, u8 qos, __be16 proto)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v || vlan > 4094 || qos > 7)
		return -EINVAL;
	if (proto != htons(ETH_P_8021Q) && proto != htons(ETH_P_8021AD))
		return -EPROTONOSUPPORT;
	v->vlan = vlan;
	v->qos = qos;
	v->proto = proto;
	return 0;
}

/* 25 Gbit/s; what is below 10 Mbit/s is made 10, as some hardware has a least rate */
static int eth_set_vf_rate(struct net_device *nd, int vf, int min, int max)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v || min < 0 || max < 0 || max > 25000 || min > 25000 || (max && min > max))
		return -EINVAL;
	v->min_rate = min;
	v->max_rate = max && max < 10 ? 10 : max;
	return 0;
}

static int eth_set_vf_spoofchk(struct net_device *nd, int vf, bool on)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v)
		return -EINVAL;
	v->spoofchk = on;
	return 0;
}

static int eth_set_vf_trust(struct net_device *nd, int vf, bool on)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v)
		return -EINVAL;
	v->trusted = on;
	return 0;
}

static int eth_set_vf_link_state(struct net_device *nd, int vf, int state)
{
	struct swib_vf *v = vf_of(nd, vf);

	if (!v)
		return -EINVAL;
	v->link_state[swib_to_eth(nd)->port] = state;
	return 0;
}

static int eth_get_vf_config(struct net_device *nd, int vf, struct ifla_vf_info *ivf)
{
	struct swib_eth_vf *v = eth_vf_of(nd, vf);

	if (!v)
		return -EINVAL;
	ivf->vf = vf;
	ether_addr_copy(ivf->mac, v->mac);
	ivf->vlan = v->vlan;
	ivf->qos = v->qos;
	ivf->vlan_proto = v->vlan ? v->proto : htons(ETH_P_8021Q);
	ivf->min_tx_rate = v->min_rate;
	ivf->max_tx_rate = v->max_rate;
	ivf->spoofchk = v->spoofchk;
	ivf->trusted = v->trusted;
	ivf->linkstate = vf_of(nd, vf)->link_state[swib_to_eth(nd)->port];
	return 0;
}

static const struct net_device_ops eth_ops = {
	.ndo_open = eth_open,
	.ndo_stop = eth_stop,
	.ndo_start_xmit = eth_xmit,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_vf_mac = eth_set_vf_mac,
	.ndo_set_vf_vlan = eth_set_vf_vlan,
	.ndo_set_vf_rate = eth_set_vf_rate,
	.ndo_set_vf_spoofchk = eth_set_vf_spoofchk,
	.ndo_set_vf_trust = eth_set_vf_trust,
	.ndo_set_vf_link_state = eth_set_vf_link_state,
	.ndo_get_vf_config = eth_get_vf_config,
};

/* As the drivers that have a word of their own for ethtool -i. */
static void eth_drvinfo(struct net_device *nd, struct ethtool_drvinfo *info)
{
	struct swib_hca *h = swib_to_eth(nd)->hca;
	const char *word = "swib";

	if (h->driver == SWIB_DRV_MLX4)
		word = "mlx4_en";
	else if (h->pdev && h->parent && h->parent->driver)
		word = h->parent->driver->name;
	strscpy(info->driver, word, sizeof(info->driver));
}

/* Mode 802.3ad of a bond takes no slave without a speed. */
static int eth_get_link_ksettings(struct net_device *nd, struct ethtool_link_ksettings *k)
{
	k->base.speed = netif_carrier_ok(nd) ? SPEED_25000 : SPEED_UNKNOWN;
	k->base.duplex = netif_carrier_ok(nd) ? DUPLEX_FULL : DUPLEX_UNKNOWN;
	k->base.port = PORT_DA;
	return 0;
}

/* The rings of drivers: what they begin with, what they take and how they round it. */
struct rings {
	u32 rx, tx, rx_min, tx_min, max;
	bool power_of_two;
	u32 multiple;
};

static const struct rings rings_of[] = {
	/* MLX5E_PARAMS_MINIMUM_LOG_{R,S}Q_SIZE and MAXIMUM, mlx5e_ethtool_set_ringparam */
	[SWIB_DRV_MLX5] = { 1024, 1024, 2, 64, 8192, true, 1 },
	/* BNXT_MAX_RX_DESC_CNT and BNXT_MIN_TX_DESC_CNT, bnxt_set_ringparam */
	[SWIB_DRV_BNXT] = { 511, 511, 0, MAX_SKB_FRAGS + 2, 2047, false, 1 },
	/* ICE_MIN_NUM_DESC, ICE_MAX_NUM_DESC and ICE_REQ_DESC_MULTIPLE, ice_set_ringparam */
	[SWIB_DRV_ICE] = { 2048, 256, 64, 64, 8160, false, 32 },
	[SWIB_DRV_HFI1] = {},
};

static const struct rings *eth_rings(struct net_device *nd)
{
	return &rings_of[swib_to_eth(nd)->hca->driver];
}

static u32 rounded(const struct rings *r, u32 n)
{
	return r->power_of_two ? roundup_pow_of_two(n) : roundup(n, r->multiple);
}

static void eth_get_ringparam(struct net_device *nd, struct ethtool_ringparam *p,
			      struct kernel_ethtool_ringparam *k, struct netlink_ext_ack *ack)
{
	struct swib_eth *e = swib_to_eth(nd);

	p->rx_max_pending = eth_rings(nd)->max;
	p->tx_max_pending = eth_rings(nd)->max;
	p->rx_pending = e->rx_ring;
	p->tx_pending = e->tx_ring;
}

static int eth_set_ringparam(struct net_device *nd, struct ethtool_ringparam *p,
			     struct kernel_ethtool_ringparam *k, struct netlink_ext_ack *ack)
{
	const struct rings *r = eth_rings(nd);
	struct swib_eth *e = swib_to_eth(nd);

	if (!r->max)
		return -EOPNOTSUPP;
	if (p->rx_pending < r->rx_min || p->tx_pending < r->tx_min)
		return -EINVAL;
	e->rx_ring = rounded(r, p->rx_pending);
	e->tx_ring = rounded(r, p->tx_pending);
	return 0;
}

static const struct ethtool_ops eth_ethtool_ops = {
	.get_drvinfo = eth_drvinfo,
	.get_ringparam = eth_get_ringparam,
	.set_ringparam = eth_set_ringparam,
	.get_link_ksettings = eth_get_link_ksettings,
	.get_link = ethtool_op_get_link,
};

bool swib_eth_is(struct net_device *nd)
{
	return nd->netdev_ops == &eth_ops;
}

static void plug_in(struct work_struct *w)
{
	struct swib_eth *e = container_of(to_delayed_work(w), struct swib_eth, plug);

	swib_eth_carrier(&e->hca->node.port[e->port]);
}

/* The Ethernet link of a port with a reference, or NULL. */
struct net_device *swib_eth_netdev(struct swib_hca *h, int port)
{
	struct net_device *nd = NULL;
	struct swib_eth *e;

	rcu_read_lock();
	e = READ_ONCE(h->eth[port]);
	if (e) {
		nd = e->nd;
		dev_hold(nd);
	}
	rcu_read_unlock();
	return nd;
}

/* The same, of a bond the active slave. */
struct net_device *swib_eth_active(struct swib_hca *h, int port)
{
	struct swib_hca *p = READ_ONCE(h->lag_peer);

	if (h->lag && p && !READ_ONCE(h->active) && READ_ONCE(p->active))
		return swib_eth_netdev(p, port);
	return swib_eth_netdev(h, port);
}

/* The plug of an adapter's port, where that is an Ethernet port now. */
void swib_eth_carrier(struct swib_port *p)
{
	struct swib_hca *h = container_of(p->node, struct swib_hca, node);
	struct net_device *nd = swib_eth_netdev(h, p->num);

	if (!nd)
		return;
	if (p->unplugged || p->stuck)
		netif_carrier_off(nd);
	else
		netif_carrier_on(nd);
	dev_put(nd);
}

int swib_eth_add(struct swib_hca *h, int port)
{
	u8 mac[ETH_ALEN] = { 0x02, 0x53, 0x57, 0x49 + (h->idx >> 8), h->idx & 0xff, port };
	struct swib_eth *e;
	struct net_device *nd;
	int r;

	e = kzalloc(sizeof(*e), GFP_KERNEL);
	nd = alloc_etherdev(sizeof(e));
	if (!e || !nd) {
		r = -ENOMEM;
		goto free;
	}
	*(struct swib_eth **)netdev_priv(nd) = e;
	e->nd = nd;
	e->hca = h;
	e->port = port;
	INIT_DELAYED_WORK(&e->plug, plug_in);
	nd->netdev_ops = &eth_ops;
	nd->ethtool_ops = &eth_ethtool_ops;
	swib_dcb_init(nd);
	e->rx_ring = eth_rings(nd)->rx;
	e->tx_ring = eth_rings(nd)->tx;
	nd->max_mtu = 9978;
	nd->dev_port = port - 1;
	SET_NETDEV_DEV(nd, h->parent);
	eth_hw_addr_set(nd, mac);
	if (h->node.port[port].unplugged || h->node.port[port].stuck)
		netif_carrier_off(nd);
	swib_devlink_eth_early(h, port, nd);
	r = register_netdev(nd);
	if (r)
		goto free;
	swib_dscp_start(nd);
	swib_devlink_eth(h, port, nd);
	spin_lock(&hub_lock);
	list_add_tail_rcu(&e->list, &hub);
	spin_unlock(&hub_lock);
	WRITE_ONCE(h->eth[port], e);
	return 0;
free:
	if (nd)
		free_netdev(nd);
	kfree(e);
	return r;
}

void swib_eth_del(struct swib_hca *h, int port)
{
	struct swib_eth *e = h->eth[port];

	if (!e)
		return;
	WRITE_ONCE(h->eth[port], NULL);
	spin_lock(&hub_lock);
	list_del_rcu(&e->list);
	spin_unlock(&hub_lock);
	synchronize_rcu();
	cancel_delayed_work_sync(&e->plug);
	unregister_netdev(e->nd);
	cancel_delayed_work_sync(&e->plug);
	free_netdev(e->nd);
	kfree(e);
}
