// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel's InfiniBand core calls of queues: the verbs of kernel users.
 * device.c has what it calls of devices and ports.
 */
#include "swib.h"

/* ---- completion queues ------------------------------------------------ */

static int swib_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct swib_cq *cq = to_swib_cq(ibcq);
	unsigned long flags;
	int i;

	spin_lock_irqsave(&cq->lock, flags);
	for (i = 0; i < num && cq->tail != cq->head; i++)
		wc[i] = cq->ring[cq->tail++ % cq->size];
	spin_unlock_irqrestore(&cq->lock, flags);
	return i;
}

static int swib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags notify)
{
	struct swib_cq *cq = to_swib_cq(ibcq);
	unsigned long flags;
	int r = 0;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->notify != IB_CQ_NEXT_COMP)
		cq->notify = notify & IB_CQ_SOLICITED_MASK;
	if ((notify & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail)
		r = 1;
	spin_unlock_irqrestore(&cq->lock, flags);
	return r;
}

#ifdef SWIB_CQ_ATTR_BUNDLE
static int swib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *a,
			  struct uverbs_attr_bundle *u)
#else
static int swib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *a, struct ib_udata *u)
#endif
{
	struct swib_cq *cq = to_swib_cq(ibcq);

	if (u)
		return -EOPNOTSUPP;
	spin_lock_init(&cq->lock);
	INIT_WORK(&cq->work, swib_cq_work);
	cq->size = roundup_pow_of_two(a->cqe + 1);
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;
	ibcq->cqe = cq->size;
	return 0;
}

static int swib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *u)
{
	struct swib_cq *cq = to_swib_cq(ibcq);

	cancel_work_sync(&cq->work);
	kvfree(cq->ring);
	return 0;
}

/* ---- receive queues --------------------------------------------------- */

static int rq_init(struct swib_rq *q, u32 wr, u32 sge)
{
	u32 i;

	spin_lock_init(&q->lock);
	q->size = roundup_pow_of_two(max(wr, 1u));
	q->max_sge = max(sge, 1u);
	q->e = kvcalloc(q->size, sizeof(*q->e), GFP_KERNEL);
	q->sges = kvcalloc(q->size * q->max_sge, sizeof(*q->sges), GFP_KERNEL);
	if (!q->e || !q->sges) {
		kvfree(q->e);
		kvfree(q->sges);
		return -ENOMEM;
	}
	for (i = 0; i < q->size; i++)
		q->e[i].sge = &q->sges[i * q->max_sge];
	return 0;
}

static void rq_free(struct swib_rq *q)
{
	kvfree(q->e);
	kvfree(q->sges);
}

static int rq_post(struct swib_rq *q, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	unsigned long flags;
	int r = 0;

	spin_lock_irqsave(&q->lock, flags);
	for (; wr; wr = wr->next) {
		struct swib_rqe *e;

		if (q->head - q->tail >= q->size || wr->num_sge > q->max_sge) {
			r = -ENOMEM;
			*bad = wr;
			break;
		}
		e = &q->e[q->head++ % q->size];
		e->wr_id = wr->wr_id;
		e->nsge = wr->num_sge;
		memcpy(e->sge, wr->sg_list, wr->num_sge * sizeof(struct ib_sge));
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return r;
}

static int swib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
	struct swib_qp *qp = to_swib_qp(ibqp);
	int r;

	if (ibqp->srq) {
		*bad = wr;
		return -EINVAL;
	}
	r = rq_post(&qp->rq, wr, bad);
	/* what was there when the error came has been flushed; this may be later */
	if (READ_ONCE(qp->state) == IB_QPS_ERR)
		swib_rq_flush(qp);
	return r;
}

static int swib_post_srq_recv(struct ib_srq *s, const struct ib_recv_wr *wr,
			      const struct ib_recv_wr **bad)
{
	return rq_post(&to_swib_srq(s)->rq, wr, bad);
}

