// SPDX-License-Identifier: GPL-2.0
/*
 * Packets on their way: from a posted send through the fabric into a receive
 * queue.  One ordered work item moves all packets, so that the order of events
 * is the order of posting.
 */
#include <linux/delay.h>
#include "swib.h"

#define SWIB_RNR_TRIES	1000	/* milliseconds that a sender waits for a receive buffer */
#define SWIB_RC_TIMEOUT	(2 * HZ)
#define SWIB_RC_TRIES	7
#define SWIB_MAX_DEPTH	8	/* hops in one go; the stack is small */

DEFINE_SPINLOCK(swib_txq_lock);
DEFINE_XARRAY_ALLOC(swib_qps);

static LIST_HEAD(txq);
static LIST_HEAD(delayq);		/* by time; swib_fab_mutex */
static unsigned int depth;		/* of swib_port_tx(); swib_fab_mutex */

static void tx_work(struct work_struct *w);
static DECLARE_WORK(tx, tx_work);
static void delay_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(delayed, delay_work);
static void stall_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(unstall, stall_work);
static void rc_timer_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(rc_timer, rc_timer_work);
static void rc_rx(struct swib_port *p, struct swib_pkt *k);

/* Appends a packet to the queue; swib_kick() makes it move. */
void swib_post(struct swib_pkt *k)
{
	unsigned long flags;

	spin_lock_irqsave(&swib_txq_lock, flags);
	list_add_tail(&k->list, &txq);
	spin_unlock_irqrestore(&swib_txq_lock, flags);
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

/* A copy that nobody waits for. */
struct swib_pkt *swib_clone(const struct swib_pkt *k)
{
	struct swib_pkt *c = kmemdup(k, sizeof(*k) + k->len, GFP_KERNEL);

	if (c) {
		c->sqp = NULL;
		INIT_LIST_HEAD(&c->list);
	}
	return c;
}

/* ---- completion queues ------------------------------------------------ */

void swib_cq_work(struct work_struct *w)
{
	struct swib_cq *cq = container_of(w, struct swib_cq, work);

	local_bh_disable();
	cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
	local_bh_enable();
}

void swib_cq_add(struct ib_cq *ibcq, struct ib_wc *wc, bool solicited)
{
	struct swib_cq *cq = to_swib_cq(ibcq);
	unsigned long flags;
	bool fire = false;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->head - cq->tail >= cq->size) {
		spin_unlock_irqrestore(&cq->lock, flags);
		pr_warn_ratelimited("swib: completion queue overrun\n");
		return;
	}
	cq->ring[cq->head++ % cq->size] = *wc;
	if (cq->notify == IB_CQ_NEXT_COMP ||
	    (cq->notify == IB_CQ_SOLICITED && (solicited || wc->status != IB_WC_SUCCESS))) {
		cq->notify = 0;
		fire = true;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	if (fire && cq->ibcq.comp_handler)
		queue_work(swib_cqwq, &cq->work);
}

/* ---- the receiving end ------------------------------------------------ */

static u32 scatter(struct ib_sge *sg, int n, u32 off, const void *src, u32 len)
{
	u32 done = 0;
	int i;

	for (i = 0; i < n && len; i++) {
		u32 l;

		if (off >= sg[i].length) {
			off -= sg[i].length;
			continue;
		}
		l = min(sg[i].length - off, len);
		memcpy((void *)(uintptr_t)sg[i].addr + off, src + done, l);
		off = 0;
		done += l;
		len -= l;
	}
	return done;
}

/* 0: delivered, -EAGAIN: no receive buffer, -EMSGSIZE: too small */
static int receive(struct swib_qp *qp, struct swib_port *p, struct swib_pkt *k)
{
	struct swib_rq *q = qp->ibqp.srq ? &to_swib_srq(qp->ibqp.srq)->rq : &qp->rq;
	u32 hdr = k->rc ? 0 : sizeof(struct ib_grh);
	struct ib_wc wc = {};
	struct swib_rqe *e;
	unsigned long flags;
	int r = 0, i;

	spin_lock_irqsave(&q->lock, flags);
	if (q->head == q->tail) {
		spin_unlock_irqrestore(&q->lock, flags);
		return -EAGAIN;
	}
	e = &q->e[q->tail % q->size];
	if (hdr && k->has_grh)
		scatter(e->sge, e->nsge, 0, &k->grh, sizeof(k->grh));
	if (scatter(e->sge, e->nsge, hdr, k->data, k->len) != k->len)
		r = -EMSGSIZE;
	wc.wr_id = e->wr_id;
	q->tail++;
	spin_unlock_irqrestore(&q->lock, flags);

	wc.status = r ? IB_WC_LOC_LEN_ERR : IB_WC_SUCCESS;
	wc.opcode = IB_WC_RECV;
	wc.byte_len = hdr + k->len;
	wc.qp = &qp->ibqp;
	wc.src_qp = k->sqpn;
	wc.slid = k->slid;
	wc.sl = k->sl;
	wc.port_num = p->num;
	wc.dlid_path_bits = k->dlid & ((1 << swib_lmc(p)) - 1);
	if (k->has_grh && hdr)
		wc.wc_flags |= IB_WC_GRH;
	if (k->has_imm) {
		wc.wc_flags |= IB_WC_WITH_IMM;
		wc.ex.imm_data = k->imm;
	}
	for (i = 0; i < p->node->pkeys; i++)
		if (((p->pkey[i] ^ k->pkey) & 0x7fff) == 0) {
			wc.pkey_index = i;
			break;
		}
	swib_cq_add(qp->ibqp.recv_cq, &wc, k->solicited);
	return r;
}

static bool pkey_ok(u16 a, u16 b)
{
	return (a & 0x7fff) && ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000);
}

