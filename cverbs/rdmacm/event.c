/* event.c: event channels and events.
 *
 * The descriptor of a channel is an eventfd, which counts the events: programs poll it, set O_NONBLOCK,
 * and put it into epoll sets. rdma_get_cm_event takes 1 from it, and then takes the event from the engine. */
#include "newer.h"

#include <sys/eventfd.h>
#include <unistd.h>

pthread_mutex_t cma_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cma_acked = PTHREAD_COND_INITIALIZER;

struct rdma_event_channel *rdma_create_event_channel(void)
{
	const struct roce_cm_engine *cm = cma_engine();
	struct cma_channel *ch = cm ? cma_alloc(CMA_CHANNEL) : NULL;
	int ret;

	if (!ch)
		return NULL;
	ch->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	ret = ch->channel.fd < 0 ? -errno : cm->create_channel(ch->channel.fd, &ch->handle);
	if (ret) {
		if (ch->channel.fd >= 0)
			close(ch->channel.fd);
		cma_free(CMA_CHANNEL, ch);
		errno = -ret;
		return NULL;
	}
	ch->cm = cm;
	return &ch->channel;
}

struct cma_channel *cma_channel_of(struct rdma_event_channel *channel)
{
	struct cma_channel *ch = container_of(channel, struct cma_channel, channel);

	if (!channel || !ch->cm || ch->cm != cma_engine()) {
		errno = EINVAL;
		return NULL;
	}
	return ch;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cma_channel *ch = container_of(channel, struct cma_channel, channel);

	if (!channel || !ch->cm)
		return;
	if (ch->cm == cma_engine()) /* otherwise it was made before a fork */
		ch->cm->destroy_channel(ch->handle);
	pthread_mutex_lock(&cma_lock);
	cma_drop_posted(ch);
	pthread_mutex_unlock(&cma_lock);
	close(channel->fd);
	cma_free(CMA_CHANNEL, ch);
}

/* Makes the identifier of a request. The caller holds cma_lock. */
static struct cma_id *new_request(struct cma_id *listener, struct cma_channel *ch, const struct roce_cm_event *raw)
{
	struct cma_id *p = cma_new_id(&ch->channel, listener->id.context, listener->id.ps, listener->id.qp_type);

	if (!p) {
		ch->cm->destroy_id(raw->child); /* this rejects the request */
		return NULL;
	}
	p->cm = ch->cm;
	p->handle = raw->child;
	p->cm->set_cookie(p->handle, (uintptr_t)p);
	return p;
}

/* Takes an event out of the engine and counts it. EAGAIN: there is none. */
static int take(struct cma_channel *ch, struct cma_event *ev, struct roce_cm_event *raw)
{
	int ret;

	memset(&ev->event, 0, sizeof ev->event);
	pthread_mutex_lock(&cma_lock);
	ret = -ch->cm->next_event(ch->handle, raw);
	if (ret == EAGAIN && cma_take_posted(ch, ev, raw)) {
		ev->group = NULL;
		ev->event.id = &ev->of->id;
		ret = 0;
	} else if (!ret) {
		ev->of = (struct cma_id *)(uintptr_t)raw->cookie;
		ev->group = raw->group ? cma_group_of(ev->of, raw->group) : NULL;
		ev->event.id = &ev->of->id;
		if (raw->group && !ev->group)
			ret = EAGAIN;
		if (raw->child) {
			struct cma_id *request = new_request(ev->of, ch, raw);

			ev->event.listen_id = &ev->of->id;
			ev->event.id = request ? &request->id : NULL;
			ret = request ? 0 : EAGAIN;
		}
	}
	if (!ret && ev->group)
		ev->group->reported++;
	else if (!ret)
		ev->of->reported++;
	pthread_mutex_unlock(&cma_lock);
	return ret;
}

/* Counts an event as acknowledged. */
static void count_ack(struct cma_event *ev)
{
	pthread_mutex_lock(&cma_lock);
	if (ev->group)
		ev->group->acked++;
	else
		ev->of->acked++;
	pthread_cond_broadcast(&cma_acked);
	pthread_mutex_unlock(&cma_lock);
}

static void fill(struct cma_event *ev, const struct roce_cm_event *raw)
{
	struct rdma_cm_event *e = &ev->event;
	void *private_data = raw->private_data_len ? ev->private_data : NULL;

	e->event = raw->type;
	e->status = raw->status;
	if (raw->type == CMA_EVENT_USER) {
		memcpy(&e->param, &ev->arg, sizeof ev->arg); /* param.arg */
		return;
	}
	memcpy(ev->private_data, raw->private_data, raw->private_data_len);
	if (raw->is_ud) {
		e->param.ud.private_data = private_data;
		e->param.ud.private_data_len = raw->private_data_len;
		e->param.ud.qp_num = raw->qp_num;
		e->param.ud.qkey = raw->qkey;
		cma_to_ah_attr(&e->param.ud.ah_attr, &raw->ah);
		return;
	}
	e->param.conn.private_data = private_data;
	e->param.conn.private_data_len = raw->private_data_len;
	e->param.conn.responder_resources = raw->responder_resources;
	e->param.conn.initiator_depth = raw->initiator_depth;
	e->param.conn.flow_control = raw->flow_control;
	e->param.conn.retry_count = raw->retry_count;
	e->param.conn.rnr_retry_count = raw->rnr_retry_count;
	e->param.conn.srq = raw->srq;
	e->param.conn.qp_num = raw->qp_num;
}

