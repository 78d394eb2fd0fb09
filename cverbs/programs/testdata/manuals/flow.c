/* A server and a client that follow the flow of READ and WRITE over rdma_cm, step by step:
 *
 *	flow -s ADDRESS [PORT]	the server: it prints the port that it listens on
 *	flow -c ADDRESS PORT	the client
 *
 * Each side tells the other in a SEND where its memory region is. The client then writes into the
 * server's region, reads it back, tells the server with another SEND, and disconnects. A thread of
 * each side takes completions from a completion channel; the main thread takes connection events.
 */
#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGION = 64 << 10 };

#define TEST(condition) \
	do { \
		if (!(condition)) { \
			perror(#condition); \
			exit(1); \
		} \
	} while (0)

struct message {
	enum { MEMORY, DONE } type;
	uint32_t rkey;
	uint64_t addr;
};

struct context {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	pthread_t poller;
};

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *recv_mr, *send_mr, *local_mr, *remote_mr;
	struct message *recv_msg, *send_msg;
	char *rdma_local_region, *rdma_remote_region;
	struct message peer;
	int connected, client;
};

static struct context *s_ctx;

/* The connection may end before the poller has seen the last completion: what it uses stays until then. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t seen = PTHREAD_COND_INITIALIZER;
static int finished;

static void finish(void)
{
	pthread_mutex_lock(&lock);
	finished = 1;
	pthread_cond_signal(&seen);
	pthread_mutex_unlock(&lock);
}

static void await_finish(void)
{
	pthread_mutex_lock(&lock);
	while (!finished)
		pthread_cond_wait(&seen, &lock);
	pthread_mutex_unlock(&lock);
}

static void post_receive(struct connection *conn)
{
	struct ibv_sge sge = {(uintptr_t)conn->recv_msg, sizeof(struct message), conn->recv_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uintptr_t)conn, .sg_list = &sge, .num_sge = 1}, *bad;

	TEST(!ibv_post_recv(conn->id->qp, &wr, &bad));
}

static void send_message(struct connection *conn, int type)
{
	struct ibv_sge sge = {(uintptr_t)conn->send_msg, sizeof(struct message), conn->send_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)conn, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	conn->send_msg->type = type;
	conn->send_msg->addr = (uintptr_t)conn->rdma_remote_region;
	conn->send_msg->rkey = conn->remote_mr->rkey;
	TEST(!ibv_post_send(conn->id->qp, &wr, &bad));
}

static void rdma(struct connection *conn, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)conn->rdma_local_region, REGION, conn->local_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)conn, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {conn->peer.addr, conn->peer.rkey}}, *bad;

	TEST(!ibv_post_send(conn->id->qp, &wr, &bad));
}

static void pattern(char *region, int check)
{
	for (int i = 0; i < REGION; i++)
		if (check)
			TEST(region[i] == (char)(i * 7 + (i >> 8)));
		else
			region[i] = (char)(i * 7 + (i >> 8));
}

static void on_completion(struct ibv_wc *wc)
{
	struct connection *conn = (struct connection *)(uintptr_t)wc->wr_id;

	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return; /* the connection has ended */
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
	switch (wc->opcode) {
	case IBV_WC_RECV:
		if (conn->recv_msg->type == DONE) {
			pattern(conn->rdma_remote_region, 1);
			printf("server: the region is as the client wrote it\n");
			finish();
			return;
		}
		conn->peer = *conn->recv_msg;
		post_receive(conn);
		if (!conn->client)
			return send_message(conn, MEMORY);
		pattern(conn->rdma_local_region, 0);
		return rdma(conn, IBV_WR_RDMA_WRITE);
	case IBV_WC_RDMA_WRITE:
		memset(conn->rdma_local_region, 0, REGION);
		return rdma(conn, IBV_WR_RDMA_READ);
	case IBV_WC_RDMA_READ:
		pattern(conn->rdma_local_region, 1);
		printf("client: what was read is what was written\n");
		return send_message(conn, DONE);
	case IBV_WC_SEND:
		if (conn->send_msg->type == DONE) {
			TEST(!rdma_disconnect(conn->id));
			finish();
		}
		return;
	default:
		fprintf(stderr, "completion of opcode %d\n", wc->opcode);
		exit(1);
	}
}