static int swib_create_srq(struct ib_srq *s, struct ib_srq_init_attr *a, struct ib_udata *u)
{
	if (u || a->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	return rq_init(&to_swib_srq(s)->rq, a->attr.max_wr, a->attr.max_sge);
}

static int swib_modify_srq(struct ib_srq *s, struct ib_srq_attr *a, enum ib_srq_attr_mask m,
			   struct ib_udata *u)
{
	to_swib_srq(s)->limit = a->srq_limit;
	return 0;
}

static int swib_query_srq(struct ib_srq *s, struct ib_srq_attr *a)
{
	a->max_wr = to_swib_srq(s)->rq.size;
	a->max_sge = to_swib_srq(s)->rq.max_sge;
	a->srq_limit = to_swib_srq(s)->limit;
	return 0;
}

static int swib_destroy_srq(struct ib_srq *s, struct ib_udata *u)
{
	rq_free(&to_swib_srq(s)->rq);
	return 0;
}

/* ---- sending ---------------------------------------------------------- */

static void fill_ud(struct swib_pkt *k, struct swib_qp *qp, const struct ib_send_wr *wr)
{
	const struct ib_ud_wr *u = ud_wr(wr);
	struct rdma_ah_attr *a = &to_swib_ah(u->ah)->attr;
	const struct ib_global_route *g = rdma_ah_read_grh(a);
	struct swib_port *p = k->src;
	unsigned int i = qp->attr.pkey_index;

	if (qp->ibqp.qp_type == IB_QPT_GSI)
		i = u->pkey_index;
	k->pkey = p->pkey[i % p->node->pkeys];
	k->dlid = rdma_ah_get_dlid(a);
	k->sl = rdma_ah_get_sl(a);
	k->slid = swib_lid(p) | (rdma_ah_get_path_bits(a) & ((1 << swib_lmc(p)) - 1));
	if (qp->ibqp.qp_type == IB_QPT_SMI && !k->slid)
		k->slid = SWIB_PERM;
	k->dqpn = u->remote_qpn;
	/* the highest bit says: use the Q_Key of the queue pair, 10.2.5 */
	k->qkey = u->remote_qkey & 0x80000000 ? qp->attr.qkey : u->remote_qkey;
	if (!(rdma_ah_get_ah_flags(a) & IB_AH_GRH))
		return;
	k->has_grh = true;
	k->grh.version_tclass_flow = cpu_to_be32(6u << 28 | g->traffic_class << 20 | g->flow_label);
	k->grh.paylen = cpu_to_be16(k->len + 24);	/* BTH, DETH and ICRC */
	k->grh.next_hdr = 0x1b;
	k->grh.hop_limit = g->hop_limit;
	k->grh.dgid = g->dgid;
	k->grh.sgid.global.subnet_prefix = p->pi.gid_prefix;
	k->grh.sgid.global.interface_id = p->guid[g->sgid_index % SWIB_GUIDS];
}

static int post_one(struct swib_qp *qp, const struct ib_send_wr *wr)
{
	struct swib_port *p = swib_dev_port(qp->dev, qp->port);
	struct swib_pkt *k;
	u32 len = 0;
	int i;

	if (qp->state < IB_QPS_RTS ||
	    (wr->opcode != IB_WR_SEND && wr->opcode != IB_WR_SEND_WITH_IMM))
		return -EINVAL;
	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	k = kmalloc(struct_size(k, data, len), GFP_ATOMIC | __GFP_NOWARN);
	if (!k)
		return -ENOMEM;
	memset(k, 0, sizeof(*k));
	for (i = 0; i < wr->num_sge; i++) {
		memcpy(k->data + k->len, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		k->len += wr->sg_list[i].length;
	}
	k->src = p;
	k->sqp = qp;
	k->wr_id = wr->wr_id;
	k->signaled = qp->sig_all || (wr->send_flags & IB_SEND_SIGNALED);
	k->solicited = wr->send_flags & IB_SEND_SOLICITED;
	k->sqpn = qp->ibqp.qp_num;
	if (wr->opcode == IB_WR_SEND_WITH_IMM) {
		k->has_imm = true;
		k->imm = wr->ex.imm_data;
	}
	if (qp->ibqp.qp_type == IB_QPT_RC) {
		k->rc = true;
		k->dlid = rdma_ah_get_dlid(&qp->attr.ah_attr);
		k->slid = swib_lid(p);
		k->dqpn = qp->attr.dest_qp_num;
		k->pkey = p->pkey[qp->attr.pkey_index];
	} else if (qp->state != IB_QPS_ERR) {
		fill_ud(k, qp, wr);
	}
	swib_post(k);
	return 0;
}

static int swib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad)
{
	int r = 0;

	for (; wr && !r; wr = wr->next) {
		r = post_one(to_swib_qp(ibqp), wr);
		if (r)
			*bad = wr;
	}
	swib_kick();
	return r;
}

/* ---- queue pairs ------------------------------------------------------ */

static u32 qp_next;

static int swib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *ia, struct ib_udata *u)
{
	struct swib_qp *qp = to_swib_qp(ibqp);
	struct swib_dev *dev = to_swib_dev(ibqp->device);
	struct swib_port *p;
	u32 id;
	int r;

	if (u || ia->create_flags)
		return -EOPNOTSUPP;
	if (ia->qp_type != IB_QPT_SMI && ia->qp_type != IB_QPT_GSI && ia->qp_type != IB_QPT_UD &&
	    ia->qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	qp->dev = dev;
	qp->init = *ia;
	qp->state = IB_QPS_RESET;
	qp->sig_all = ia->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->port = ia->port_num ?: 1;
	INIT_LIST_HEAD(&qp->mcs);
	INIT_LIST_HEAD(&qp->stalled);
	INIT_LIST_HEAD(&qp->unacked);
	r = rq_init(&qp->rq, ia->cap.max_recv_wr, ia->cap.max_recv_sge);
	if (r)
		return r;
	mutex_lock(&swib_fab_mutex);
	if (ia->qp_type == IB_QPT_SMI || ia->qp_type == IB_QPT_GSI) {
		p = swib_dev_port(dev, qp->port);
		ibqp->qp_num = ia->qp_type == IB_QPT_GSI;
		if (ia->qp_type == IB_QPT_SMI)
			p->qp0 = qp;
		else
			p->qp1 = qp;
	} else {
		r = xa_alloc_cyclic(&swib_qps, &id, qp, XA_LIMIT(0x48, 0xfffff), &qp_next,
				    GFP_KERNEL);
		if (r >= 0) {
			r = 0;
			ibqp->qp_num = id;
		}
	}
	mutex_unlock(&swib_fab_mutex);
	if (r)
		rq_free(&qp->rq);
	ia->cap.max_inline_data = 0;
	return r;
}

static int swib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *u)
{
	struct swib_qp *qp = to_swib_qp(ibqp);
	struct swib_port *p = swib_dev_port(qp->dev, qp->port);
	struct swib_mc *m, *t;

	mutex_lock(&swib_fab_mutex);
	if (p->qp0 == qp)
		p->qp0 = NULL;
	else if (p->qp1 == qp)
		p->qp1 = NULL;
	else
		xa_erase(&swib_qps, ibqp->qp_num);
	swib_forget_qp(qp);
	list_for_each_entry_safe(m, t, &qp->mcs, list)
		kfree(m);
	mutex_unlock(&swib_fab_mutex);
	rq_free(&qp->rq);
	return 0;
}

