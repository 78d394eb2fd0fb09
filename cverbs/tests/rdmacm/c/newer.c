/* newer.c: calls of rdma-core later than 44. */
#include "check.h"

#include <infiniband/ib.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int max, int timeout);

#define ADDRINFO_RESOLVED ((enum rdma_cm_event_type)16)
#define USER ((enum rdma_cm_event_type)18)
#define INTERNAL ((enum rdma_cm_event_type)19)

enum { SA = 0x10, DNS = 0x20 };

/* The argument is the first member of the parameters. */
static uint64_t argument(const struct rdma_cm_event *ev)
{
	uint64_t arg;

	memcpy(&arg, &ev->param, sizeof arg);
	return arg;
}

static void posted(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *other = rdma_create_event_channel();
	struct rdma_cm_id *id, *second;
	struct rdma_cm_event *ev;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &second, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_write_cm_event(NULL, USER, 0, 0));
	FAILS(EINVAL, rdma_write_cm_event(id, INTERNAL, 0, 0));
	FAILS(EINVAL, rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0));
	CHECK(!rdma_write_cm_event(id, USER, 7, 0x0123456789ABCDEF) && !rdma_write_cm_event(id, USER, 0, 2));
	CHECK(!rdma_get_cm_event(ch, &ev) && ev->event == USER && ev->id == id && ev->status == 7);
	CHECK(argument(ev) == 0x0123456789ABCDEF && !strcmp(rdma_event_str(ev->event), "RDMA_CM_EVENT_USER"));
	CHECK(!rdma_ack_cm_event(ev));
	/* Events move with their identifier, and end with it. */
	CHECK(!rdma_write_cm_event(second, USER, 0, 3));
	CHECK(!rdma_migrate_id(id, other));
	CHECK(!rdma_get_cm_event(other, &ev) && ev->id == id && argument(ev) == 2 && !rdma_ack_cm_event(ev));
	CHECK(!rdma_get_cm_event(ch, &ev) && ev->id == second && argument(ev) == 3 && !rdma_ack_cm_event(ev));
	CHECK(!rdma_write_cm_event(second, USER, 0, 4) && !rdma_destroy_id(second));
	expect_none(ch);
	CHECK(!rdma_write_cm_event(id, USER, 0, 5));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(other);
}

static void names(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_addrinfo hints = {.ai_flags = SA | DNS}, *res;
	struct rdma_cm_id *id, *sync;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_resolve_addrinfo(NULL, "192.0.2.1", "7471", NULL));
	FAILS(EINVAL, rdma_query_addrinfo(id, NULL));
	FAILS(ENOENT, rdma_query_addrinfo(id, &res));
	FAILS(EOPNOTSUPP, rdma_resolve_addrinfo(id, NULL, "7471", &hints));
	hints.ai_flags = SA;
	FAILS(EOPNOTSUPP, rdma_resolve_addrinfo(id, "192.0.2.1", "7471", &hints));
	FAILS(EINVAL, rdma_resolve_addrinfo(id, NULL, NULL, &hints));
	FAILS(EINVAL, rdma_resolve_addrinfo(id, NULL, "7471", &hints)); /* it has no device */
	FAILS(ENOENT, rdma_getaddrinfo(NULL, "7471", &hints, &res));
	FAILS(EINVAL, rdma_getaddrinfo(NULL, NULL, &hints, &res));
	FAILS(EOPNOTSUPP, rdma_getaddrinfo("192.0.2.1", "7471", &hints, &res));
	hints.ai_flags = RAI_NUMERICHOST;
	FAILS(EADDRNOTAVAIL, rdma_resolve_addrinfo(id, "not.a.number", "7471", &hints));
	CHECK(!rdma_resolve_addrinfo(id, "192.0.2.1", "7471", NULL));
	FAILS(EBUSY, rdma_resolve_addrinfo(id, "192.0.2.1", "7471", NULL));
	pass(ch, ADDRINFO_RESOLVED);
	CHECK(!rdma_query_addrinfo(id, &res) && ((struct sockaddr_in *)res->ai_dst_addr)->sin_port == htons(7471));
	rdma_freeaddrinfo(res);
	FAILS(ENOENT, rdma_query_addrinfo(id, &res));
	CHECK(!rdma_resolve_addrinfo(sync, "192.0.2.1", "7471", NULL) && !rdma_query_addrinfo(sync, &res));
	rdma_freeaddrinfo(res);
	CHECK(!rdma_resolve_addrinfo(id, "192.0.2.1", "7471", NULL)); /* destroying it frees the rest */
	CHECK(!rdma_destroy_id(sync) && !rdma_destroy_id(id));
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, at(0)));
	hints.ai_flags = SA;
	FAILS(EOPNOTSUPP, rdma_resolve_addrinfo(id, NULL, "7471", &hints));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void *later(void *set)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int *arg = set;

	usleep(20000);
	CHECK(!repoll_ctl(arg[0], EPOLL_CTL_ADD, arg[1], &ev));
	return NULL;
}

