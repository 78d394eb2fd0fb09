/* qp.c: queue pairs. */
#include "front.h"

/* Operations of ibv_wr_* by type of queue pair. */
enum {
	OPS_UD = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	OPS_UC = OPS_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	OPS_RC = OPS_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV,
};

enum { /* of device_cap_flags_ex */
	CAP_FLUSH_SHIFT = 38, /* global, and the next bit: persistent */
	CAP_ATOMIC_WRITE_SHIFT = 40,
};

static uint64_t send_ops(struct ibv_context *context, enum ibv_qp_type type)
{
	uint64_t flags = to_context(context)->attr.device_cap_flags_ex, ops;

	switch (type) {
	case IBV_QPT_UD:
		return OPS_UD;
	case IBV_QPT_UC:
		return OPS_UC;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		ops = OPS_RC;
		if (flags >> CAP_FLUSH_SHIFT & 3)
			ops |= ROCE_QP_EX_WITH_FLUSH;
		if (flags >> CAP_ATOMIC_WRITE_SHIFT & 1)
			ops |= ROCE_QP_EX_WITH_ATOMIC_WRITE;
		return ops;
	default:
		return 0;
	}
}

static void from_cap(struct roce_caps *out, const struct ibv_qp_cap *in)
{
	*out = (struct roce_caps){in->max_send_wr, in->max_recv_wr, in->max_send_sge, in->max_recv_sge, in->max_inline_data};
}

static void to_cap(struct ibv_qp_cap *out, const struct roce_caps *in)
{
	*out = (struct ibv_qp_cap){in->max_send_wr, in->max_recv_wr, in->max_send_sge, in->max_recv_sge, in->max_inline_data};
}

/* Checks the objects that the attributes point to, and converts the attributes. */
static int convert_init(struct ibv_context *context, struct roce_qp_init *out, const struct ibv_qp_init_attr_ex *in)
{
	int r = 0;

	*out = (struct roce_qp_init){.type = in->qp_type, .sq_sig_all = !!in->sq_sig_all};
	from_cap(&out->cap, &in->cap);
	if (in->comp_mask & IBV_QP_INIT_ATTR_PD) {
		r = roce_check_in(context, in->pd, ROCE_PD);
		if (!r)
			out->pd = in->pd->handle;
	}
	if (!r && in->comp_mask & IBV_QP_INIT_ATTR_XRCD) {
		r = roce_check_in(context, in->xrcd, ROCE_XRCD);
		if (!r)
			out->xrcd = to_xrcd(in->xrcd)->handle;
	}
	if (!r && in->send_cq) {
		r = roce_check_in(context, in->send_cq, ROCE_CQ);
		if (!r)
			out->send_cq = in->send_cq->handle;
	}
	if (!r && in->recv_cq) {
		r = roce_check_in(context, in->recv_cq, ROCE_CQ);
		if (!r)
			out->recv_cq = in->recv_cq->handle;
	}
	if (!r && in->srq) {
		r = roce_check_in(context, in->srq, ROCE_SRQ);
		if (!r)
			out->srq = in->srq->handle;
	}
	if (in->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		out->create_flags = in->create_flags;
	return r;
}

static struct roce_qp *new_qp(struct ibv_context *context)
{
	struct roce_qp *qp = calloc(1, sizeof *qp);

	if (!qp)
		return roce_null(ENOMEM);
	qp->generation = roce_generation;
	qp->ex.qp_base.context = context;
	pthread_mutex_init(&qp->ex.qp_base.mutex, NULL);
	pthread_cond_init(&qp->ex.qp_base.cond, NULL);
	pthread_mutex_init(&qp->collected.lock, NULL);
	if (!roce_enter(&qp->ex.qp_base, ROCE_QP, context)) {
		free(qp);
		return roce_null(ENOMEM);
	}
	return qp;
}

static void free_qp(struct roce_qp *qp)
{
	roce_remove(&qp->ex.qp_base);
	roce_collect_end(qp);
	roce_recv_ring_free(qp);
	roce_qp_ex_free(qp);
	free(qp);
}

static struct ibv_qp *create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct roce_qp_init init;
	struct roce_qp *qp;
	struct ibv_qp *b;
	int r = convert_init(context, &init, attr);

	if (r)
		return roce_null(r);
	qp = new_qp(context);
	if (!qp)
		return NULL;
	b = &qp->ex.qp_base;
	b->qp_context = attr->qp_context;
	b->pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	b->send_cq = attr->send_cq;
	b->recv_cq = attr->recv_cq;
	b->srq = attr->srq;
	b->qp_type = attr->qp_type;
	b->state = IBV_QPS_RESET;
	qp->sq_sig_all = attr->sq_sig_all;
	init.cookie = (uintptr_t)b;
	roce_recv_ring_init(qp, &init);
	r = -roce_engine_table->create_qp(handle_of(context), &init, &b->handle, &b->qp_num);
	if (r) {
		free_qp(qp);
		return roce_null(r);
	}
	to_cap(&qp->cap, &init.cap);
	roce_collect_init(qp);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && !roce_qp_ex_init(qp)) {
		roce_engine_table->destroy_qp(b->handle);
		free_qp(qp);
		return roce_null(ENOMEM);
	}
	attr->cap = qp->cap;
	roce_use_pd(b->pd);
	return b;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp *qp;
	int r = roce_check(pd, ROCE_PD);

	if (!r && !attr)
		r = EINVAL;
	if (r)
		return roce_null(r);
	ex.qp_context = attr->qp_context;
	ex.send_cq = attr->send_cq;
	ex.recv_cq = attr->recv_cq;
	ex.srq = attr->srq;
	ex.cap = attr->cap;
	ex.qp_type = attr->qp_type;
	ex.sq_sig_all = attr->sq_sig_all;
	qp = create(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp *roce_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && !attr)
		r = EINVAL;
	if (!r && attr->comp_mask & ~mask)
		r = EOPNOTSUPP;
	if (!r && attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && attr->send_ops_flags & ~send_ops(context, attr->qp_type))
		r = EOPNOTSUPP;
	return r ? roce_null(r) : create(context, attr);
}

