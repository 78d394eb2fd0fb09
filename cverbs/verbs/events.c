/* events.c: asynchronous events. async_fd is an eventfd like a channel's. */
#include "front.h"

#include <unistd.h>

/* Returns the kind of object of an event. Other types are about the port. */
static enum roce_kind kind_of(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ROCE_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ROCE_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ROCE_SRQ;
	}
	return ROCE_ANY;
}

/* Writes the event's object and counts the event for it; false: the object has been destroyed. */
static bool convert(struct ibv_async_event *out, const struct roce_event *in)
{
	void *object = (void *)(uintptr_t)in->cookie;
	enum roce_kind kind = kind_of(in->type);
	uint32_t *told;
	bool gone;

	out->event_type = in->type;
	if (kind == ROCE_ANY) {
		out->element.port_num = (int)in->port;
		return true;
	}
	if (roce_check(object, kind))
		return false;
	switch (kind) {
	case ROCE_CQ:
		out->element.cq = object;
		told = &to_cq(out->element.cq)->async_events;
		gone = to_cq(out->element.cq)->gone;
		break;
	case ROCE_QP:
		out->element.qp = object;
		told = &to_qp(out->element.qp)->async_events;
		gone = to_qp(out->element.qp)->gone;
		break;
	default:
		out->element.srq = object;
		told = &to_srq(out->element.srq)->async_events;
		gone = to_srq(out->element.srq)->gone;
		break;
	}
	*told += !gone;
	return !gone;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct roce_event e;
	bool have = false;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && !event)
		r = EINVAL;
	while (!r && !have) {
		struct roce_context *c = to_context(context);
		uint64_t one;

		if (read(context->async_fd, &one, sizeof one) != sizeof one)
			return -1;
		pthread_mutex_lock(&c->lock);
		r = -roce_engine_table->next_event(c->handle, &e);
		if (!r)
			have = convert(event, &e);
		pthread_mutex_unlock(&c->lock);
		if (r == EAGAIN)
			r = 0;
	}
	return r ? roce_minus1(r) : 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	enum roce_kind kind;

	if (!event)
		return;
	kind = kind_of(event->event_type);
	if (kind == ROCE_ANY || !roce_known(event->element.cq, kind))
		return;
	if (kind == ROCE_CQ)
		ack(&event->element.cq->mutex, &event->element.cq->cond, &event->element.cq->async_events_completed);
	else if (kind == ROCE_QP)
		ack(&event->element.qp->mutex, &event->element.qp->cond, &event->element.qp->events_completed);
	else
		ack(&event->element.srq->mutex, &event->element.srq->cond, &event->element.srq->events_completed);
}

void roce_wait_async_acks(struct ibv_context *context, const struct roce_acks *a)
{
	struct roce_context *c = to_context(context);
	uint32_t told;

	pthread_mutex_lock(&c->lock);
	*a->gone = true;
	told = *a->told;
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(a->mutex);
	while (*a->completed != told)
		pthread_cond_wait(a->cond, a->mutex);
	pthread_mutex_unlock(a->mutex);
}