static void copy_attr(struct swib_qp *qp, const struct ib_qp_attr *a, int mask)
{
	if (mask & IB_QP_PKEY_INDEX)
		qp->attr.pkey_index = a->pkey_index % qp->dev->hca->node.pkeys;
	if (mask & IB_QP_PORT) {
		qp->attr.port_num = a->port_num;
		qp->port = a->port_num;
	}
	if (mask & IB_QP_QKEY)
		qp->attr.qkey = a->qkey;
	if (mask & IB_QP_AV)
		qp->attr.ah_attr = a->ah_attr;
	if (mask & IB_QP_DEST_QPN)
		qp->attr.dest_qp_num = a->dest_qp_num;
	if (mask & IB_QP_PATH_MTU)
		qp->attr.path_mtu = a->path_mtu;
	if (mask & IB_QP_RQ_PSN) {
		qp->attr.rq_psn = a->rq_psn;
		qp->rx_psn = a->rq_psn & 0xffffff;
	}
	if (mask & IB_QP_SQ_PSN) {
		qp->attr.sq_psn = a->sq_psn;
		qp->tx_psn = a->sq_psn & 0xffffff;
	}
	if (mask & IB_QP_ACCESS_FLAGS)
		qp->attr.qp_access_flags = a->qp_access_flags;
	if (mask & IB_QP_TIMEOUT)
		qp->attr.timeout = a->timeout;
	if (mask & IB_QP_RETRY_CNT)
		qp->attr.retry_cnt = a->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		qp->attr.rnr_retry = a->rnr_retry;
	if (mask & IB_QP_MIN_RNR_TIMER)
		qp->attr.min_rnr_timer = a->min_rnr_timer;
}

