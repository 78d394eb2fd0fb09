/* check.c: connections for tests. */
#include "check.h"

int run_test(const struct test *tests, int argc, char **argv)
{
	alarm(60);
	for (; argc == 2 && tests->name; tests++)
		if (!strcmp(tests->name, argv[1])) {
			tests->run();
			return 0;
		}
	fprintf(stderr, "no such test\n");
	return 2;
}

struct sockaddr *at(int port)
{
	static struct sockaddr_in addr[8];
	static unsigned next;
	struct sockaddr_in *a = &addr[next++ % 8];

	CHECK(getenv("AT"));
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	CHECK(inet_pton(AF_INET, getenv("AT"), &a->sin_addr) == 1);
	return (struct sockaddr *)a;
}

struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	CHECK(!rdma_get_cm_event(ch, &ev));
	if (ev->event != type)
		fprintf(stderr, "%s, status %d; want %s\n", rdma_event_str(ev->event), ev->status, rdma_event_str(type));
	CHECK(ev->event == type);
	return ev;
}

void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = expect(ch, type);

	CHECK(!ev->status);
	CHECK(!rdma_ack_cm_event(ev));
}

void expect_none(struct rdma_event_channel *ch)
{
	struct pollfd fd = {.fd = ch->fd, .events = POLLIN};

	CHECK(poll(&fd, 1, 20) == 0);
}

struct rdma_cm_id *listening(struct rdma_event_channel *ch, enum rdma_port_space ps, int port)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, "of the listener", ps));
	CHECK(!rdma_bind_addr(id, at(port)));
	CHECK(!rdma_listen(id, 0));
	return id;
}

struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, int port)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, "of the client", ps));
	CHECK(!rdma_resolve_addr(id, NULL, at(port), 2000));
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.qp_type = id->qp_type, .sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp && id->qp->qp_num && attr.send_cq && attr.recv_cq && attr.cap.max_send_wr >= 4);
}

void connect_pair(struct pair *p, int port)
{
	struct rdma_cm_event *ev;

	p->here = rdma_create_event_channel();
	p->there = rdma_create_event_channel();
	CHECK(p->here && p->there);
	p->listener = listening(p->there, RDMA_PS_TCP, port);
	p->client = resolved(p->here, RDMA_PS_TCP, port);
	create_qp(p->client);
	CHECK(!rdma_connect(p->client, NULL));
	ev = expect(p->there, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(ev->listen_id == p->listener && ev->id->qp_type == IBV_QPT_RC && ev->id->context == p->listener->context);
	p->server = ev->id;
	CHECK(!rdma_ack_cm_event(ev));
	create_qp(p->server);
	CHECK(!rdma_accept(p->server, NULL));
	pass(p->here, RDMA_CM_EVENT_ESTABLISHED);
	pass(p->there, RDMA_CM_EVENT_ESTABLISHED);
}

void close_pair(struct pair *p)
{
	rdma_destroy_ep(p->client);
	rdma_destroy_ep(p->server);
	CHECK(!rdma_destroy_id(p->listener));
	rdma_destroy_event_channel(p->here);
	rdma_destroy_event_channel(p->there);
}

void transfer(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	static char src[] = "over the connection", dst[sizeof src];
	struct ibv_mr *ms = rdma_reg_msgs(from, src, sizeof src), *md = rdma_reg_msgs(to, dst, sizeof dst);
	struct ibv_wc wc;

	memset(dst, 0, sizeof dst);
	CHECK(ms && md);
	CHECK(!rdma_post_recv(to, dst, dst, sizeof dst, md));
	CHECK(!rdma_post_send(from, src, src, sizeof src, ms, 0));
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)src);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof src);
	CHECK(!memcmp(src, dst, sizeof src));
	CHECK(!rdma_dereg_mr(ms) && !rdma_dereg_mr(md));
}
