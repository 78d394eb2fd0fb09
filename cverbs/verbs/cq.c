/* cq.c: completion queues. */
#include "front.h"

/* The engine fills a program's array of struct ibv_wc. */
#define SAME(a, b) _Static_assert(offsetof(struct ibv_wc, a) == offsetof(struct roce_wc, b), #a)
_Static_assert(sizeof(struct ibv_wc) == sizeof(struct roce_wc), "struct ibv_wc");
SAME(wr_id, wr_id);
SAME(status, status);
SAME(opcode, opcode);
SAME(vendor_err, vendor_err);
SAME(byte_len, byte_len);
SAME(imm_data, imm);
SAME(qp_num, qp_num);
SAME(src_qp, src_qp);
SAME(wc_flags, wc_flags);
SAME(pkey_index, pkey_index);
SAME(slid, slid);
SAME(sl, sl);
SAME(dlid_path_bits, dlid_path_bits);

static struct roce_cq *create(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel, uint32_t vector)
{
	struct roce_cq *cq;
	uint32_t got;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!cqe || cqe > INT32_MAX || vector >= (uint32_t)context->num_comp_vectors))
		r = EINVAL;
	if (!r && channel)
		r = roce_check_in(context, channel, ROCE_CHANNEL);
	if (r)
		return roce_null(r);
	cq = calloc(1, sizeof *cq);
	if (!cq)
		return roce_null(ENOMEM);
	cq->generation = roce_generation;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->lock, NULL);
	/* Enter the queue before the engine makes it: its first event may come before create_cq returns. */
	if (!roce_enter(&cq->cq, ROCE_CQ, context)) {
		free(cq);
		return roce_null(ENOMEM);
	}
	r = -roce_engine_table->create_cq(handle_of(context), cqe, channel ? to_channel(channel)->handle : 0, vector, (uintptr_t)&cq->cq, &cq->cq.handle, &got);
	if (r) {
		roce_remove(&cq->cq);
		free(cq);
		return roce_null(r);
	}
	cq->cq.cqe = (int)got;
	cq->shard = roce_shard_of(cq->cq.handle);
	if (channel) {
		pthread_mutex_lock(&to_channel(channel)->lock);
		channel->refcnt++;
		pthread_mutex_unlock(&to_channel(channel)->lock);
	}
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct roce_cq *cq;

	if (cqe < 0 || vector < 0)
		return roce_null(EINVAL);
	cq = create(context, (uint32_t)cqe, cq_context, channel, (uint32_t)vector);
	return cq ? &cq->cq : NULL;
}

struct ibv_cq_ex *roce_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	const uint32_t mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	struct roce_cq *cq;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask & ~mask))
		r = EINVAL;
	if (!r && attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS)
		r = EOPNOTSUPP;
	if (!r && attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~flags)
		r = EOPNOTSUPP;
	if (!r && attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		r = roce_check(attr->parent_domain, ROCE_PD);
	if (r)
		return roce_null(r);
	cq = create(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	cq->extended = true;
	cq->shared = !(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	roce_cq_ex_ops(&cq->ex);
	return &cq->ex;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	uint32_t got;
	int r = roce_check(cq, ROCE_CQ);

	if (!r && cqe <= 0)
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->resize_cq(cq->handle, (uint32_t)cqe, &got);
	if (!r)
		cq->cqe = (int)got;
	return roce_err(r);
}

/* There is no moderation: the first completion after a request raises the event. */
int roce_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	int r = roce_check(cq, ROCE_CQ);

	if (!r)
		r = attr && attr->attr_mask == IBV_CQ_ATTR_MODERATE ? EOPNOTSUPP : EINVAL;
	return roce_err(r);
}

static void wait_async_acks(struct roce_cq *cq)
{
	struct roce_acks acks = {&cq->gone, &cq->async_events, &cq->cq.async_events_completed, &cq->cq.mutex, &cq->cq.cond};

	roce_wait_async_acks(cq->cq.context, &acks);
}

int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct ibv_comp_channel *channel;
	struct roce_cq *cq = to_cq(ibcq);
	int r = roce_check(ibcq, ROCE_CQ);

	if (!r)
		r = -roce_engine_table->destroy_cq(ibcq->handle);
	if (r)
		return roce_err(r);
	roce_wait_comp_acks(cq);
	wait_async_acks(cq);
	channel = ibcq->channel;
	if (channel) {
		pthread_mutex_lock(&to_channel(channel)->lock);
		channel->refcnt--;
		pthread_mutex_unlock(&to_channel(channel)->lock);
	}
	roce_remove(ibcq);
	free(cq);
	return 0;
}

/* ---- the data path ---- */

int roce_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct roce_cq *cq = to_cq(ibcq);

	if (unlikely(cq->generation != roce_generation))
		return -roce_err(EIO);
	if (unlikely(n < 0 || (n && !wc)))
		return -roce_err(EINVAL);
	roce_doorbell(cq->shard);
	if (unlikely(cq->extended))
		return roce_cq_ex_poll(cq, n, wc);
	return roce_engine_table->poll_cq(ibcq->handle, (struct roce_wc *)wc, n);
}

int roce_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	if (unlikely(to_cq(ibcq)->generation != roce_generation))
		return roce_err(EIO);
	roce_doorbell(to_cq(ibcq)->shard);
	return roce_err(-roce_engine_table->req_notify_cq(ibcq->handle, !!solicited_only));
}