static int swib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_udata *u)
{
	struct swib_qp *qp = to_swib_qp(ibqp);
	enum ib_qp_state ns = mask & IB_QP_STATE ? a->qp_state : qp->state;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if ((mask & IB_QP_PORT) && (a->port_num < 1 || a->port_num > qp->dev->hca->node.nports))
		return -EINVAL;
	mutex_lock(&swib_fab_mutex);
	if (!ib_modify_qp_is_ok(qp->state, ns, ibqp->qp_type, mask)) {
		mutex_unlock(&swib_fab_mutex);
		return -EINVAL;
	}
	copy_attr(qp, a, mask);
	if (ns == IB_QPS_ERR) {
		swib_qp_error(qp);
	} else {
		if (ns == IB_QPS_RESET) {
			swib_forget_qp(qp);
			spin_lock_bh(&qp->rq.lock);
			qp->rq.tail = qp->rq.head;
			spin_unlock_bh(&qp->rq.lock);
		}
		qp->state = ns;
	}
	mutex_unlock(&swib_fab_mutex);
	return 0;
}

static int swib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask,
			 struct ib_qp_init_attr *ia)
{
	struct swib_qp *qp = to_swib_qp(ibqp);

	*a = qp->attr;
	a->qp_state = qp->state;
	a->cur_qp_state = qp->state;
	a->port_num = qp->port;
	a->cap = qp->init.cap;
	*ia = qp->init;
	return 0;
}

static int swib_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct swib_mc *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return -ENOMEM;
	m->gid = *gid;
	m->lid = lid;
	mutex_lock(&swib_fab_mutex);
	list_add_tail(&m->list, &to_swib_qp(ibqp)->mcs);
	mutex_unlock(&swib_fab_mutex);
	return 0;
}

static int swib_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct swib_mc *m;
	int r = -EINVAL;

	mutex_lock(&swib_fab_mutex);
	list_for_each_entry(m, &to_swib_qp(ibqp)->mcs, list)
		if (m->lid == lid && !memcmp(&m->gid, gid, sizeof(*gid))) {
			list_del(&m->list);
			kfree(m);
			r = 0;
			break;
		}
	mutex_unlock(&swib_fab_mutex);
	return r;
}

/* ---- small objects ---------------------------------------------------- */

static int swib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *a, struct ib_udata *u)
{
	to_swib_ah(ah)->attr = *a->ah_attr;
	return 0;
}

static int swib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	*a = to_swib_ah(ah)->attr;
	return 0;
}

static int swib_destroy_ah(struct ib_ah *ah, u32 flags)
{
	return 0;
}

static int swib_alloc_pd(struct ib_pd *pd, struct ib_udata *u)
{
	return u ? -EOPNOTSUPP : 0;
}

static int swib_dealloc_pd(struct ib_pd *pd, struct ib_udata *u)
{
	return 0;
}

static struct ib_mr *swib_get_dma_mr(struct ib_pd *pd, int acc)
{
	struct ib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	return mr ?: ERR_PTR(-ENOMEM);
}

#ifdef SWIB_MR_DMAH
static struct ib_mr *swib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int acc,
				      struct ib_dmah *dmah, struct ib_udata *u)
#else
static struct ib_mr *swib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int acc,
				      struct ib_udata *u)
#endif
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int swib_dereg_mr(struct ib_mr *mr, struct ib_udata *u)
{
	kfree(mr);
	return 0;
}

const struct ib_device_ops swib_queue_ops = {
	.alloc_pd = swib_alloc_pd,
	.attach_mcast = swib_attach_mcast,
	.create_ah = swib_create_ah,
	.create_cq = swib_create_cq,
	.create_qp = swib_create_qp,
	.create_srq = swib_create_srq,
	.dealloc_pd = swib_dealloc_pd,
	.dereg_mr = swib_dereg_mr,
	.destroy_ah = swib_destroy_ah,
	.destroy_cq = swib_destroy_cq,
	.destroy_qp = swib_destroy_qp,
	.destroy_srq = swib_destroy_srq,
	.detach_mcast = swib_detach_mcast,
	.get_dma_mr = swib_get_dma_mr,
	.modify_qp = swib_modify_qp,
	.modify_srq = swib_modify_srq,
	.poll_cq = swib_poll_cq,
	.post_recv = swib_post_recv,
	.post_send = swib_post_send,
	.post_srq_recv = swib_post_srq_recv,
	.query_ah = swib_query_ah,
	.query_qp = swib_query_qp,
	.query_srq = swib_query_srq,
	.reg_user_mr = swib_reg_user_mr,
	.req_notify_cq = swib_req_notify_cq,
	INIT_RDMA_OBJ_SIZE(ib_ah, swib_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, swib_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, swib_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, swib_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, swib_srq, ibsrq),
};
