/* endpoint.c: synchronous identifiers, from address information to a queue pair. */
#include "cma.h"

enum { RESOLVE_MS = 2000 };

/* Prepares the identifier of a listener: its requests will get queue pairs. */
static int set_up_passive(struct cma_id *p, const struct rdma_addrinfo *res, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&p->id, res->ai_src_addr))
		return -1;
	if (!attr)
		return 0;
	p->ep_attr = malloc(sizeof *attr);
	if (!p->ep_attr)
		return -1;
	*p->ep_attr = *attr;
	p->ep_attr->qp_type = res->ai_qp_type;
	p->ep_pd = pd;
	return 0;
}

static int set_up_active(struct cma_id *p, const struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&p->id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS) || rdma_resolve_route(&p->id, RESOLVE_MS))
		return -1;
	if (attr) {
		attr->qp_type = res->ai_qp_type;
		if (rdma_create_qp(&p->id, pd, attr))
			return -1;
	}
	if (!res->ai_connect_len)
		return 0;
	p->ep_private = malloc(res->ai_connect_len);
	if (!p->ep_private)
		return -1;
	memcpy(p->ep_private, res->ai_connect, res->ai_connect_len);
	p->ep_private_len = res->ai_connect_len;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	struct cma_id *p;
	int ret;

	if (!out || !res)
		return fail(EINVAL);
	if (cma_create_id(NULL, &id, NULL, res->ai_port_space, res->ai_qp_type))
		return -1;
	p = cma_id_of(id);
	ret = res->ai_flags & RAI_PASSIVE ? set_up_passive(p, res, pd, attr) : set_up_active(p, res, pd, attr);
	if (ret) {
		ret = errno;
		rdma_destroy_ep(id);
		return fail(ret);
	}
	*out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (!cma_id_of(id))
		return;
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct cma_id *p = cma_id_of(listen);
	struct rdma_cm_event *event;
	int ret = 0;

	if (!p)
		return -1;
	if (!p->sync || !out)
		return fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status)
		ret = event->status < 0 ? -event->status : ECONNREFUSED;
	else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		ret = EINVAL;
	if (ret) {
		listen->event = event;
		return fail(ret);
	}
	if (p->ep_attr) {
		struct ibv_qp_init_attr attr = *p->ep_attr;

		if (rdma_create_qp(event->id, p->ep_pd, &attr)) {
			ret = errno;
			struct rdma_cm_id *request = event->id;

			rdma_ack_cm_event(event);
			rdma_destroy_id(request); /* this rejects the request */
			return fail(ret);
		}
	}
	*out = event->id;
	(*out)->event = event;
	return 0;
}
