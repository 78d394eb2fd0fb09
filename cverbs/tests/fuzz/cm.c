/* cm.c: rdma_*: identifiers with channels that no thread waits for. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <fcntl.h>

static struct sockaddr_in some_addr(struct thread *t)
{
	struct object *c = pick(t, CONTEXT);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(one_in(t, 3) ? 0 : 20000 + t->index * 16 + (int)(rnd(t) % 4)))};
	union ibv_gid gid;

	if (c && !ibv_query_gid(c->p, 1, 0, &gid))
		memcpy(&a.sin_addr, gid.raw + 12, 4);
	if (one_in(t, 20))
		a.sin_addr.s_addr = (uint32_t)rnd(t);
	if (one_in(t, 40))
		a.sin_family = (sa_family_t)rnd(t);
	return a;
}

static void adopt(struct thread *t, struct rdma_cm_id *id, struct object *channel)
{
	struct object *o;

	if (full(t, CM_ID)) {
		CALL(t, "rdma_destroy_id", id, 0, 0, 0, rdma_destroy_id(id));
		return;
	}
	o = keep(t, CM_ID, id);
	needs(o, channel);
}

static void take_event(struct thread *t)
{
	struct object *channel = pick(t, CM_CHANNEL);
	struct rdma_cm_event *e;
	struct rdma_cm_id *request;

	if (!channel || CALL(t, "rdma_get_cm_event", channel->p, 0, 0, 0, rdma_get_cm_event(channel->p, &e)))
		return;
	request = e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? e->id : NULL;
	CALL(t, "rdma_ack_cm_event", e, e->event, e->status, 0, rdma_ack_cm_event(e));
	if (request)
		adopt(t, request, channel);
}

static void connection(struct thread *t, struct rdma_cm_id *id)
{
	char data[256] = "private";
	struct rdma_conn_param p = {.private_data = one_in(t, 2) ? data : NULL, .private_data_len = (uint8_t)(one_in(t, 4) ? rnd(t) : 8), .responder_resources = (uint8_t)(one_in(t, 4) ? rnd(t) : 1),
		.initiator_depth = 1, .retry_count = (uint8_t)rnd(t), .rnr_retry_count = 3, .qp_num = (uint32_t)rnd(t) & 0xffffff};
	struct rdma_conn_param *param = one_in(t, 6) ? NULL : &p;

	if (param && !param->private_data)
		param->private_data_len = 0;
	switch (rnd(t) % 6) {
	case 0: CALL(t, "rdma_connect", id, param, 0, 0, rdma_connect(id, param)); return;
	case 1: CALL(t, "rdma_accept", id, param, 0, 0, rdma_accept(id, param)); return;
	case 2: CALL(t, "rdma_reject", id, 0, 0, 0, rdma_reject(id, data, (uint8_t)rnd(t))); return;
	case 3: CALL(t, "rdma_disconnect", id, 0, 0, 0, rdma_disconnect(id)); return;
	case 4: CALL(t, "rdma_establish", id, 0, 0, 0, rdma_establish(id)); return;
	default: CALL(t, "rdma_notify", id, 0, 0, 0, rdma_notify(id, (enum ibv_event_type)(rnd(t) % 20))); return;
	}
}

static void on_id(struct thread *t, struct object *o)
{
	struct rdma_cm_id *id = o ? o->p : NULL;
	struct sockaddr_in a = some_addr(t), b = some_addr(t);
	struct object *other;

	if (one_in(t, 25))
		id = wrong(t, CM_ID);
	switch (rnd(t) % 12) {
	case 0: CALL(t, "rdma_bind_addr", id, a.sin_addr.s_addr, a.sin_port, 0, rdma_bind_addr(id, (struct sockaddr *)&a)); return;
	case 1: case 2: CALL(t, "rdma_resolve_addr", id, a.sin_addr.s_addr, b.sin_addr.s_addr, 0, rdma_resolve_addr(id, one_in(t, 2) ? (struct sockaddr *)&a : NULL, (struct sockaddr *)&b, 100)); return;
	case 3: CALL(t, "rdma_resolve_route", id, 0, 0, 0, rdma_resolve_route(id, 100)); return;
	case 4: CALL(t, "rdma_listen", id, 0, 0, 0, rdma_listen(id, (int)(rnd(t) % 5))); return;
	case 5: case 6: connection(t, id); return;
	case 7: {
		uint8_t tos = (uint8_t)rnd(t);

		CALL(t, "rdma_set_option", id, 0, 0, 0, rdma_set_option(id, (int)(rnd(t) % 3), (int)(rnd(t) % 6), &tos, one_in(t, 4) ? rnd(t) % 9 : 1));
		return;
	}
	case 8: {
		struct ibv_qp_init_attr init = {.qp_type = one_in(t, 4) ? IBV_QPT_UD : IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};

		CALL(t, "rdma_create_qp", id, 0, 0, 0, rdma_create_qp(id, NULL, &init));
		return;
	}
	case 9: {
		struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)(rnd(t) % 6)};
		int mask;

		CALL(t, "rdma_init_qp_attr", id, attr.qp_state, 0, 0, rdma_init_qp_attr(id, &attr, &mask));
		return;
	}
	case 10: {
		struct sockaddr_in group = {.sin_family = AF_INET};

		inet_pton(AF_INET, "239.1.1.7", &group.sin_addr);
		if (one_in(t, 2))
			CALL(t, "rdma_join_multicast", id, 0, 0, 0, rdma_join_multicast(id, (struct sockaddr *)&group, t));
		else
			CALL(t, "rdma_leave_multicast", id, 0, 0, 0, rdma_leave_multicast(id, (struct sockaddr *)&group));
		return;
	}
	default:
		other = pick(t, CM_CHANNEL);
		if (!other || !o || id != o->p)
			return;
		if (!CALL(t, "rdma_migrate_id", id, other->p, 0, 0, rdma_migrate_id(id, other->p))) {
			if (o->needs[0])
				o->needs[0]->users--;
			o->needs[0] = other;
			other->users++;
		}
	}
}

void cm_step(struct thread *t)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id = NULL;
	struct object *o;
	static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB};

	switch (rnd(t) % 8) {
	case 0:
		if (t->count[CM_CHANNEL] >= 3)
			break;
		channel = (void *)CALL(t, "rdma_create_event_channel", 0, 0, 0, 0, rdma_create_event_channel());
		if (!channel)
			return;
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
		keep(t, CM_CHANNEL, channel);
		return;
	case 1:
		o = pick(t, CM_CHANNEL);
		if (!o || full(t, CM_ID))
			return;
		if (!CALL(t, "rdma_create_id", o->p, 0, 0, 0, rdma_create_id(o->p, &id, NULL, spaces[rnd(t) % 5])))
			adopt(t, id, o);
		return;
	case 2: case 3: case 4:
		take_event(t);
		return;
	default:
		on_id(t, pick(t, CM_ID));
	}
}
