/* objects.c: tests of identifiers, channels, events and addresses, and of mistakes of programs. */
#include "check.h"

#include <endian.h>
#include <infiniband/ib.h>
#include <sys/wait.h>

enum { PORT = 7472 };

/* Every call on an identifier, with good parameters. */
static int call(int n, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct ibv_qp_init_attr_ex attr_ex = {.cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct rdma_conn_param param = {.qp_num = 7};
	struct ibv_qp_attr qp_attr = {.qp_state = IBV_QPS_RTR};
	struct ibv_ece ece = {0};
	struct rdma_cm_id *request;
	uint8_t tos = 0;
	int mask;

	switch (n) {
	case 0: return rdma_bind_addr(id, at(0));
	case 1: return rdma_resolve_addr(id, NULL, at(1), 100);
	case 2: return rdma_resolve_route(id, 100);
	case 3: return rdma_create_qp(id, NULL, &attr);
	case 4: return rdma_create_qp_ex(id, &attr_ex);
	case 5: return rdma_create_srq(id, NULL, &srq);
	case 6: return rdma_create_srq_ex(id, &srq_ex);
	case 7: return rdma_connect(id, &param);
	case 8: return rdma_establish(id);
	case 9: return rdma_listen(id, 1);
	case 10: return rdma_get_request(id, &request);
	case 11: return rdma_accept(id, &param);
	case 12: return rdma_reject(id, NULL, 0);
	case 13: return rdma_reject_ece(id, NULL, 0);
	case 14: return rdma_notify(id, IBV_EVENT_COMM_EST);
	case 15: return rdma_disconnect(id);
	case 16: return rdma_join_multicast(id, at(0), NULL);
	case 17: return rdma_leave_multicast(id, at(0));
	case 18: return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos);
	case 19: return rdma_migrate_id(id, NULL);
	case 20: return rdma_init_qp_attr(id, &qp_attr, &mask);
	case 21: return rdma_set_local_ece(id, &ece);
	case 22: return rdma_get_remote_ece(id, &ece);
	case 23: return rdma_destroy_id(id);
	}
	return 1;
}

static void bad_pointers(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *gone = rdma_create_event_channel();
	struct rdma_cm_id *freed, *id;
	struct rdma_cm_event *ev;

	CHECK(!rdma_create_id(ch, &freed, NULL, RDMA_PS_TCP));
	CHECK(!rdma_destroy_id(freed));
	rdma_destroy_event_channel(gone);
	for (int n = 0; call(n, NULL) != 1; n++) {
		FAILS(EINVAL, call(n, NULL));
		FAILS(EINVAL, call(n, freed));
	}
	rdma_destroy_qp(freed);
	rdma_destroy_srq(NULL);
	rdma_destroy_ep(freed);
	rdma_destroy_event_channel(gone);
	rdma_destroy_event_channel(NULL);
	FAILS(EINVAL, rdma_create_id(gone, &id, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_create_id(ch, NULL, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_create_id(ch, &id, NULL, 77));
	FAILS(EINVAL, rdma_get_cm_event(NULL, &ev));
	FAILS(EINVAL, rdma_get_cm_event(gone, &ev));
	FAILS(EINVAL, rdma_get_cm_event(ch, NULL));
	FAILS(EINVAL, rdma_ack_cm_event(NULL));
	CHECK(!rdma_get_src_port(freed) && !rdma_get_dst_port(NULL));
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_bind_addr(id, NULL));
	FAILS(EINVAL, rdma_resolve_addr(id, NULL, NULL, 1));
	FAILS(EINVAL, rdma_migrate_id(id, gone));
	CHECK(!rdma_resolve_addr(id, NULL, at(1), 2000));
	ev = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(ev));
	FAILS(EINVAL, rdma_ack_cm_event(ev));
	FAILS(EINVAL, rdma_create_qp(id, NULL, NULL));
	FAILS(EINVAL, rdma_create_srq_ex(id, NULL));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* Only these calls work on an unbound identifier. */
static void wrong_state(void)
{
	static const int good[] = {0, 1, 9, 18, 19, 21, 22, 23};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	for (int n = 0; n < 24; n++) {
		int ok = 0;

		for (size_t i = 0; i < sizeof good / sizeof *good; i++)
			ok |= good[i] == n;
		if (ok || n == 17)
			continue;
		errno = 0;
		if (call(n, id) != -1 || errno != EINVAL)
			fprintf(stderr, "call %d: ", n);
		FAILS(EINVAL, call(n, id));
	}
	FAILS(EADDRNOTAVAIL, rdma_leave_multicast(id, at(0)));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void channel_fd(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *other = rdma_create_event_channel();
	struct pollfd fd = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id, *second;

	CHECK(!fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK));
	FAILS(EAGAIN, rdma_get_cm_event(ch, &ev));
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &second, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, at(1), 2000));
	CHECK(poll(&fd, 1, 5000) == 1);
	CHECK(!rdma_resolve_addr(second, NULL, at(1), 2000));
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(poll(&fd, 1, 5000) == 1);
	/* Migrating an identifier moves its events. */
	CHECK(!rdma_migrate_id(second, other));
	FAILS(EAGAIN, rdma_get_cm_event(ch, &ev));
	expect_none(ch);
	CHECK(second->channel == other);
	ev = expect(other, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(ev->id == second && !rdma_ack_cm_event(ev));
	/* Destroying it drops them. */
	CHECK(!rdma_resolve_route(id, 100));
	CHECK(poll(&fd, 1, 5000) == 1);
	CHECK(!rdma_destroy_id(id));
	expect_none(ch);
	CHECK(!rdma_destroy_id(second));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(other);
}