static bool receiving(const struct swib_qp *qp)
{
	return qp->state >= IB_QPS_RTR && qp->state != IB_QPS_ERR;
}

static void multicast(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *qp;
	struct swib_mc *m;
	unsigned long i;

	xa_for_each(&swib_qps, i, qp) {
		if (qp->dev != p->node->dev || qp->port != p->num || qp == k->sqp ||
		    !receiving(qp) || qp->attr.qkey != k->qkey ||
		    !pkey_ok(p->pkey[qp->attr.pkey_index], k->pkey))
			continue;
		list_for_each_entry(m, &qp->mcs, list)
			if (m->lid == k->dlid && !memcmp(&m->gid, &k->grh.dgid, sizeof(m->gid))) {
				receive(qp, p, k);
				break;
			}
	}
}

/* A packet that ends at adapter port p. */
static void adapter_rx(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *qp;

	if (!p->node->dev)
		return;
	if (k->rc) {
		rc_rx(p, k);
		return;
	}
	if (k->dqpn <= 1) {
		qp = k->dqpn ? p->qp1 : p->qp0;
		if (!p->node->silent && qp && receiving(qp) && receive(qp, p, k) == -EAGAIN)
			p->discards++;
		return;
	}
	if (k->dqpn == SWIB_MC_QPN) {
		multicast(p, k);
		return;
	}
	qp = xa_load(&swib_qps, k->dqpn);
	if (!qp || qp->dev != p->node->dev || qp->port != p->num ||
	    qp->ibqp.qp_type != IB_QPT_UD || !receiving(qp)) {
		swib_dbg("hca%d/%d: no UD queue pair %x\n", p->node->idx, p->num, k->dqpn);
		return;
	}
	if (qp->attr.qkey != k->qkey || !pkey_ok(p->pkey[qp->attr.pkey_index], k->pkey)) {
		swib_dbg("hca%d/%d: Q_Key %x, P_Key %x refused\n", p->node->idx, p->num, k->qkey,
			 k->pkey);
		return;
	}
	receive(qp, p, k);
}

static void port_rx(struct swib_port *p, struct swib_pkt *k)
{
	if (p->node->ops->rx) {
		p->node->ops->rx(p, k);
		return;
	}
	if (k->dlid != SWIB_PERM && k->dlid < SWIB_MCLID && !swib_has_lid(p, k->dlid)) {
		swib_dbg("hca%d/%d: LID %x is not ours\n", p->node->idx, p->num, k->dlid);
		return;
	}
	adapter_rx(p, k);
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
	port_rx(p, k);
}

/* ---- the way ---------------------------------------------------------- */

