/* datagrams.c: datagram rsockets, both ends in one process. */
#include "check.h"

#include <rdma/rsocket.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { LEN = sizeof(struct sockaddr_in), ROUNDS = 20, SECONDS = 10 };

static int datagram(void)
{
	int s = rsocket(AF_INET, SOCK_DGRAM, 0);

	CHECK(s >= 0);
	return s;
}

static int bound(int port)
{
	int s = datagram();

	CHECK(!rbind(s, at(port), LEN));
	return s;
}

static short ready(int s, short events, int timeout)
{
	struct pollfd p = {.fd = s, .events = events};

	return rpoll(&p, 1, timeout) == 1 ? p.revents : 0;
}

/* Receives a datagram, which must be this text from this port. */
static void receives(int s, const char *text, int port)
{
	char got[2048];
	struct sockaddr_in from;
	socklen_t len = sizeof from;

	CHECK(rrecvfrom(s, got, sizeof got, 0, (struct sockaddr *)&from, &len) == (ssize_t)strlen(text));
	CHECK(!memcmp(got, text, strlen(text)));
	CHECK(len == LEN && from.sin_family == AF_INET && ntohs(from.sin_port) == port);
	CHECK(from.sin_addr.s_addr == ((struct sockaddr_in *)at(port))->sin_addr.s_addr);
}

static void refusals(void)
{
	static char big[3000];
	char c;
	int s;

	FAILS(EOPNOTSUPP, rsocket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	FAILS(EPROTONOSUPPORT, rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
	s = rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
	CHECK(s >= 0);
	FAILS(EOPNOTSUPP, rlisten(s, 1));
	FAILS(EOPNOTSUPP, raccept(s, NULL, NULL));
	FAILS(EOPNOTSUPP, (int)riomap(s, &c, 1, PROT_WRITE, 0, 0));
	FAILS(EOPNOTSUPP, riounmap(s, &c, 1));
	FAILS(EOPNOTSUPP, (int)riowrite(s, &c, 1, 0, 0));
	FAILS(EDESTADDRREQ, rsend(s, &c, 1, 0));
	FAILS(ENOTCONN, rshutdown(s, SHUT_RD));
	FAILS(EINVAL, rconnect(s, at(7601), 1));
	FAILS(EAFNOSUPPORT, rsendto(s, &c, 1, 0, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof(struct sockaddr)));
	FAILS(EMSGSIZE, rsendto(s, big, 2033, 0, at(7601), LEN));
	FAILS(EMSGSIZE, rsendto(s, big, sizeof big, 0, at(7601), LEN));
	CHECK(rsendto(s, big, 2032, 0, at(7601), LEN) == 2032); /* to nobody */
	CHECK(!rclose(s));
	FAILS(EBADF, rclose(s));
	s = bound(7602);
	FAILS(EADDRINUSE, rbind(datagram(), at(7602), LEN));
	CHECK(!rclose(s));
}

/* All ways to send and receive. */
static void data(void)
{
	struct sockaddr_in name, to = *(struct sockaddr_in *)at(7604);
	socklen_t len = sizeof name;
	char first[3], rest[100];
	struct iovec out[2] = {{"hel", 3}, {"lo", 2}}, in[2] = {{first, sizeof first}, {rest, sizeof rest}};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 2, .msg_name = &to, .msg_namelen = LEN};
	int a = bound(7603), b = bound(7604);

	for (int i = 0; i < ROUNDS; i++) {
		CHECK(rsendto(a, "there", 5, 0, at(7604), LEN) == 5);
		receives(b, "there", 7603);
		CHECK(rsendto(b, "back", 4, 0, at(7603), LEN) == 4);
		receives(a, "back", 7604);
	}
	FAILS(ENOTCONN, rgetpeername(a, (struct sockaddr *)&name, &len));
	CHECK(rsendmsg(a, &m, 0) == 5);
	CHECK(rrecv(b, rest, 2, MSG_PEEK) == 2 && !memcmp(rest, "he", 2));
	CHECK(rrecv(b, rest, 2, MSG_PEEK | MSG_TRUNC) == 5);
	m = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_name = &name, .msg_namelen = sizeof name};
	CHECK(rrecvmsg(b, &m, 0) == 5 && !memcmp(first, "hel", 3) && !memcmp(rest, "lo", 2));
	CHECK(!m.msg_flags && m.msg_namelen == LEN && ntohs(name.sin_port) == 7603);
	CHECK(!rconnect(a, at(7604), LEN) && !rgetpeername(a, (struct sockaddr *)&name, &len) && ntohs(name.sin_port) == 7604);
	CHECK(!rgetsockname(a, (struct sockaddr *)&name, &len) && ntohs(name.sin_port) == 7603);
	CHECK(rwritev(a, out, 2) == 5 && rreadv(b, in, 1) == 3 && !memcmp(first, "hel", 3)); /* the rest is lost */
	CHECK(rwrite(a, "x", 1) == 1 && rread(b, rest, 100) == 1);
	m = (struct msghdr){.msg_iov = in, .msg_iovlen = 1};
	CHECK(rsend(a, "too long", 8, 0) == 8 && rrecvmsg(b, &m, 0) == 3 && m.msg_flags == MSG_TRUNC);
	CHECK(!rsend(a, NULL, 0, 0) && !rrecv(b, rest, 100, 0)); /* an empty datagram */
	CHECK(!rshutdown(a, SHUT_RDWR) && !rrecv(a, rest, 100, 0));
	FAILS(EPIPE, rsend(a, "x", 1, 0));
	CHECK(ready(a, POLLIN, 0) & POLLHUP);
	CHECK(!rclose(a) && !rclose(b));
}

