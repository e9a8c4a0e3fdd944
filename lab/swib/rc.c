// SPDX-License-Identifier: GPL-2.0
/*
 * Connected queue pairs.  Within this kernel a message goes straight into the
 * receive queue of the other end; to other kernels it travels as a packet that is
 * acknowledged, or sent again.
 */
#include "swib.h"

#define SWIB_RNR_TRIES	1000	/* milliseconds that a sender waits for a receive buffer */
#define SWIB_RC_TIMEOUT	(2 * HZ)
#define SWIB_RC_TRIES	7

static void stall_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(unstall, stall_work);
static void rc_timer_work(struct work_struct *w);
static DECLARE_DELAYED_WORK(rc_timer, rc_timer_work);

static struct swib_qp *remote_qp(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *d = p ? xa_load(&swib_qps, k->dqpn) : NULL;

	if (!d || d->dev != p->node->dev || d->port != p->num || d->ibqp.qp_type != IB_QPT_RC ||
	    !swib_qp_receiving(d) || d->attr.dest_qp_num != k->sqp->ibqp.qp_num)
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
		swib_send_done(k, st);
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
			swib_send_done(k, IB_WC_SUCCESS);
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
void swib_rc_rx(struct swib_port *p, struct swib_pkt *k)
{
	struct swib_qp *d = xa_load(&swib_qps, k->dqpn);
	int r;

	if (!d || d->dev != p->node->dev || d->port != p->num || d->ibqp.qp_type != IB_QPT_RC ||
	    d->attr.dest_qp_num != k->sqpn || !swib_qp_receiving(d)) {
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
	r = swib_receive(d, p, k);
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

/* ---- both ------------------------------------------------------------- */

/* true: k stays in a list of its queue pair */
bool swib_rc_send(struct swib_pkt *k)
{
	struct swib_qp *s = k->sqp, *d;
	struct swib_port *dp;
	bool remote = false;
	int r;

	dp = swib_route(k->src, k->dlid, &remote);
	if (remote) {
		rc_send_remote(k);
		return true;
	}
	d = remote_qp(dp, k);
	if (!d) {
		swib_send_done(k, IB_WC_RETRY_EXC_ERR);
		swib_qp_error(s);
		return false;
	}
	r = swib_receive(d, dp, k);
	if (r == -EAGAIN && s->rnr_tries < SWIB_RNR_TRIES) {
		list_add(&k->list, &s->stalled);
		queue_delayed_work(swib_wq, &unstall, msecs_to_jiffies(1));
		return true;
	}
	s->rnr_tries = 0;
	if (r) {
		swib_send_done(k, r == -EAGAIN ? IB_WC_RNR_RETRY_EXC_ERR : IB_WC_REM_INV_REQ_ERR);
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
	swib_send_done(k, IB_WC_SUCCESS);
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
			if (!swib_rc_send(k))
				kfree(k);
			else if (list_is_first(&k->list, &qp->stalled))
				break;
		}
	}
	mutex_unlock(&swib_fab_mutex);
}

void swib_rc_exit(void)
{
	cancel_delayed_work_sync(&unstall);
	cancel_delayed_work_sync(&rc_timer);
}
