// SPDX-License-Identifier: GPL-2.0
/*
 * Packets between ports: over cables, at once or later, and the port that a LID
 * leads to.
 */
#include "swib.h"

#define SWIB_MAX_DEPTH	8	/* hops in one go; the stack is small */

static LIST_HEAD(delayq);		/* by time; swib_fab_mutex */
static unsigned int depth;		/* of swib_port_tx(); swib_fab_mutex */

static void delay_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(delayed, delay_work);

/* A copy that nobody waits for. */
static struct swib_pkt *clone(const struct swib_pkt *k)
{
	struct swib_pkt *c = kmemdup(k, sizeof(*k) + k->len, GFP_KERNEL);

	if (c) {
		c->sqp = NULL;
		INIT_LIST_HEAD(&c->list);
	}
	return c;
}

/* Sends a copy of k out of port from later, an answer of a slow node later still. */
void swib_delay(struct swib_port *from, struct swib_pkt *k, unsigned int ms)
{
	unsigned long wait = msecs_to_jiffies(ms) + msecs_to_jiffies(k->slow_ms);
	struct swib_pkt *c = clone(k), *at;
	struct list_head *pos = &delayq;

	if (!c)
		return;
	c->src = from;
	c->slow_ms = 0;
	c->due = jiffies + wait + !!wait;	/* a part of this jiffy is over */
	list_for_each_entry_reverse(at, &delayq, list)
		if (!time_after(at->due, c->due)) {
			pos = &at->list;
			break;
		}
	list_add(&c->list, pos);
	at = list_first_entry(&delayq, struct swib_pkt, list);
	mod_delayed_work(swib_wq, &delayed, max_t(long, at->due - jiffies, 0));
}

/* Over the cable at port p. */
static void cross(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_port *q = p->peer;

	if ((!q && !p->wire) || swib_phys(p) != SWIB_PHYS_LINKUP ||
	    (k->dqpn && swib_state(p) != IB_PORT_ACTIVE)) {
		p->discards++;
		return;
	}
	if (k->dqpn) {
		p->tx_pkts++;
		p->tx_bytes += k->len;
		if (k->dqpn == SWIB_MC_QPN)
			p->mtx++;
	}
	if (!q) {
		p->wire->ops->tx(p->wire, k);
		return;
	}
	if (k->dqpn) {
		q->rx_pkts++;
		q->rx_bytes += k->len;
		if (k->dqpn == SWIB_MC_QPN)
			q->mrx++;
	}
	q->node->ops->rx(q, k);
}

static void delay_work(struct work_struct *w)
{
	struct swib_pkt *k;
	long left;

	mutex_lock(&swib_fab_mutex);
	while ((k = list_first_entry_or_null(&delayq, struct swib_pkt, list))) {
		left = k->due - jiffies;
		if (left > 0) {
			queue_delayed_work(swib_wq, &delayed, left);
			break;
		}
		list_del(&k->list);
		cross(k->src, k);
		kfree(k);
	}
	mutex_unlock(&swib_fab_mutex);
}

/* Sends k out of port p.  The packet stays the caller's. */
void swib_port_tx(struct swib_port *p, struct swib_pkt *k)
{
	if (k->hops >= SWIB_MAX_HOPS) {
		p->discards++;
		return;
	}
	k->hops++;
	if (!swib_fault_hook || !swib_fault_hook(p, k)) {
		if (k->slow_ms || depth >= SWIB_MAX_DEPTH) {
			swib_delay(p, k, 0);
		} else {
			depth++;
			cross(p, k);
			depth--;
		}
	}
	k->slow_ms = 0;
	k->hops--;
}

/* A packet arrives from another kernel; the caller frees it. */
void swib_port_rx_remote(struct swib_port *p, struct swib_pkt *k)
{
	if (k->dqpn && swib_state(p) != IB_PORT_ACTIVE)
		return;
	if (k->dqpn) {
		p->rx_pkts++;
		p->rx_bytes += k->len;
		if (k->dqpn == SWIB_MC_QPN)
			p->mrx++;
	}
	p->node->ops->rx(p, k);
}

/*
 * The adapter port that a unicast LID leads to, for connected queue pairs.  NULL
 * and *remote: the way leaves this kernel.
 */
struct swib_port *swib_route(struct swib_port *p, u16 dlid, bool *remote)
{
	struct swib_port *q = p;
	int hop;
	u8 out;

	if (swib_state(p) != IB_PORT_ACTIVE)
		return NULL;
	for (hop = 0; hop < SWIB_MAX_HOPS; hop++) {
		if (!q->node->is_switch && swib_has_lid(q, dlid))
			return q;
		if (q->node->is_switch) {
			if (dlid > q->node->lft_top || dlid >= SWIB_LFT)
				return NULL;
			out = q->node->lft[dlid];
			if (out < 1 || out > q->node->nports)
				return NULL;
			q = &q->node->port[out];
		} else if (q != p) {
			return NULL;
		}
		if (swib_state(q) != IB_PORT_ACTIVE)
			return NULL;
		*remote = q->wire;
		if (!q->peer)
			return NULL;
		q = q->peer;
	}
	return NULL;
}

/* Ends the packets of a list that come from a port of n, or all of them. */
void swib_forget_packets(struct list_head *q, struct swib_node *n)
{
	struct swib_pkt *k, *t;

	list_for_each_entry_safe(k, t, q, list)
		if (!n || k->src->node == n) {
			list_del(&k->list);
			kfree(k);
		}
}

/* No delayed packet is at a port of the node any more; swib_fab_mutex is held. */
void swib_transit_forget(struct swib_node *n)
{
	swib_forget_packets(&delayq, n);
}

void swib_transit_exit(void)
{
	cancel_delayed_work_sync(&delayed);
	mutex_lock(&swib_fab_mutex);
	swib_transit_forget(NULL);
	mutex_unlock(&swib_fab_mutex);
}