static void waiting(void)
{
	struct timeval limit = {.tv_usec = 20000}, none = {0};
	int a = bound(7605), b = bound(7606);
	fd_set in, out;
	char c;

	FAILS(EAGAIN, rrecv(b, &c, 1, MSG_DONTWAIT));
	CHECK(!rsetsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	FAILS(EAGAIN, rrecv(b, &c, 1, 0));
	CHECK(!rfcntl(b, F_SETFL, O_NONBLOCK) && rfcntl(b, F_GETFL) & O_NONBLOCK);
	FAILS(EAGAIN, rrecv(b, &c, 1, 0));
	CHECK(!ready(b, POLLIN, 0) && ready(b, POLLIN | POLLOUT, 0) == POLLOUT);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(rsendto(a, "x", 1, 0, at(7606), LEN) == 1);
		CHECK(ready(b, POLLIN, SECONDS * 1000) == POLLIN);
		FD_ZERO(&in);
		FD_ZERO(&out);
		FD_SET(b, &in);
		FD_SET(a, &out);
		CHECK(rselect((a > b ? a : b) + 1, &in, &out, NULL, &none) == 2 && FD_ISSET(b, &in) && FD_ISSET(a, &out));
		CHECK(rrecv(b, &c, 1, 0) == 1 && c == 'x');
		FAILS(EAGAIN, rrecv(b, &c, 1, 0));
	}
	CHECK(!rclose(a) && !rclose(b));
}

static int option(int s, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;

	CHECK(!rgetsockopt(s, level, name, &value, &len) && len == sizeof value);
	return value;
}

static void options(void)
{
	int s = datagram(), value = 1 << 15;
	uint32_t meminfo[9];
	socklen_t len = sizeof meminfo;
	struct linger linger = {.l_onoff = 1};

	CHECK(option(s, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM && option(s, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_RCVBUF, &value, sizeof value) && option(s, SOL_SOCKET, SO_RCVBUF) == 2 * value);
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, sizeof value) && option(s, SOL_SOCKET, SO_SNDBUF) == 2 * value);
	value = 100;
	CHECK(!rsetsockopt(s, SOL_RDMA, RDMA_RQSIZE, &value, sizeof value) && option(s, SOL_RDMA, RDMA_RQSIZE) == 100);
	CHECK(!rsetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value) && option(s, SOL_RDMA, RDMA_SQSIZE) == 100);
	CHECK(!rsetsockopt(s, SOL_RDMA, RDMA_INLINE, &value, sizeof value));
	FAILS(ENOPROTOOPT, rsetsockopt(s, SOL_RDMA, 77, &value, sizeof value));
	FAILS(ENOPROTOOPT, rgetsockopt(s, SOL_RDMA, 77, &value, &len));
	value = 1;
	/* Options of UDP sockets. */
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) && option(s, SOL_SOCKET, SO_REUSEADDR) == 1);
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_BROADCAST, &value, sizeof value) && option(s, SOL_SOCKET, SO_BROADCAST) == 1);
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	CHECK(!rsetsockopt(s, IPPROTO_IP, IP_TOS, &value, sizeof value));
	FAILS(EINVAL, rsetsockopt(s, SOL_SOCKET, SO_RCVBUF, &value, 1));
	FAILS(ENOPROTOOPT, rsetsockopt(s, SOL_SOCKET, 12345, &value, sizeof value));
	CHECK(!option(s, SOL_SOCKET, SO_ERROR));
	CHECK(!rbind(s, at(7607), LEN));
	CHECK(rsendto(s, "x", 1, 0, at(7607), LEN) == 1); /* makes the queue pair */
	receives(s, "x", 7607);
	FAILS(EINVAL, rsetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value));
	len = sizeof meminfo;
	CHECK(!rgetsockopt(s, SOL_SOCKET, SO_MEMINFO, meminfo, &len) && len == sizeof meminfo && !meminfo[8]);
	CHECK(!rclose(s));
}