static int acked;

static void *ack_later(void *event)
{
	usleep(50000);
	__atomic_store_n(&acked, 1, __ATOMIC_SEQ_CST);
	CHECK(!rdma_ack_cm_event(event));
	return NULL;
}

static void acknowledgement(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	pthread_t thread;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, at(1), 2000));
	ev = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!pthread_create(&thread, NULL, ack_later, ev));
	CHECK(!rdma_destroy_id(id));
	CHECK(__atomic_load_n(&acked, __ATOMIC_SEQ_CST));
	CHECK(!pthread_join(thread, NULL));
	rdma_destroy_event_channel(ch);
}

static void addresses(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in any = {.sin_family = AF_INET}, *in;
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
	struct sockaddr_in nowhere = {.sin_family = AF_INET};
	struct sockaddr infiniband = {.sa_family = AF_IB}, unknown = {.sa_family = AF_UNIX};
	struct rdma_cm_id *id, *second, *third;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &second, NULL, RDMA_PS_TCP) &&
	      !rdma_create_id(ch, &third, NULL, RDMA_PS_TCP));
	CHECK(!id->verbs && !rdma_get_src_port(id) && rdma_get_local_addr(id)->sa_family == 0);
	FAILS(ENODEV, rdma_bind_addr(id, &infiniband));
	FAILS(ENODEV, rdma_resolve_addr(id, NULL, &infiniband, 100));
	FAILS(ENODEV, rdma_resolve_addr(id, &infiniband, at(1), 100));
	FAILS(EAFNOSUPPORT, rdma_bind_addr(id, &unknown));
	inet_pton(AF_INET, "192.0.2.1", &nowhere.sin_addr);
	FAILS(EADDRNOTAVAIL, rdma_bind_addr(id, (struct sockaddr *)&nowhere));
	CHECK(!rdma_bind_addr(id, at(0)));
	in = (struct sockaddr_in *)rdma_get_local_addr(id);
	CHECK(in->sin_family == AF_INET && in->sin_port && in->sin_port == rdma_get_src_port(id));
	CHECK(in->sin_addr.s_addr == ((struct sockaddr_in *)at(0))->sin_addr.s_addr);
	CHECK(id->verbs && id->port_num == 1 && id->pd && id->pd->context == id->verbs);
	FAILS(EINVAL, rdma_bind_addr(id, at(0)));
	FAILS(EINVAL, rdma_bind_addr(id, &infiniband));
	FAILS(EINVAL, rdma_resolve_addr(id, NULL, &infiniband, 100));
	FAILS(EADDRINUSE, rdma_bind_addr(second, at(ntohs(rdma_get_src_port(id)))));
	CHECK(!rdma_bind_addr(second, (struct sockaddr *)&any));
	CHECK(!second->verbs && rdma_get_src_port(second));
	CHECK(!rdma_bind_addr(third, (struct sockaddr *)&any6));
	CHECK(rdma_get_local_addr(third)->sa_family == AF_INET6 && rdma_get_src_port(third) && !third->verbs);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(second) && !rdma_destroy_id(third));
	/* An identifier without an address gets one. */
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_listen(id, 0) && rdma_get_src_port(id));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void options(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id, *second, *ud;
	uint8_t byte = 17;
	int on = 1;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &second, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &ud, NULL, RDMA_PS_UDP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte));
	FAILS(EINVAL, rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	CHECK(!rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on));
	FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1));
	FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1));
	FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, 4, &on, sizeof on));
	FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, -1, &on, sizeof on));
	FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &on, sizeof on));
	FAILS(ENOSYS, rdma_set_option(id, 2, 0, &on, sizeof on));
	CHECK(!rdma_bind_addr(id, at(PORT)) && !rdma_bind_addr(second, at(PORT)));
	byte = 0x60;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte));
	CHECK(!rdma_resolve_addr(id, NULL, at(1), 2000));
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!id->route.num_paths);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == 1 && id->route.path_rec->traffic_class == 0x60 && id->route.path_rec->packet_life_time == 16);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(second) && !rdma_destroy_id(ud));
	rdma_destroy_event_channel(ch);
}

