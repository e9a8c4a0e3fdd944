// SPDX-License-Identifier: GPL-2.0
/*
 * RoCE LAG, as mlx5: two adapters that are the ports of one card have one RDMA
 * device while their Ethernet links are slaves of one bond.  Its interface is
 * the active slave; the devices of the two are gone meanwhile.
 */
#include <linux/rtnetlink.h>
#include "swib.h"

static void lag_work(struct work_struct *w);
static DECLARE_WORK(work, lag_work);

/* Whether the Ethernet links of two adapters are slaves of the same bond. */
static bool bonded(struct swib_hca *h, struct swib_hca *p)
{
	struct net_device *a = swib_eth_netdev(h, 1), *b = swib_eth_netdev(p, 1);
	struct net_device *up = NULL;

	rtnl_lock();
	if (a && b)
		up = netdev_master_upper_dev_get(a);
	if (up && (!netif_is_lag_master(up) || netdev_master_upper_dev_get(b) != up))
		up = NULL;
	rtnl_unlock();
	if (a)
		dev_put(a);
	if (b)
		dev_put(b);
	return up;
}

/* swib_cfg_mutex is held; h is the first of the two */
static void eval(struct swib_hca *h, struct swib_hca *p)
{
	bool want = h->parent && p->parent && bonded(h, p);

	if (want == h->lag)
		return;
	mutex_lock(&h->lock);
	mutex_lock_nested(&p->lock, 1);
	swib_hca_ib_down(p);
	swib_hca_ib_down(h);
	h->lag = want;
	p->lag = want;
	if (h->parent)
		swib_hca_ib_up(h);
	if (p->parent)
		swib_hca_ib_up(p);
	mutex_unlock(&p->lock);
	mutex_unlock(&h->lock);
}

static void lag_work(struct work_struct *w)
{
	int i;

	mutex_lock(&swib_cfg_mutex);
	for (i = 0; i < SWIB_MAX_HCA; i++) {
		struct swib_hca *h = swib_hcas[i];

		if (h && h->lag_peer && h->idx < h->lag_peer->idx)
			eval(h, h->lag_peer);
	}
	mutex_unlock(&swib_cfg_mutex);
}

/* A slave came, went, or became or ceased to be the active one; RTNL is held. */
static void slave_event(struct net_device *nd, unsigned long event, void *ptr)
{
	struct netdev_notifier_changelowerstate_info *info = ptr;
	struct netdev_lag_lower_state_info *state;

	if (!swib_eth_is(nd))
		return;
	if (event == NETDEV_CHANGELOWERSTATE) {
		state = info->lower_state_info;
		if (state)
			WRITE_ONCE(swib_to_eth(nd)->hca->active, state->tx_enabled);
	}
	schedule_work(&work);
}

/* An adapter goes: its peer is on its own again.  swib_cfg_mutex is held. */
static void forget(struct swib_hca *h)
{
	struct swib_hca *p = h->lag_peer;

	if (!p)
		return;
	WRITE_ONCE(h->lag_peer, NULL);
	WRITE_ONCE(p->lag_peer, NULL);
	if (!h->lag)
		return;
	mutex_lock(&h->lock);
	swib_hca_ib_down(h);
	h->lag = false;
	mutex_unlock(&h->lock);
	mutex_lock(&p->lock);
	swib_hca_ib_down(p);
	p->lag = false;
	if (p->parent)
		swib_hca_ib_up(p);
	mutex_unlock(&p->lock);
}

/* swib_cfg_mutex is held */
static int pair(struct swib_hca *h, struct swib_hca *p)
{
	if (h == p || h->lag_peer || p->lag_peer || h->pf || p->pf)
		return -EBUSY;
	h->lag_peer = p;
	p->lag_peer = h;
	schedule_work(&work);
	return 0;
}

/* lag N M: two adapters are the ports of one card that does RoCE LAG */
int swib_lag_command(char *a)
{
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	struct swib_node *m = swib_node_by_name(swib_word(&a));

	if (!n || n->is_switch || !m || m->is_switch)
		return -ENODEV;
	if (swib_too_much(a))
		return -EINVAL;
	return pair(swib_hcas[n->idx], swib_hcas[m->idx]);
}

static int netdev_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	if (event == NETDEV_CHANGEUPPER || event == NETDEV_CHANGELOWERSTATE)
		slave_event(netdev_notifier_info_to_dev(ptr), event, ptr);
	return NOTIFY_DONE;
}

static int hca_leaves(struct notifier_block *nb, unsigned long event, void *h)
{
	forget(h);
	return NOTIFY_DONE;
}

static struct notifier_block netdev_nb = { .notifier_call = netdev_event };
static struct notifier_block hca_nb = { .notifier_call = hca_leaves };

int swib_lag_init(void)
{
	int r = register_netdevice_notifier(&netdev_nb);

	if (!r)
		raw_notifier_chain_register(&swib_hca_leaves, &hca_nb);
	return r;
}

/* When no adapter is left. */
void swib_lag_exit(void)
{
	unregister_netdevice_notifier(&netdev_nb);
	cancel_work_sync(&work);
	raw_notifier_chain_unregister(&swib_hca_leaves, &hca_nb);
}