/* Receives a text, and returns the port that it came from. */
static int port_of(int s, const char *text)
{
	char got[2048];
	struct sockaddr_in from;
	socklen_t len = sizeof from;

	CHECK(rrecvfrom(s, got, sizeof got, 0, (struct sockaddr *)&from, &len) == (ssize_t)strlen(text));
	CHECK(!memcmp(got, text, strlen(text)));
	return ntohs(from.sin_port);
}

static int own_port(int s)
{
	struct sockaddr_in name;
	socklen_t len = sizeof name;

	CHECK(!rgetsockname(s, (struct sockaddr *)&name, &len));
	return ntohs(name.sin_port);
}

static void associations(void)
{
	/* An address that the kernel has, but no device. */
	struct sockaddr_in loop = {.sin_family = AF_INET, .sin_port = htons(7612), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, name;
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	socklen_t len = sizeof name;
	int a = datagram(), b = bound(7611);

	CHECK(rconnect(a, (struct sockaddr *)&loop, LEN) == -1);
	FAILS(ENOTCONN, rgetpeername(a, (struct sockaddr *)&name, &len));
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(!rconnect(a, at(7611), LEN));
		CHECK(rsend(a, "x", 1, 0) == 1 && port_of(b, "x") == own_port(a));
		CHECK(!rgetpeername(a, (struct sockaddr *)&name, &len) && ntohs(name.sin_port) == 7611);
		CHECK(!rconnect(a, &nobody, sizeof nobody));
		FAILS(ENOTCONN, rgetpeername(a, (struct sockaddr *)&name, &len));
		FAILS(EDESTADDRREQ, rsend(a, "x", 1, 0));
		CHECK(rsendto(a, "y", 1, 0, at(7611), LEN) == 1 && port_of(b, "y") == own_port(a));
		CHECK(rsendto(b, "z", 1, 0, at(own_port(a)), LEN) == 1);
		CHECK(port_of(a, "z") == 7611);
	}
	CHECK(!rclose(a) && !rclose(b));
}

/* A program may name more memory than it has, if it knows that less will come. */
static void sizes(void)
{
	int a = bound(7613);
	char got[2048];

	for (int i = 0; i < ROUNDS; i++) {
		CHECK(rsendto(a, "x", 1, 0, at(7613), LEN) == 1);
		CHECK(rrecv(a, got, SIZE_MAX, 0) == 1 && got[0] == 'x');
	}
	CHECK(!rclose(a));
}

/* The parent's sockets are dead in a child, which has its own. */
static void forks(void)
{
	int a = bound(7608), status;
	pid_t child;

	CHECK(rsendto(a, "x", 1, 0, at(7608), LEN) == 1);
	receives(a, "x", 7608);
	child = fork();
	if (!child) {
		int own;

		FAILS(EBADF, rsendto(a, "x", 1, 0, at(7608), LEN));
		CHECK(!rclose(a));
		own = bound(7609);
		CHECK(rsendto(own, "y", 1, 0, at(7609), LEN) == 1);
		receives(own, "y", 7609);
		CHECK(!rclose(own));
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	CHECK(rsendto(a, "x", 1, 0, at(7608), LEN) == 1);
	receives(a, "x", 7608);
	CHECK(!rclose(a));
}

/* A child that has closed its copy of an rsocket does not keep the port. */
static void port_of_a_child(void)
{
	int a = bound(7614), ready[2], end[2], status;
	pid_t child;
	char c = 0;

	CHECK(!pipe(ready) && !pipe(end));
	child = fork();
	if (!child) {
		CHECK(!close(end[1]) && !rclose(a) && write(ready[1], &c, 1) == 1);
		_exit(read(end[0], &c, 1) != 0);
	}
	CHECK(read(ready[0], &c, 1) == 1 && !rclose(a));
	a = bound(7614);
	CHECK(!rclose(a) && !close(end[1]));
	CHECK(waitpid(child, &status, 0) == child && !status);
}

static const struct test tests[] = {
	{"refusals", refusals},
	{"data", data},
	{"waiting", waiting},
	{"options", options},
	{"associations", associations},
	{"sizes", sizes},
	{"forks", forks},
	{"port of a child", port_of_a_child},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