/* Sends a copy of k out of port from later, an answer of a slow node later still. */
void swib_delay(struct swib_port *from, struct swib_pkt *k, unsigned int ms)
{
	unsigned long wait = msecs_to_jiffies(ms) + msecs_to_jiffies(k->slow_ms);
	struct swib_pkt *c = swib_clone(k), *at;
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
	port_rx(q, k);
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

/*
 * The adapter port that a unicast LID leads to, for connected queue pairs.  NULL
 * and *remote: the way leaves this kernel.
 */
static struct swib_port *route(struct swib_port *p, u16 dlid, bool *remote)
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

/* ---- the sending end -------------------------------------------------- */

static void send_done(struct swib_pkt *k, enum ib_wc_status st)
{
	struct ib_wc wc = {};

	if (!k->sqp || (!k->signaled && st == IB_WC_SUCCESS))
		return;
	wc.wr_id = k->wr_id;
	wc.status = st;
	wc.opcode = IB_WC_SEND;
	wc.qp = &k->sqp->ibqp;
	wc.byte_len = k->len;
	swib_cq_add(k->sqp->ibqp.send_cq, &wc, false);
}

static void flush_list(struct list_head *l)
{
	struct swib_pkt *k, *t;

	list_for_each_entry_safe(k, t, l, list) {
		list_del(&k->list);
		send_done(k, IB_WC_WR_FLUSH_ERR);
		kfree(k);
	}
}

/* Hands back the receive buffers of a queue pair in the error state. */
void swib_rq_flush(struct swib_qp *qp)
{
	struct swib_rq *q = &qp->rq;
	struct ib_wc wc = {
		.status = IB_WC_WR_FLUSH_ERR,
		.opcode = IB_WC_RECV,
		.qp = &qp->ibqp,
	};
	unsigned long flags;
	bool more;

	for (;;) {
		spin_lock_irqsave(&q->lock, flags);
		more = q->head != q->tail;
		if (more)
			wc.wr_id = q->e[q->tail++ % q->size].wr_id;
		spin_unlock_irqrestore(&q->lock, flags);
		if (!more)
			return;
		swib_cq_add(qp->ibqp.recv_cq, &wc, true);
	}
}

void swib_qp_error(struct swib_qp *qp)
{
	struct ib_event ev = {};

	if (qp->state == IB_QPS_ERR)
		return;
	WRITE_ONCE(qp->state, IB_QPS_ERR);
	flush_list(&qp->unacked);
	flush_list(&qp->stalled);
	if (qp->ibqp.srq) {
		ev.device = qp->ibqp.device;
		ev.event = IB_EVENT_QP_LAST_WQE_REACHED;
		ev.element.qp = &qp->ibqp;
		if (qp->ibqp.event_handler)
			qp->ibqp.event_handler(&ev, qp->ibqp.qp_context);
		return;
	}
	swib_rq_flush(qp);
}

static struct swib_qp *remote_qp(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *d = p ? xa_load(&swib_qps, k->dqpn) : NULL;

	if (!d || d->dev != p->node->dev || d->port != p->num || d->ibqp.qp_type != IB_QPT_RC ||
	    !receiving(d) || d->attr.dest_qp_num != k->sqp->ibqp.qp_num)
		return NULL;
	return d;
}

/* ---- connections to other kernels ------------------------------------- */

enum { ACK_OK, ACK_RNR, ACK_ERROR };

static void rc_transmit(struct swib_pkt *k)
{
	k->hops = 0;
	k->slow_ms = 0;
	swib_port_tx(k->src, k);
}

/* k stays in its queue pair's list until it is acknowledged */
static void rc_send_remote(struct swib_pkt *k)
{
	struct swib_qp *s = k->sqp;

	if (list_empty(&s->unacked)) {
		s->rc_since = jiffies;
		s->rc_tries = 0;
	}
	k->psn = s->tx_psn;
	s->tx_psn = (s->tx_psn + 1) & 0xffffff;
	list_add_tail(&k->list, &s->unacked);
	rc_transmit(k);
	queue_delayed_work(swib_wq, &rc_timer, SWIB_RC_TIMEOUT / 4);
}

static void rc_resend(struct swib_qp *qp)
{
	struct swib_pkt *k;

	qp->resend = false;
	list_for_each_entry(k, &qp->unacked, list)
		rc_transmit(k);
}

static void rc_fail(struct swib_qp *qp, enum ib_wc_status st)
{
	struct swib_pkt *k = list_first_entry_or_null(&qp->unacked, struct swib_pkt, list);

	if (k) {
		list_del(&k->list);
		send_done(k, st);
		kfree(k);
	}
	swib_qp_error(qp);
}

static void rc_timer_work(struct work_struct *w)
{
	struct swib_qp *qp;
	unsigned long i;
	bool more = false;

	mutex_lock(&swib_fab_mutex);
	xa_for_each(&swib_qps, i, qp) {
		if (list_empty(&qp->unacked))
			continue;
		more = true;
		if (time_before(jiffies, qp->rc_since + SWIB_RC_TIMEOUT))
			continue;
		qp->rc_since = jiffies;
		if (++qp->rc_tries > SWIB_RC_TRIES)
			rc_fail(qp, IB_WC_RETRY_EXC_ERR);
		else
			rc_resend(qp);
	}
	mutex_unlock(&swib_fab_mutex);
	if (more)
		queue_delayed_work(swib_wq, &rc_timer, SWIB_RC_TIMEOUT / 4);
}

static void rc_ack(struct swib_port *p, struct swib_pkt *k, u32 psn, u8 status)
{
	struct swib_pkt *a = kzalloc(sizeof(*a), GFP_KERNEL);

	if (!a)
		return;
	a->src = p;
	a->rc = true;
	a->ack = true;
	a->ack_status = status;
	a->psn = psn & 0xffffff;
	a->slid = swib_lid(p);
	a->dlid = k->slid;
	a->dqpn = k->sqpn;
	a->sqpn = k->dqpn;
	a->pkey = k->pkey;
	swib_port_tx(p, a);
	kfree(a);
}

/* The sign of a - b in the circle of sequence numbers. */
static int psn_cmp(u32 a, u32 b)
{
	return (s32)((a - b) << 8);
}

static void rc_acked(struct swib_qp *s, struct swib_pkt *a)
{
	struct swib_pkt *k, *t;

	if (s->state == IB_QPS_ERR)
		return;
	switch (a->ack_status) {
	case ACK_OK:
		list_for_each_entry_safe(k, t, &s->unacked, list) {
			if (psn_cmp(k->psn, a->psn) > 0)
				break;
			list_del(&k->list);
			k->src->rc_msgs++;
			k->src->rc_max = max_t(u64, k->src->rc_max, k->len);
			send_done(k, IB_WC_SUCCESS);
			kfree(k);
		}
		s->rc_since = jiffies;
		s->rc_tries = 0;
		s->rnr_tries = 0;
		break;
	case ACK_RNR:
		s->rc_since = jiffies;
		if (++s->rnr_tries > SWIB_RNR_TRIES) {
			rc_fail(s, IB_WC_RNR_RETRY_EXC_ERR);
		} else {
			s->resend = true;
			queue_delayed_work(swib_wq, &unstall, msecs_to_jiffies(2));
		}
		break;
	default:
		rc_fail(s, IB_WC_REM_INV_REQ_ERR);
	}
}

/* A packet of a connection arrives from another kernel. */
static void rc_rx(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *d = xa_load(&swib_qps, k->dqpn);
	int r;

	if (!d || d->dev != p->node->dev || d->port != p->num || d->ibqp.qp_type != IB_QPT_RC ||
	    d->attr.dest_qp_num != k->sqpn || !receiving(d)) {
		if (!k->ack)
			rc_ack(p, k, k->psn, ACK_ERROR);
		return;
	}
	if (k->ack) {
		rc_acked(d, k);
		return;
	}
	r = psn_cmp(k->psn, d->rx_psn);
	if (r > 0)
		return;				/* one before it is lost */
	if (r < 0) {
		rc_ack(p, k, d->rx_psn - 1, ACK_OK);
		return;
	}
	r = receive(d, p, k);
	if (r == -EAGAIN) {
		rc_ack(p, k, k->psn, ACK_RNR);
		return;
	}
	if (r) {
		rc_ack(p, k, k->psn, ACK_ERROR);
		swib_qp_error(d);
		return;
	}
	d->rx_psn = (d->rx_psn + 1) & 0xffffff;
	rc_ack(p, k, k->psn, ACK_OK);
}

/* true: k stays in a list of its queue pair */
static bool rc_send(struct swib_pkt *k)
{
	struct swib_qp *s = k->sqp, *d;
	struct swib_port *dp;
	bool remote = false;
	int r;

	dp = route(k->src, k->dlid, &remote);
	if (remote) {
		rc_send_remote(k);
		return true;
	}
	d = remote_qp(dp, k);
	if (!d) {
		send_done(k, IB_WC_RETRY_EXC_ERR);
		swib_qp_error(s);
		return false;
	}
	r = receive(d, dp, k);
	if (r == -EAGAIN && s->rnr_tries < SWIB_RNR_TRIES) {
		list_add(&k->list, &s->stalled);
		queue_delayed_work(swib_wq, &unstall, msecs_to_jiffies(1));
		return true;
	}
	s->rnr_tries = 0;
	if (r) {
		send_done(k, r == -EAGAIN ? IB_WC_RNR_RETRY_EXC_ERR : IB_WC_REM_INV_REQ_ERR);
		swib_qp_error(s);
		if (r == -EMSGSIZE)
			swib_qp_error(d);
		return false;
	}
	k->src->tx_pkts++;
	k->src->tx_bytes += k->len;
	k->src->rc_msgs++;
	k->src->rc_max = max_t(u64, k->src->rc_max, k->len);
	dp->rx_pkts++;
	dp->rx_bytes += k->len;
	send_done(k, IB_WC_SUCCESS);
	return false;
}

/* Tries the packets again whose receivers had no buffer. */
static void stall_work(struct work_struct *w)
{
	struct swib_pkt *k;
	struct swib_qp *qp;
	unsigned long i;

	mutex_lock(&swib_fab_mutex);
	xa_for_each(&swib_qps, i, qp) {
		if (qp->resend)
			rc_resend(qp);
		if (list_empty(&qp->stalled))
			continue;
		qp->rnr_tries++;
		while ((k = list_first_entry_or_null(&qp->stalled, struct swib_pkt, list))) {
			list_del(&k->list);
			if (!rc_send(k))
				kfree(k);
			else if (list_is_first(&k->list, &qp->stalled))
				break;
		}
	}
	mutex_unlock(&swib_fab_mutex);
}

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
		adapter_rx(p, k);
	} else {
		if (k->dlid >= SWIB_MCLID && k->dlid != SWIB_PERM)
			adapter_rx(p, k);	/* other queue pairs of the group */
		swib_port_tx(p, k);
	}
	send_done(k, IB_WC_SUCCESS);
}

