/* srq.c: shared receive queues and XRC domains. */
#include "front.h"

static struct ibv_srq *create(struct ibv_context *context, struct ibv_pd *pd, struct roce_srq_init *init, void *srq_context)
{
	struct roce_srq *srq = calloc(1, sizeof *srq);
	int r;

	if (!srq)
		return roce_null(ENOMEM);
	srq->generation = roce_generation;
	srq->type = init->type;
	srq->srq.context = context;
	srq->srq.srq_context = srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	if (!roce_enter(&srq->srq, ROCE_SRQ, context)) {
		free(srq);
		return roce_null(ENOMEM);
	}
	init->cookie = (uintptr_t)&srq->srq;
	r = -roce_engine_table->create_srq(handle_of(context), init, &srq->srq.handle, &srq->srqn);
	if (r) {
		roce_remove(&srq->srq);
		free(srq);
		return roce_null(r);
	}
	roce_use_pd(pd);
	return &srq->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct roce_srq_init init = {.type = IBV_SRQT_BASIC};
	struct ibv_srq *srq;
	int r = roce_check(pd, ROCE_PD);

	if (!r && !attr)
		r = EINVAL;
	if (r)
		return roce_null(r);
	init.pd = pd->handle;
	init.max_wr = attr->attr.max_wr;
	init.max_sge = attr->attr.max_sge;
	init.limit = attr->attr.srq_limit;
	srq = create(pd->context, pd, &init, attr->srq_context);
	if (srq) {
		attr->attr.max_wr = init.max_wr;
		attr->attr.max_sge = init.max_sge;
	}
	return srq;
}

struct ibv_srq *roce_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	struct roce_srq_init init = {0};
	struct ibv_srq *srq;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)))
		r = EINVAL;
	if (!r)
		r = roce_check_in(context, attr->pd, ROCE_PD);
	if (r)
		return roce_null(r);
	init.type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	if (init.type == IBV_SRQT_TM)
		return roce_null(EOPNOTSUPP);
	if (init.type == IBV_SRQT_XRC) {
		if ((attr->comp_mask & xrc) != xrc)
			return roce_null(EINVAL);
		r = roce_check_in(context, attr->xrcd, ROCE_XRCD);
		if (!r)
			r = roce_check_in(context, attr->cq, ROCE_CQ);
		if (r)
			return roce_null(r);
		init.xrcd = to_xrcd(attr->xrcd)->handle;
		init.cq = attr->cq->handle;
	}
	init.pd = attr->pd->handle;
	init.max_wr = attr->attr.max_wr;
	init.max_sge = attr->attr.max_sge;
	init.limit = attr->attr.srq_limit;
	srq = create(context, attr->pd, &init, attr->srq_context);
	if (srq) {
		attr->attr.max_wr = init.max_wr;
		attr->attr.max_sge = init.max_sge;
	}
	return srq;
}

int roce_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	int r = roce_check(srq, ROCE_SRQ);

	if (!r && !num)
		r = EINVAL;
	if (!r && to_srq(srq)->type != IBV_SRQT_XRC)
		r = EOPNOTSUPP;
	if (!r)
		*num = to_srq(srq)->srqn;
	return roce_err(r);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	int r = roce_check(srq, ROCE_SRQ);

	if (!r && (!attr || mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)))
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->modify_srq(srq->handle, (uint32_t)mask, attr->max_wr, attr->srq_limit);
	return roce_err(r);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	int r = roce_check(srq, ROCE_SRQ);

	if (!r && !attr)
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_srq(srq->handle, &attr->max_wr, &attr->max_sge, &attr->srq_limit);
	return roce_err(r);
}

int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct roce_srq *srq = to_srq(ibsrq);
	struct roce_acks acks;
	int r = roce_check(ibsrq, ROCE_SRQ);

	if (!r)
		r = -roce_engine_table->destroy_srq(ibsrq->handle);
	if (r)
		return roce_err(r);
	acks = (struct roce_acks){&srq->gone, &srq->async_events, &ibsrq->events_completed, &ibsrq->mutex, &ibsrq->cond};
	roce_wait_async_acks(ibsrq->context, &acks);
	roce_leave_pd(ibsrq->pd);
	roce_remove(ibsrq);
	free(srq);
	return 0;
}

/* ---- XRC domains ---- */

struct ibv_xrcd *roce_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct roce_xrcd *xrcd;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED || (attr->comp_mask & both) != both))
		r = EINVAL;
	if (r)
		return roce_null(r);
	xrcd = calloc(1, sizeof *xrcd);
	if (!xrcd)
		return roce_null(ENOMEM);
	r = -roce_engine_table->open_xrcd(handle_of(context), attr->fd, attr->oflags, &xrcd->handle);
	if (!r && !roce_enter(&xrcd->xrcd, ROCE_XRCD, context)) {
		roce_engine_table->close_xrcd(xrcd->handle);
		r = ENOMEM;
	}
	if (r) {
		free(xrcd);
		return roce_null(r);
	}
	xrcd->xrcd.context = context;
	return &xrcd->xrcd;
}

int roce_close_xrcd(struct ibv_xrcd *xrcd)
{
	int r = roce_check(xrcd, ROCE_XRCD);

	if (!r)
		r = -roce_engine_table->close_xrcd(to_xrcd(xrcd)->handle);
	if (r)
		return roce_err(r);
	roce_remove(xrcd);
	free(to_xrcd(xrcd));
	return 0;
}