/* A handler prepares an event of one type before the program gets it. It returns false if the program must
 * not get it. */
typedef bool handler(struct cma_event *ev, const struct roce_cm_event *raw);

static bool on_resolved(struct cma_event *ev, const struct roce_cm_event *raw)
{
	bool route = raw->type == RDMA_CM_EVENT_ROUTE_RESOLVED;

	if (!cma_query(ev->of, route))
		return true;
	ev->event.status = -errno;
	ev->event.event = route ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ADDR_ERROR;
	return true;
}

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static bool on_request(struct cma_event *ev, const struct roce_cm_event *raw)
{
	struct cma_id *p = container_of(ev->event.id, struct cma_id, id);

	if (cma_query(p, true) || (ev->of->sync && rdma_migrate_id(&p->id, NULL))) {
		p->cm->destroy_id(p->handle); /* this rejects the request, unless the peer has given up */
		cma_release_id(p);
		return false;
	}
	p->responder_resources = least(raw->responder_resources, p->device->max_responder_resources);
	p->initiator_depth = least(raw->initiator_depth, p->device->max_initiator_depth);
	return true;
}

static bool on_response(struct cma_event *ev, const struct roce_cm_event *raw)
{
	(void)raw;
	if (!ev->of->id.qp) /* the program calls rdma_establish */
		return true;
	ev->event.status = -cma_connected_qp(ev->of);
	ev->event.event = RDMA_CM_EVENT_ESTABLISHED;
	if (ev->event.status) {
		ev->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
		ev->of->connect_error = true;
	}
	return true;
}

static bool on_rejected(struct cma_event *ev, const struct roce_cm_event *raw)
{
	(void)raw;
	if (ev->of->connect_error)
		return false;
	cma_qp_to_error(&ev->of->id);
	return true;
}

static bool on_disconnected(struct cma_event *ev, const struct roce_cm_event *raw)
{
	(void)raw;
	return !ev->of->connect_error;
}

static bool on_multicast(struct cma_event *ev, const struct roce_cm_event *raw)
{
	if (!ev->group)
		return false;
	ev->event.param.ud.private_data = ev->group->context;
	if (raw->type == RDMA_CM_EVENT_MULTICAST_JOIN) {
		ev->event.status = -cma_joined(ev, raw);
		if (ev->event.status)
			ev->event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
	}
	return true;
}

static handler *const handlers[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = on_resolved,
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = on_resolved,
	[RDMA_CM_EVENT_CONNECT_REQUEST] = on_request,
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = on_response,
	[RDMA_CM_EVENT_REJECTED] = on_rejected,
	[RDMA_CM_EVENT_DISCONNECTED] = on_disconnected,
	[RDMA_CM_EVENT_MULTICAST_JOIN] = on_multicast,
	[RDMA_CM_EVENT_MULTICAST_ERROR] = on_multicast,
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = NULL,
};

/* Takes an event for the program. EAGAIN: there is none for the program. */
static int next_event(struct cma_channel *ch, struct cma_event *ev)
{
	struct roce_cm_event raw;
	int ret = take(ch, ev, &raw);

	if (ret)
		return ret;
	fill(ev, &raw);
	if (raw.type >= sizeof handlers / sizeof *handlers || !handlers[raw.type] || handlers[raw.type](ev, &raw))
		return 0;
	count_ack(ev);
	return EAGAIN;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cma_channel *ch = cma_channel_of(channel);
	struct cma_event *ev;
	eventfd_t one;
	int ret;

	if (!ch)
		return -1;
	if (!event)
		return fail(EINVAL);
	ev = cma_alloc(CMA_EVENT);
	if (!ev)
		return fail(ENOMEM);
	do {
		if (read(channel->fd, &one, sizeof one) < 0) { /* EAGAIN and EINTR among others */
			ret = errno;
			break;
		}
		ret = next_event(ch, ev);
	} while (ret == EAGAIN);
	if (ret) {
		cma_free(CMA_EVENT, ev);
		return fail(ret);
	}
	ev->cm = ch->cm;
	*event = &ev->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cma_event *ev = container_of(event, struct cma_event, event);

	if (!event || !ev->cm)
		return fail(EINVAL);
	count_ack(ev);
	cma_free(CMA_EVENT, ev);
	return 0;
}

static const char *const names[] = {
	"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR",
	"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
	"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
	"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE", "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	"RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR", "RDMA_CM_EVENT_USER",
};

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return event < sizeof names / sizeof *names ? names[event] : "UNKNOWN EVENT";
}