struct ibv_qp *roce_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t need = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct roce_qp_attr now;
	struct roce_caps caps;
	struct roce_qp *qp;
	struct ibv_qp *b;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED || (attr->comp_mask & need) != need || attr->qp_type != IBV_QPT_XRC_RECV))
		r = EINVAL;
	if (!r)
		r = roce_check(attr->xrcd, ROCE_XRCD);
	if (r)
		return roce_null(r);
	qp = new_qp(context);
	if (!qp)
		return NULL;
	b = &qp->ex.qp_base;
	r = -roce_engine_table->open_qp(to_xrcd(attr->xrcd)->handle, attr->qp_num, (uintptr_t)b, &b->handle);
	if (r) {
		free_qp(qp);
		return roce_null(r);
	}
	b->qp_num = attr->qp_num;
	b->qp_type = attr->qp_type;
	b->qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL;
	b->state = roce_engine_table->query_qp(b->handle, &now, &caps) ? IBV_QPS_UNKNOWN : (enum ibv_qp_state)now.qp_state;
	return b;
}

/* ---- attributes ---- */

static void from_attr(struct roce_qp_attr *out, const struct ibv_qp_attr *in)
{
	*out = (struct roce_qp_attr){
		.qp_state = in->qp_state,
		.cur_qp_state = in->cur_qp_state,
		.path_mtu = in->path_mtu,
		.path_mig_state = in->path_mig_state,
		.qkey = in->qkey,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.dest_qp_num = in->dest_qp_num,
		.access = in->qp_access_flags,
		.pkey_index = in->pkey_index,
		.alt_pkey_index = in->alt_pkey_index,
		.en_sqd_async_notify = in->en_sqd_async_notify,
		.sq_draining = in->sq_draining,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.min_rnr_timer = in->min_rnr_timer,
		.port_num = in->port_num,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.alt_port_num = in->alt_port_num,
		.alt_timeout = in->alt_timeout,
		.rate_limit = in->rate_limit,
	};
	from_cap(&out->cap, &in->cap);
	roce_from_ah_attr(&out->ah, &in->ah_attr);
	roce_from_ah_attr(&out->alt_ah, &in->alt_ah_attr);
}