static void *poll_cq(void *unused)
{
	for (;;) {
		struct ibv_cq *cq;
		struct ibv_wc wc;
		void *ctx;

		TEST(!ibv_get_cq_event(s_ctx->channel, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
		TEST(!ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc))
			on_completion(&wc);
	}
	return unused;
}

static void build_context(struct ibv_context *verbs)
{
	if (s_ctx)
		return;
	s_ctx = calloc(1, sizeof *s_ctx);
	s_ctx->verbs = verbs;
	TEST(s_ctx->pd = ibv_alloc_pd(verbs));
	TEST(s_ctx->channel = ibv_create_comp_channel(verbs));
	TEST(s_ctx->cq = ibv_create_cq(verbs, 10, NULL, s_ctx->channel, 0));
	TEST(!ibv_req_notify_cq(s_ctx->cq, 0));
	TEST(!pthread_create(&s_ctx->poller, NULL, poll_cq, NULL));
}

static void build_connection(struct rdma_cm_id *id, int client)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1}};
	struct connection *conn = calloc(1, sizeof *conn);

	build_context(id->verbs);
	attr.send_cq = attr.recv_cq = s_ctx->cq;
	TEST(!rdma_create_qp(id, s_ctx->pd, &attr));
	id->context = conn;
	conn->id = id;
	conn->client = client;
	conn->send_msg = calloc(1, sizeof *conn->send_msg);
	conn->recv_msg = calloc(1, sizeof *conn->recv_msg);
	conn->rdma_local_region = calloc(1, REGION);
	conn->rdma_remote_region = calloc(1, REGION);
	TEST(conn->send_mr = ibv_reg_mr(s_ctx->pd, conn->send_msg, sizeof *conn->send_msg, 0));
	TEST(conn->recv_mr = ibv_reg_mr(s_ctx->pd, conn->recv_msg, sizeof *conn->recv_msg, IBV_ACCESS_LOCAL_WRITE));
	TEST(conn->local_mr = ibv_reg_mr(s_ctx->pd, conn->rdma_local_region, REGION, IBV_ACCESS_LOCAL_WRITE));
	TEST(conn->remote_mr = ibv_reg_mr(s_ctx->pd, conn->rdma_remote_region, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	post_receive(conn);
}

static void destroy_connection(struct rdma_cm_id *id)
{
	struct connection *conn = id->context;

	await_finish();
	rdma_destroy_qp(id);
	TEST(!ibv_dereg_mr(conn->send_mr) && !ibv_dereg_mr(conn->recv_mr) && !ibv_dereg_mr(conn->local_mr) && !ibv_dereg_mr(conn->remote_mr));
	free(conn->send_msg);
	free(conn->recv_msg);
	free(conn->rdma_local_region);
	free(conn->rdma_remote_region);
	free(conn);
	TEST(!rdma_destroy_id(id));
}

/* Returns 1 when the connection has ended. */
static int on_event(struct rdma_cm_event *event)
{
	struct rdma_conn_param params = {.initiator_depth = 1, .responder_resources = 1, .rnr_retry_count = 7, .retry_count = 7};
	struct rdma_cm_id *id = event->id;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		build_connection(id, 1);
		TEST(!rdma_resolve_route(id, 2000));
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		TEST(!rdma_connect(id, &params));
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		build_connection(id, 0);
		TEST(!rdma_accept(id, &params));
		return 0;
	case RDMA_CM_EVENT_ESTABLISHED: {
		struct connection *conn = id->context;

		conn->connected = 1;
		if (conn->client)
			send_message(conn, MEMORY);
		return 0;
	}
	case RDMA_CM_EVENT_DISCONNECTED:
		destroy_connection(id);
		return 1;
	default:
		fprintf(stderr, "event %s, status %d\n", rdma_event_str(event->event), event->status);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct addrinfo *addr;
	int server = argc >= 3 && !strcmp(argv[1], "-s");

	if (argc > 4 || (!server && (argc < 4 || strcmp(argv[1], "-c")))) {
		fprintf(stderr, "usage: flow -s ADDRESS [PORT] | flow -c ADDRESS PORT\n");
		return 2;
	}
	setlinebuf(stdout);
	TEST(!getaddrinfo(argv[2], argv[3], NULL, &addr));
	TEST(channel = rdma_create_event_channel());
	TEST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (server) {
		TEST(!rdma_bind_addr(id, addr->ai_addr));
		TEST(!rdma_listen(id, 10));
		printf("server: listening on port %d\n", ntohs(rdma_get_src_port(id)));
	} else {
		TEST(!rdma_resolve_addr(id, NULL, addr->ai_addr, 2000));
	}
	freeaddrinfo(addr);
	while (!rdma_get_cm_event(channel, &event)) {
		struct rdma_cm_event copy = *event;

		TEST(!rdma_ack_cm_event(event));
		if (on_event(&copy))
			break;
	}
	if (server)
		TEST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	printf("disconnected\n");
	return 0;
}