static void sets(void)
{
	int s = rsocket(AF_INET, SOCK_DGRAM, 0), set = repoll_create(0), fd[2], arg[2];
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 1}, got[3];
	pthread_t thread;
	char c;

	CHECK(s >= 0 && set >= 0 && !pipe(fd) && !rbind(s, at(7701), sizeof(struct sockaddr_in)));
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, -1, &ev) == EBADF && repoll_ctl(set, EPOLL_CTL_ADD, set, &ev) == EINVAL);
	CHECK(repoll_ctl(s, EPOLL_CTL_ADD, s, &ev) == EINVAL && repoll_ctl(set, 77, s, &ev) == EINVAL);
	CHECK(repoll_ctl(set, EPOLL_CTL_MOD, s, &ev) == ENOENT && repoll_ctl(set, EPOLL_CTL_DEL, s, NULL) == ENOENT);
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, s, &ev) && repoll_ctl(set, EPOLL_CTL_ADD, s, &ev) == EEXIST);
	ev.data.u64 = 2;
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, fd[0], &ev));
	CHECK(repoll_wait(set, got, 3, 0) == 0 && repoll_wait(set, got, 3, 20) == 0);
	CHECK(rsendto(s, "x", 1, 0, at(7701), sizeof(struct sockaddr_in)) == 1);
	CHECK(repoll_wait(set, got, 3, 10000) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 1);
	CHECK(write(fd[1], "x", 1) == 1);
	CHECK(repoll_wait(set, got, 3, -1) == 2 && got[1].events == EPOLLIN && got[1].data.u64 == 2);
	CHECK(repoll_wait(set, got, 1, -1) == 1);
	CHECK(rrecv(s, &c, 1, 0) == 1 && read(fd[0], &c, 1) == 1 && repoll_wait(set, got, 3, 0) == 0);
	ev = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 3};
	CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, s, &ev) && repoll_wait(set, got, 3, -1) == 1 && got[0].events == EPOLLOUT && got[0].data.u64 == 3);
	CHECK(rclose(set) == EBUSY);
	CHECK(!repoll_ctl(set, EPOLL_CTL_DEL, s, NULL) && !repoll_ctl(set, EPOLL_CTL_DEL, fd[0], NULL));
	CHECK(repoll_wait(set, got, 3, 0) == 0);
	/* A waiting thread notices changes. */
	CHECK(write(fd[1], "x", 1) == 1);
	arg[0] = set;
	arg[1] = fd[0];
	CHECK(!pthread_create(&thread, NULL, later, arg));
	CHECK(repoll_wait(set, got, 3, -1) == 1 && got[0].data.u64 == 9);
	CHECK(!pthread_join(thread, NULL) && !repoll_ctl(set, EPOLL_CTL_DEL, fd[0], NULL));
	CHECK(!rclose(set) && repoll_wait(set, got, 3, 0) == EINVAL);
	CHECK(!rclose(s));
}

static const struct test tests[] = {
	{"posted", posted},
	{"names", names},
	{"sets", sets},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
