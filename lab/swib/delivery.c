// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of adapters: from a posted send into the fabric, and from the fabric
 * into a receive queue.  One ordered work item moves all packets, so that the
 * order of events is the order of posting.
 */
#include "swib.h"

static DEFINE_SPINLOCK(txq_lock);
static LIST_HEAD(txq);

static void tx_work(struct work_struct *w);
static DECLARE_WORK(tx, tx_work);

/* Appends a packet to the queue; swib_kick() makes it move. */
void swib_post(struct swib_pkt *k)
{
	unsigned long flags;

	spin_lock_irqsave(&txq_lock, flags);
	list_add_tail(&k->list, &txq);
	spin_unlock_irqrestore(&txq_lock, flags);
}

void swib_kick(void)
{
	queue_work(swib_wq, &tx);
}

/* An empty MAD from src, to be filled in and posted. */
struct swib_pkt *swib_mad_packet(struct swib_port *src, u16 slid, u16 dlid)
{
	struct swib_pkt *k = kzalloc(sizeof(*k) + sizeof(struct ib_mad), GFP_KERNEL);

	if (!k)
		return NULL;
	k->src = src;
	k->slid = slid;
	k->dlid = dlid;
	k->len = sizeof(struct ib_mad);
	k->pkey = 0xffff;
	return k;
}

/* ---- the receiving end ------------------------------------------------ */

static bool pkey_ok(u16 a, u16 b)
{
	return (a & 0x7fff) && ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000);
}

static void multicast(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *qp;
	struct swib_mc *m;
	unsigned long i;

	xa_for_each(&swib_qps, i, qp) {
		if (qp->dev != p->node->dev || qp->port != p->num || qp == k->sqp ||
		    !swib_qp_receiving(qp) || qp->attr.qkey != k->qkey ||
		    !pkey_ok(p->pkey[qp->attr.pkey_index], k->pkey))
			continue;
		list_for_each_entry(m, &qp->mcs, list)
			if (m->lid == k->dlid && !memcmp(&m->gid, &k->grh.dgid, sizeof(m->gid))) {
				swib_receive(qp, p, k);
				break;
			}
	}
}

/* A packet that ends at adapter port p. */
static void deliver(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *qp;

	if (!p->node->dev)
		return;
	if (k->rc) {
		swib_rc_rx(p, k);
		return;
	}
	if (k->dqpn <= 1) {
		qp = k->dqpn ? p->qp1 : p->qp0;
		if (!p->node->silent && qp && swib_qp_receiving(qp) &&
		    swib_receive(qp, p, k) == -EAGAIN)
			p->discards++;
		return;
	}
	if (k->dqpn == SWIB_MC_QPN) {
		multicast(p, k);
		return;
	}
	qp = xa_load(&swib_qps, k->dqpn);
	if (!qp || qp->dev != p->node->dev || qp->port != p->num ||
	    qp->ibqp.qp_type != IB_QPT_UD || !swib_qp_receiving(qp)) {
		swib_dbg("hca%d/%d: no UD queue pair %x\n", p->node->idx, p->num, k->dqpn);
		return;
	}
	if (qp->attr.qkey != k->qkey || !pkey_ok(p->pkey[qp->attr.pkey_index], k->pkey)) {
		swib_dbg("hca%d/%d: Q_Key %x, P_Key %x refused\n", p->node->idx, p->num, k->qkey,
			 k->pkey);
		return;
	}
	swib_receive(qp, p, k);
}

/* A packet arrives at adapter port p. */
void swib_adapter_rx(struct swib_port *p, struct swib_pkt *k)
{
	if (k->dlid != SWIB_PERM && k->dlid < SWIB_MCLID && !swib_has_lid(p, k->dlid)) {
		swib_dbg("hca%d/%d: LID %x is not ours\n", p->node->idx, p->num, k->dlid);
		return;
	}
	deliver(p, k);
}

/* ---- the sending end -------------------------------------------------- */

static void ud_send(struct swib_pkt *k)
{
	struct swib_port *p = k->src;

	if (p->node->is_switch) {		/* a trap */
		swib_port_tx(p, k);
		return;
	}
	if (k->dqpn <= 1 && k->len >= sizeof(struct ib_mad_hdr) &&
	    ((struct ib_mad_hdr *)k->data)->method & IB_MGMT_METHOD_RESP)
		k->slow_ms = p->node->slow_ms;
	if (k->dlid != SWIB_PERM && k->dlid < SWIB_MCLID && swib_has_lid(p, k->dlid)) {
		deliver(p, k);
	} else {
		if (k->dlid >= SWIB_MCLID && k->dlid != SWIB_PERM)
			deliver(p, k);	/* other queue pairs of the group */
		swib_port_tx(p, k);
	}
	swib_send_done(k, IB_WC_SUCCESS);
}

static void tx_work(struct work_struct *w)
{
	struct swib_pkt *k;
	int n;

	mutex_lock(&swib_fab_mutex);
	for (n = 0; n < 256; n++) {
		spin_lock_irq(&txq_lock);
		k = list_first_entry_or_null(&txq, struct swib_pkt, list);
		if (k)
			list_del(&k->list);
		spin_unlock_irq(&txq_lock);
		if (!k)
			break;
		if (k->sqp && k->sqp->state == IB_QPS_ERR) {
			swib_send_done(k, IB_WC_WR_FLUSH_ERR);
		} else if (!k->rc) {
			ud_send(k);
		} else if (k->sqp && !list_empty(&k->sqp->stalled)) {
			list_add_tail(&k->list, &k->sqp->stalled);
			continue;
		} else if (k->sqp && swib_rc_send(k)) {
			continue;
		}
		kfree(k);
	}
	mutex_unlock(&swib_fab_mutex);
	if (k)
		swib_kick();
}

/* No packet knows the queue pair any more; swib_fab_mutex is held. */
void swib_forget_qp(struct swib_qp *qp)
{
	struct swib_pkt *k, *t;

	spin_lock_irq(&txq_lock);
	list_for_each_entry(k, &txq, list)
		if (k->sqp == qp)
			k->sqp = NULL;
	spin_unlock_irq(&txq_lock);
	qp->resend = false;
	qp->rnr_tries = 0;
	list_splice_init(&qp->unacked, &qp->stalled);
	list_for_each_entry_safe(k, t, &qp->stalled, list) {
		list_del(&k->list);
		kfree(k);
	}
}

/* No packet is at a port of the node any more; swib_fab_mutex is held. */
static int node_gone(struct notifier_block *nb, unsigned long event, void *n)
{
	spin_lock_irq(&txq_lock);
	swib_forget_packets(&txq, n);
	spin_unlock_irq(&txq_lock);
	swib_transit_forget(n);
	return NOTIFY_DONE;
}

static struct notifier_block node_nb = { .notifier_call = node_gone };

void swib_delivery_init(void)
{
	raw_notifier_chain_register(&swib_node_gone, &node_nb);
}

void swib_delivery_exit(void)
{
	raw_notifier_chain_unregister(&swib_node_gone, &node_nb);
	cancel_work_sync(&tx);
	swib_rc_exit();
	swib_transit_exit();
	spin_lock_irq(&txq_lock);
	swib_forget_packets(&txq, NULL);
	spin_unlock_irq(&txq_lock);
}