static void to_attr(struct ibv_qp_attr *out, const struct roce_qp_attr *in)
{
	*out = (struct ibv_qp_attr){
		.qp_state = in->qp_state,
		.cur_qp_state = in->cur_qp_state,
		.path_mtu = in->path_mtu,
		.path_mig_state = in->path_mig_state,
		.qkey = in->qkey,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.dest_qp_num = in->dest_qp_num,
		.qp_access_flags = in->access,
		.pkey_index = in->pkey_index,
		.alt_pkey_index = in->alt_pkey_index,
		.en_sqd_async_notify = in->en_sqd_async_notify,
		.sq_draining = in->sq_draining,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.min_rnr_timer = in->min_rnr_timer,
		.port_num = in->port_num,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.alt_port_num = in->alt_port_num,
		.alt_timeout = in->alt_timeout,
		.rate_limit = in->rate_limit,
	};
	to_cap(&out->cap, &in->cap);
	roce_to_ah_attr(&out->ah_attr, &in->ah);
	roce_to_ah_attr(&out->alt_ah_attr, &in->alt_ah);
}

enum { ATTR_MASK = ((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT };

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct roce_qp_attr a;
	int r = roce_check(qp, ROCE_QP);

	if (!r && !attr)
		r = EINVAL;
	if (!r && mask & ~ATTR_MASK)
		r = EOPNOTSUPP;
	if (r)
		return roce_err(r);
	roce_faults_check();
	from_attr(&a, attr);
	roce_collect_stop(to_qp(qp));
	r = -roce_engine_table->modify_qp(qp->handle, &a, (uint32_t)mask);
	roce_collect_stop(to_qp(qp));
	if (!r && mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return roce_err(r);
}

/* Returns all attributes and ignores the mask: pyverbs sets bits of attributes that no longer exist. */
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct roce_qp_attr a;
	struct roce_caps caps;
	int r = roce_check(qp, ROCE_QP);

	(void)mask;
	if (!r && (!attr || !init))
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_qp(qp->handle, &a, &caps);
	if (r)
		return roce_err(r);
	to_attr(attr, &a);
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.qp_type = qp->qp_type,
		.sq_sig_all = to_qp(qp)->sq_sig_all,
	};
	to_cap(&init->cap, &caps);
	attr->cap = init->cap;
	qp->state = attr->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct roce_qp *qp = to_qp(ibqp);
	struct roce_acks acks;
	int r = roce_check(ibqp, ROCE_QP);

	if (!r) {
		roce_collect_stop(qp);
		r = -roce_engine_table->destroy_qp(ibqp->handle);
	}
	if (r)
		return roce_err(r);
	acks = (struct roce_acks){&qp->gone, &qp->async_events, &ibqp->events_completed, &ibqp->mutex, &ibqp->cond};
	roce_wait_async_acks(ibqp->context, &acks);
	roce_leave_pd(ibqp->pd);
	free_qp(qp);
	return 0;
}

/* The engine copies as memcpy does: packets of a message arrive in order, bytes of one do not. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

/* Enhanced connection establishment negotiates options of a vendor's adapters. The stack has none. */
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)ece;
	return roce_err(roce_known(qp, ROCE_QP) ? EOPNOTSUPP : EINVAL);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!roce_known(qp, ROCE_QP) || !ece)
		return roce_err(EINVAL);
	memset(ece, 0, sizeof *ece);
	return roce_err(EOPNOTSUPP);
}