static void names(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP}, *res;
	struct sockaddr_ib *ib;
	uint8_t gid[16];

	CHECK(!rdma_getaddrinfo(NULL, "7471", &hints, &res));
	CHECK(res->ai_qp_type == IBV_QPT_UD && res->ai_src_len && !res->ai_dst_len && res->ai_family == res->ai_src_addr->sa_family);
	rdma_freeaddrinfo(res);
	CHECK(!rdma_getaddrinfo("192.0.2.1", "7471", NULL, &res));
	CHECK(res->ai_qp_type == IBV_QPT_RC && res->ai_port_space == RDMA_PS_TCP && res->ai_family == AF_INET);
	CHECK(!res->ai_src_len && res->ai_dst_len == sizeof(struct sockaddr_in) && ((struct sockaddr_in *)res->ai_dst_addr)->sin_port == htons(7471));
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_qp_type = IBV_QPT_UD, .ai_src_addr = at(5), .ai_src_len = sizeof(struct sockaddr_in)};
	CHECK(!rdma_getaddrinfo("192.0.2.1", NULL, &hints, &res));
	CHECK(res->ai_port_space == RDMA_PS_UDP && res->ai_src_len == hints.ai_src_len && res->ai_src_addr != hints.ai_src_addr);
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST};
	CHECK(rdma_getaddrinfo("not.a.number", NULL, &hints, &res) == EAI_NONAME);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_FAMILY | RAI_NUMERICHOST, .ai_family = AF_IB};
	CHECK(rdma_getaddrinfo("192.0.2.1", NULL, &hints, &res) == EAI_ADDRFAMILY);
	CHECK(!rdma_getaddrinfo("fd00::1", "7471", &hints, &res) && res->ai_family == AF_IB && res->ai_dst_len == sizeof *ib);
	ib = (struct sockaddr_ib *)res->ai_dst_addr;
	inet_pton(AF_INET6, "fd00::1", gid);
	CHECK(ib->sib_family == AF_IB && !memcmp(&ib->sib_addr, gid, sizeof gid) && ib->sib_pkey == htons(0xFFFF));
	CHECK(be64toh(ib->sib_sid) == (RDMA_PS_TCP << 16 | 7471) && be64toh(ib->sib_sid_mask) == UINT64_MAX);
	rdma_freeaddrinfo(res);
	FAILS(EINVAL, rdma_getaddrinfo(NULL, NULL, NULL, &res));
	FAILS(EINVAL, rdma_getaddrinfo("192.0.2.1", NULL, NULL, NULL));
	rdma_freeaddrinfo(NULL);
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED"));
	CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
}

static void devices(void)
{
	int n = 0;
	struct ibv_context **list = rdma_get_devices(&n);
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	CHECK(list && n >= 1 && list[0] && !list[n]);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, at(0)));
	CHECK(id->verbs == list[0]); /* it is the same context, not a second one */
	rdma_free_devices(list);
	rdma_free_devices(NULL);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* In a child the parent's objects are dead, and all calls work on new objects. */
static void forked(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct pair p;
	pid_t pid;
	int status;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, at(0)));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct rdma_cm_event *ev;

		alarm(30);
		for (int n = 0; n < 24; n++)
			FAILS(EINVAL, call(n, id));
		FAILS(EINVAL, rdma_get_cm_event(ch, &ev));
		rdma_destroy_event_channel(ch);
		connect_pair(&p, PORT);
		transfer(p.client, p.server);
		close_pair(&p);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	connect_pair(&p, PORT);
	transfer(p.server, p.client);
	close_pair(&p);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void extensions(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_ece ece = {.vendor_id = 1}, none = {0};
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	FAILS(EOPNOTSUPP, rdma_set_local_ece(id, &ece));
	CHECK(!rdma_set_local_ece(id, &none));
	CHECK(!rdma_get_remote_ece(id, &ece) && !ece.vendor_id);
	FAILS(EINVAL, rdma_set_local_ece(id, NULL));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static const struct test tests[] = {
	{"bad pointers", bad_pointers},
	{"wrong state", wrong_state},
	{"channel descriptor", channel_fd},
	{"acknowledgement", acknowledgement},
	{"addresses", addresses},
	{"options", options},
	{"names", names},
	{"devices", devices},
	{"fork", forked},
	{"extensions", extensions},
	{0},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
