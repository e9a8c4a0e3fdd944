// SPDX-License-Identifier: GPL-2.0
/*
 * The ends of a message: receive buffers, completions, and what is flushed when a
 * queue pair goes into the error state.
 */
#include "swib.h"

DEFINE_XARRAY_ALLOC(swib_qps);

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
int swib_receive(struct swib_qp *qp, struct swib_port *p, struct swib_pkt *k)
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

/* ---- the sending end -------------------------------------------------- */

void swib_send_done(struct swib_pkt *k, enum ib_wc_status st)
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
		swib_send_done(k, IB_WC_WR_FLUSH_ERR);
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