static void tx_work(struct work_struct *w)
{
	struct swib_pkt *k;
	int n;

	mutex_lock(&swib_fab_mutex);
	for (n = 0; n < 256; n++) {
		spin_lock_irq(&swib_txq_lock);
		k = list_first_entry_or_null(&txq, struct swib_pkt, list);
		if (k)
			list_del(&k->list);
		spin_unlock_irq(&swib_txq_lock);
		if (!k)
			break;
		if (k->sqp && k->sqp->state == IB_QPS_ERR) {
			send_done(k, IB_WC_WR_FLUSH_ERR);
		} else if (!k->rc) {
			ud_send(k);
		} else if (k->sqp && !list_empty(&k->sqp->stalled)) {
			list_add_tail(&k->list, &k->sqp->stalled);
			continue;
		} else if (k->sqp && rc_send(k)) {
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

	spin_lock_irq(&swib_txq_lock);
	list_for_each_entry(k, &txq, list)
		if (k->sqp == qp)
			k->sqp = NULL;
	spin_unlock_irq(&swib_txq_lock);
	qp->resend = false;
	qp->rnr_tries = 0;
	list_splice_init(&qp->unacked, &qp->stalled);
	list_for_each_entry_safe(k, t, &qp->stalled, list) {
		list_del(&k->list);
		kfree(k);
	}
}

static void forget(struct list_head *q, struct swib_node *n)
{
	struct swib_pkt *k, *t;

	list_for_each_entry_safe(k, t, q, list)
		if (!n || k->src->node == n) {
			list_del(&k->list);
			kfree(k);
		}
}

/* No packet is at a port of the node any more; swib_fab_mutex is held. */
static int node_gone(struct notifier_block *nb, unsigned long event, void *n)
{
	spin_lock_irq(&swib_txq_lock);
	forget(&txq, n);
	spin_unlock_irq(&swib_txq_lock);
	forget(&delayq, n);
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
	cancel_delayed_work_sync(&unstall);
	cancel_delayed_work_sync(&rc_timer);
	cancel_delayed_work_sync(&delayed);
	mutex_lock(&swib_fab_mutex);
	spin_lock_irq(&swib_txq_lock);
	forget(&txq, NULL);
	spin_unlock_irq(&swib_txq_lock);
	forget(&delayq, NULL);
	mutex_unlock(&swib_fab_mutex);
}
