/* connections.c: tests of connections, datagram services and groups. */
#include "check.h"

enum { PORT = 7471 };

static void exchange(void)
{
	struct pair p;
	struct ibv_wc wc;
	char buf[8];
	struct ibv_mr *mr;

	connect_pair(&p, PORT);
	CHECK(rdma_get_dst_port(p.client) == htons(PORT) && rdma_get_src_port(p.client) != 0);
	CHECK(rdma_get_src_port(p.server) == htons(PORT) && rdma_get_dst_port(p.server) == rdma_get_src_port(p.client));
	CHECK(p.client->route.num_paths == 1 && p.client->route.path_rec->hop_limit == 64 && p.client->route.path_rec->pkey == 0xFFFF);
	transfer(p.client, p.server);
	transfer(p.server, p.client);
	mr = rdma_reg_msgs(p.server, buf, sizeof buf);
	CHECK(mr && !rdma_post_recv(p.server, NULL, buf, sizeof buf, mr));
	CHECK(!rdma_disconnect(p.client));
	pass(p.there, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(p.server)); /* this flushes the receive */
	CHECK(rdma_get_recv_comp(p.server, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	pass(p.here, RDMA_CM_EVENT_DISCONNECTED);
	pass(p.here, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK(!rdma_dereg_mr(mr));
	close_pair(&p);
}

/* The peer gets the smaller limit of both sides. */
static void parameters(void)
{
	struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listening(there, RDMA_PS_TCP, PORT), *client = resolved(here, RDMA_PS_TCP, PORT), *server;
	struct rdma_conn_param ask = {.private_data = "ask", .private_data_len = 3, .responder_resources = 2, .initiator_depth = 5,
		.retry_count = 5, .rnr_retry_count = 15};
	struct rdma_conn_param grant = {.private_data = "grant", .private_data_len = 5, .responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = 1};
	struct rdma_cm_event *ev;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	create_qp(client);
	CHECK(!rdma_connect(client, &ask));
	ev = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(ev->param.conn.responder_resources == 5 && ev->param.conn.initiator_depth == 2 && ev->param.conn.qp_num == client->qp->qp_num);
	CHECK(ev->param.conn.retry_count == 5 && ev->param.conn.rnr_retry_count == 7);
	CHECK(ev->param.conn.private_data_len == 56 && !strcmp(ev->param.conn.private_data, "ask"));
	server = ev->id;
	CHECK(!rdma_ack_cm_event(ev));
	create_qp(server);
	CHECK(!rdma_accept(server, &grant));
	ev = expect(here, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(ev->param.conn.private_data_len == 196 && !strcmp(ev->param.conn.private_data, "grant"));
	CHECK(!rdma_ack_cm_event(ev));
	pass(there, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!ibv_query_qp(server->qp, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.max_dest_rd_atomic == 5 && attr.max_rd_atomic == 1 && attr.dest_qp_num == client->qp->qp_num);
	CHECK(!ibv_query_qp(client->qp, &attr, IBV_QP_STATE, &init));
	CHECK(attr.max_rd_atomic == 5 && attr.max_dest_rd_atomic == 1 && attr.retry_cnt == 5 && attr.timeout >= 14);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	return ibv_create_qp(id->pd, &attr);
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(attr.qp_state == state && (mask & IBV_QP_STATE));
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

/* Queue pairs that the identifiers do not know, as in UCX. */
static void foreign(void)
{
	struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listening(there, RDMA_PS_TCP, PORT), *client = resolved(here, RDMA_PS_TCP, PORT), *server;
	struct ibv_cq *cq = ibv_create_cq(client->verbs, 16, NULL, NULL, 0);
	struct ibv_qp *mine = own_qp(client, cq), *theirs;
	struct rdma_conn_param param = {.qp_num = mine->qp_num, .responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct rdma_cm_event *ev;

	CHECK(cq && mine);
	FAILS(EINVAL, rdma_connect(client, NULL));
	CHECK(!rdma_connect(client, &param));
	ev = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = ev->id;
	CHECK(ev->param.conn.qp_num == mine->qp_num);
	CHECK(!rdma_ack_cm_event(ev));
	theirs = own_qp(server, cq);
	move(server, theirs, IBV_QPS_INIT);
	move(server, theirs, IBV_QPS_RTR);
	move(server, theirs, IBV_QPS_RTS);
	param.qp_num = theirs->qp_num;
	CHECK(!rdma_accept(server, &param));
	ev = expect(here, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(ev->param.conn.qp_num == theirs->qp_num);
	CHECK(!rdma_ack_cm_event(ev));
	move(client, mine, IBV_QPS_INIT);
	move(client, mine, IBV_QPS_RTR);
	move(client, mine, IBV_QPS_RTS);
	CHECK(!rdma_establish(client));
	FAILS(EINVAL, rdma_establish(client));
	pass(there, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(client));
	pass(there, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(server) && !rdma_destroy_id(client) && !rdma_destroy_id(listener));
	CHECK(!ibv_destroy_qp(mine) && !ibv_destroy_qp(theirs) && !ibv_destroy_cq(cq));
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void rejected(void)
{
	static const struct {
		int (*reject)(struct rdma_cm_id *, const void *, uint8_t);
		int status;
	} ways[] = {{rdma_reject, 28}, {rdma_reject_ece, 35}};
	struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listening(there, RDMA_PS_TCP, PORT);
	struct rdma_cm_event *ev;

	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *client = resolved(here, RDMA_PS_TCP, PORT);
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;

		create_qp(client);
		CHECK(!rdma_connect(client, NULL));
		ev = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(!ways[i].reject(ev->id, "no", 2));
		CHECK(!rdma_destroy_id(ev->id));
		CHECK(!rdma_ack_cm_event(ev));
		ev = expect(here, RDMA_CM_EVENT_REJECTED);
		CHECK(ev->status == ways[i].status && ev->param.conn.private_data_len == 148 && !strcmp(ev->param.conn.private_data, "no"));
		CHECK(!rdma_ack_cm_event(ev));
		CHECK(!ibv_query_qp(client->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
		rdma_destroy_ep(client);
	}
	rdma_destroy_ep(listener);
	/* The listener has ended. */
	listener = resolved(here, RDMA_PS_TCP, PORT);
	create_qp(listener);
	CHECK(!rdma_connect(listener, NULL));
	ev = expect(here, RDMA_CM_EVENT_REJECTED);
	CHECK(ev->status == 8);
	CHECK(!rdma_ack_cm_event(ev));
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void datagrams(void)
{
	struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listening(there, RDMA_PS_UDP, PORT), *client = resolved(here, RDMA_PS_UDP, PORT), *server;
	struct rdma_conn_param grant = {.private_data = "given", .private_data_len = 5};
	static char src[] = "a datagram", dst[40 + sizeof src];
	struct rdma_cm_event *ev;
	struct ibv_mr *ms, *md;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	create_qp(client);
	CHECK(!rdma_connect(client, NULL));
	ev = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = ev->id;
	CHECK(server->qp_type == IBV_QPT_UD);
	CHECK(!rdma_ack_cm_event(ev));
	create_qp(server);
	grant.qp_num = server->qp->qp_num;
	CHECK(!rdma_accept(server, &grant));
	ev = expect(here, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(ev->param.ud.qp_num == server->qp->qp_num && ev->param.ud.qkey == RDMA_UDP_QKEY && !strcmp(ev->param.ud.private_data, "given"));
	ah = ibv_create_ah(client->pd, &ev->param.ud.ah_attr);
	CHECK(ah);
	ms = rdma_reg_msgs(client, src, sizeof src);
	md = rdma_reg_msgs(server, dst, sizeof dst);
	CHECK(ms && md && !rdma_post_recv(server, NULL, dst, sizeof dst, md));
	CHECK(!rdma_post_ud_send(client, NULL, src, sizeof src, ms, 0, ah, ev->param.ud.qp_num));
	CHECK(!rdma_ack_cm_event(ev));
	CHECK(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.src_qp == client->qp->qp_num);
	CHECK(!strcmp(dst + 40, src));
	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(ms) && !rdma_dereg_mr(md));
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void groups(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in group = {.sin_family = AF_INET}, other = {.sin_family = AF_INET};
	struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, .addr = (struct sockaddr *)&other};
	static char src[] = "to all", dst[40 + sizeof src];
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct ibv_mr *ms, *md;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
	inet_pton(AF_INET, "239.1.2.4", &other.sin_addr);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_UDP));
	FAILS(EINVAL, rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	CHECK(!rdma_bind_addr(id, at(0)));
	create_qp(id);
	FAILS(EINVAL, rdma_join_multicast(id, at(0), NULL));
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &group));
	ev = expect(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!ev->status && ev->id == id && ev->param.ud.private_data == &group && ev->param.ud.qp_num == 0xFFFFFF);
	ah = ibv_create_ah(id->pd, &ev->param.ud.ah_attr);
	ms = rdma_reg_msgs(id, src, sizeof src);
	md = rdma_reg_msgs(id, dst, sizeof dst);
	CHECK(ah && ms && md && !rdma_post_recv(id, NULL, dst, sizeof dst, md));
	CHECK(!rdma_post_ud_send(id, NULL, src, sizeof src, ms, 0, ah, 0xFFFFFF));
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(dst + 40, src));
	CHECK(!rdma_ack_cm_event(ev));
	CHECK(!rdma_join_multicast_ex(id, &attr, &other));
	ev = expect(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(ev->param.ud.private_data == &other);
	CHECK(!rdma_ack_cm_event(ev));
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	FAILS(ENOTSUP, rdma_join_multicast_ex(id, &attr, NULL));
	attr.comp_mask = 0;
	FAILS(EINVAL, rdma_join_multicast_ex(id, &attr, NULL));
	CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
	FAILS(EADDRNOTAVAIL, rdma_leave_multicast(id, (struct sockaddr *)&group));
	for (int i = 0; i < 300; i++) { /* leaving a group before its event drops the event */
		CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &group));
		usleep((useconds_t)(i % 10 * 20));
		CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
	}
	CHECK(poll(&(struct pollfd){.fd = ch->fd, .events = POLLIN}, 1, 50) == 0);
	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(ms) && !rdma_dereg_mr(md));
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(ch);
}

static void *serve(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;

	CHECK(!rdma_get_request(listener, &id));
	CHECK(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && id->channel != listener->channel);
	CHECK(!strcmp(id->event->param.conn.private_data, "first second"));
	CHECK(!rdma_accept(id, NULL));
	return id;
}

static void *disconnect(void *id)
{
	CHECK(!rdma_disconnect(id));
	CHECK(((struct rdma_cm_id *)id)->event->event == RDMA_CM_EVENT_DISCONNECTED);
	return NULL;
}

/* The calls of both ends wait. */
static void synchronous(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = {.sq_sig_all = 1, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param = {.private_data = "second", .private_data_len = 6, .retry_count = 7};
	struct rdma_cm_id *listener, *client, *server;
	pthread_t thread;

	CHECK(!rdma_getaddrinfo(getenv("AT"), "7471", &hints, &res));
	CHECK(!rdma_create_ep(&listener, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	FAILS(EINVAL, rdma_get_request(NULL, &client));
	CHECK(!rdma_listen(listener, 1));
	CHECK(!pthread_create(&thread, NULL, serve, listener));
	hints.ai_flags = 0;
	CHECK(!rdma_getaddrinfo(getenv("AT"), "7471", &hints, &res));
	res->ai_connect = strdup("first ");
	res->ai_connect_len = 6;
	CHECK(!rdma_create_ep(&client, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	CHECK(client->qp && client->send_cq && client->recv_cq && client->send_cq_channel && client->pd == client->qp->pd);
	CHECK(!rdma_connect(client, &param));
	CHECK(client->event && client->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!pthread_join(thread, (void **)&server));
	transfer(client, server);
	CHECK(!pthread_create(&thread, NULL, disconnect, server)); /* each waits for the other */
	disconnect(client);
	CHECK(!pthread_join(thread, NULL));
	rdma_destroy_ep(server);
	/* The listener is gone: a connection is refused. */
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
	CHECK(!rdma_getaddrinfo(getenv("AT"), "7471", &hints, &res));
	attr.send_cq = attr.recv_cq = NULL; /* rdma_create_ep had set the client's */
	CHECK(!rdma_create_ep(&client, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	FAILS(ECONNREFUSED, rdma_connect(client, NULL));
	rdma_destroy_ep(client);
}

static void shared_queue(void)
{
	struct pair p;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct rdma_cm_event *ev;

	p.here = rdma_create_event_channel();
	p.there = rdma_create_event_channel();
	p.listener = listening(p.there, RDMA_PS_TCP, PORT);
	p.client = resolved(p.here, RDMA_PS_TCP, PORT);
	CHECK(!rdma_create_srq(p.client, NULL, &srq));
	CHECK(p.client->srq);
	FAILS(EINVAL, rdma_create_srq(p.client, NULL, &srq));
	create_qp(p.client);
	CHECK(p.client->qp->srq == p.client->srq);
	CHECK(!rdma_connect(p.client, NULL));
	ev = expect(p.there, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(ev->param.conn.srq == 1);
	p.server = ev->id;
	CHECK(!rdma_ack_cm_event(ev));
	create_qp(p.server);
	CHECK(!rdma_accept(p.server, NULL));
	pass(p.here, RDMA_CM_EVENT_ESTABLISHED);
	pass(p.there, RDMA_CM_EVENT_ESTABLISHED);
	transfer(p.server, p.client);
	close_pair(&p);
}

enum { THREADS = 4, ROUNDS = 20 };

static void *connect_often(void *port)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct pair p;

		connect_pair(&p, (int)(intptr_t)port);
		close_pair(&p);
	}
	return NULL;
}

/* Threads make connections, each with separate channels. */
static void threads(void)
{
	pthread_t all[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&all[i], NULL, connect_often, (void *)(intptr_t)(PORT + i)));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(all[i], NULL));
}

static int left = THREADS * ROUNDS; /* requests to be accepted */

static void *take_requests(void *channel)
{
	while (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) >= 0) {
		struct rdma_cm_event *ev;
		struct rdma_cm_id *id;

		/* Takes requests, and the ends of accepted connections. */
		for (;;) {
			CHECK(!rdma_get_cm_event(channel, &ev));
			id = ev->id;
			if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
				break;
			CHECK(!rdma_ack_cm_event(ev));
		}
		CHECK(!rdma_reject(id, NULL, 0));
		CHECK(!rdma_ack_cm_event(ev));
		CHECK(!rdma_destroy_id(id));
	}
	return NULL;
}

static void *ask_often(void *unused)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, PORT);

		create_qp(id);
		CHECK(!rdma_connect(id, NULL));
		CHECK(!rdma_ack_cm_event(expect(ch, RDMA_CM_EVENT_REJECTED)));
		rdma_destroy_ep(id);
	}
	rdma_destroy_event_channel(ch);
	return NULL;
}

/* Threads share the channel of a listener. */
static void shared_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listening(ch, RDMA_PS_TCP, PORT);
	pthread_t all[2 * THREADS];

	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(!pthread_create(&all[i], NULL, i % 2 ? take_requests : ask_often, ch));
	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(!pthread_join(all[i], NULL));
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static const struct test tests[] = {
	{"exchange", exchange},
	{"parameters", parameters},
	{"foreign queue pairs", foreign},
	{"rejected", rejected},
	{"datagrams", datagrams},
	{"groups", groups},
	{"synchronous", synchronous},
	{"shared receive queue", shared_queue},
	{"threads", threads},
	{"shared channel", shared_channel},
	{0},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
