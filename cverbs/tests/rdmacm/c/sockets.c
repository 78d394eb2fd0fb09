/* sockets.c: rsockets, both ends in one process. */
#include "check.h"

#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { LEN = sizeof(struct sockaddr_in) };

static int stream(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(s >= 0);
	return s;
}

static int nonblocking(int s)
{
	CHECK(!rfcntl(s, F_SETFL, O_NONBLOCK));
	CHECK(rfcntl(s, F_GETFL) & O_NONBLOCK);
	return s;
}

static short ready(int s, short events, int timeout)
{
	struct pollfd p = {.fd = s, .events = events};

	return rpoll(&p, 1, timeout) == 1 ? p.revents : 0;
}

static int error_of(int s)
{
	int e = -1;
	socklen_t len = sizeof e;

	CHECK(!rgetsockopt(s, SOL_SOCKET, SO_ERROR, &e, &len) && len == sizeof e);
	return e;
}

static int listener(int port)
{
	int s = stream();

	CHECK(!rbind(s, at(port), LEN));
	CHECK(!rlisten(s, 4));
	return s;
}

/* Connects two ends. */
static void connected(int port, int ends[2])
{
	int l = listener(port);
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;

	ends[0] = nonblocking(stream());
	FAILS(EAGAIN, raccept(nonblocking(l), NULL, NULL));
	FAILS(EINPROGRESS, rconnect(ends[0], at(port), LEN));
	CHECK(ready(l, POLLIN, 10000) == POLLIN);
	ends[1] = raccept(l, (struct sockaddr *)&peer, &len);
	CHECK(ends[1] >= 0 && len == sizeof peer && peer.sin_family == AF_INET);
	CHECK(ready(ends[0], POLLOUT, 10000) == POLLOUT);
	CHECK(!error_of(ends[0]));
	FAILS(EISCONN, rconnect(ends[0], at(port), LEN));
	CHECK(!rclose(l));
	CHECK(!rfcntl(ends[0], F_SETFL, 0));
}

static void refusals(void)
{
	char c;
	int s;

	FAILS(EOPNOTSUPP, rsocket(AF_INET, SOCK_RAW, 0));
	FAILS(EOPNOTSUPP, rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	FAILS(EAFNOSUPPORT, rsocket(AF_UNIX, SOCK_STREAM, 0));
	FAILS(EBADF, rrecv(0, &c, 1, 0));
	FAILS(EBADF, rclose(77));
	s = stream();
	FAILS(ENOTCONN, rrecv(s, &c, 1, 0));
	FAILS(ECONNREFUSED, rconnect(s, at(7501), LEN));
	FAILS(EINPROGRESS, rconnect(nonblocking(s), at(7501), LEN));
	CHECK(ready(s, POLLOUT, 10000) & POLLERR);
	CHECK(error_of(s) == ECONNREFUSED);
	CHECK(!error_of(s));
	FAILS(ENOPROTOOPT, rsetsockopt(s, SOL_SOCKET, SO_BROADCAST, &s, sizeof s));
	CHECK(!rclose(s));
	s = listener(7502);
	FAILS(EADDRINUSE, rbind(stream(), at(7502), LEN));
	CHECK(!rclose(s));
	s = listener(7502);
	CHECK(!rclose(s));
}

static void data(void)
{
	struct timeval limit = {.tv_usec = 50000};
	static char sent[300000], got[sizeof sent];
	struct iovec parts[2] = {{got, 10}, {got + 10, sizeof got - 10}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	struct tcp_info info;
	socklen_t len = sizeof info;
	int s[2];

	connected(7503, s);
	CHECK(!rgetsockopt(s[0], IPPROTO_TCP, TCP_INFO, &info, &len) && len == sizeof info && info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_cwnd);
	for (size_t i = 0; i < sizeof sent; i++)
		sent[i] = (char)(i * 31 + i / 251);
	FAILS(EAGAIN, rrecv(s[1], got, 1, MSG_DONTWAIT));
	CHECK(!rsetsockopt(s[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	FAILS(EAGAIN, rrecv(s[1], got, 1, 0));
	CHECK(rsend(s[0], sent, 100, 0) == 100);
	CHECK(rrecv(s[1], got, 60, MSG_PEEK) == 60 && !memcmp(got, sent, 60));
	CHECK(rrecvmsg(s[1], &m, 0) == 100 && !memcmp(got, sent, 100));
	limit.tv_sec = 20;
	CHECK(!rsetsockopt(s[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	for (size_t out = 0, in = 0; in < sizeof sent;) { /* more than fits into the buffers */
		ssize_t n = rsend(s[0], sent + out, sizeof sent - out, MSG_DONTWAIT);

		CHECK(n >= 0 || errno == EAGAIN);
		out += n > 0 ? (size_t)n : 0;
		n = rrecv(s[1], got + in, out - in, MSG_WAITALL);
		CHECK(n == (ssize_t)(out - in));
		in = out;
	}
	CHECK(!memcmp(got, sent, sizeof sent));
	CHECK(!rshutdown(s[0], SHUT_WR));
	CHECK(!rrecv(s[1], got, 1, 0));
	FAILS(EPIPE, rsend(s[0], got, 1, MSG_NOSIGNAL));
	CHECK(rsend(s[1], "back", 4, 0) == 4 && rread(s[0], got, 10) == 4);
	CHECK(!rclose(s[0]));
	for (int i = 0; !(ready(s[1], POLLIN | POLLOUT, 10000) & POLLHUP); i++) { /* it becomes readable earlier */
		CHECK(i < 1000);
		usleep(10000);
	}
	CHECK(!rclose(s[1]));
}

static void waiting(void)
{
	struct timeval none = {0};
	struct pollfd p[2];
	fd_set in;
	int s[2], fd[2];

	connected(7504, s);
	CHECK(!pipe(fd));
	p[0] = (struct pollfd){.fd = s[1], .events = POLLIN};
	p[1] = (struct pollfd){.fd = fd[0], .events = POLLIN};
	CHECK(rpoll(p, 2, 0) == 0);
	CHECK(rpoll(p, 2, 20) == 0);
	CHECK(write(fd[1], "x", 1) == 1);
	CHECK(rpoll(p, 2, -1) == 1 && !p[0].revents && p[1].revents == POLLIN);
	CHECK(rsend(s[0], "x", 1, 0) == 1);
	p[1].fd = -1;
	CHECK(rpoll(p, 2, -1) == 1 && p[0].revents == POLLIN);
	FD_ZERO(&in);
	FD_SET(s[1], &in);
	FD_SET(fd[0], &in);
	CHECK(rselect((s[1] > fd[0] ? s[1] : fd[0]) + 1, &in, NULL, NULL, &none) == 2);
	CHECK(FD_ISSET(s[1], &in) && FD_ISSET(fd[0], &in));
	CHECK(!rclose(s[0]) && !rclose(s[1]));
}

/* A child has separate rsockets. Its parent's are dead in the child, and keep working in the parent. */
static void forks(void)
{
	int s[2], status;
	char c;
	pid_t child;

	connected(7505, s);
	child = fork();
	if (!child) {
		int own[2];

		FAILS(EBADF, rsend(s[0], "x", 1, 0));
		CHECK(ready(s[0], POLLIN, 0) == POLLNVAL);
		CHECK(!rclose(s[0]) && !rclose(s[1]));
		connected(7506, own);
		CHECK(rsend(own[0], "x", 1, 0) == 1 && rrecv(own[1], &c, 1, 0) == 1);
		CHECK(!rclose(own[0]) && !rclose(own[1]));
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	CHECK(rsend(s[0], "x", 1, 0) == 1 && rrecv(s[1], &c, 1, 0) == 1);
	CHECK(!rclose(s[0]) && !rclose(s[1]));
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void interrupted(void)
{
	struct itimerval soon = {.it_value.tv_usec = 100000};
	struct sigaction act = {.sa_handler = on_alarm};
	int s[2];
	char c;

	connected(7507, s);
	CHECK(!sigaction(SIGALRM, &act, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
	FAILS(EINTR, rrecv(s[0], &c, 1, 0));
	CHECK(!rclose(s[0]) && !rclose(s[1]));
}

static void memory(void)
{
	static char mapped[10000];
	int l = listener(7508), maps = 2, a = nonblocking(stream()), b;
	socklen_t len = sizeof maps;
	char c;

	CHECK(!rsetsockopt(a, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof maps));
	FAILS(EINPROGRESS, rconnect(a, at(7508), LEN));
	b = raccept(l, NULL, NULL);
	CHECK(b >= 0 && ready(a, POLLOUT, 10000) == POLLOUT);
	CHECK(!rgetsockopt(a, SOL_RDMA, RDMA_IOMAPSIZE, &maps, &len) && maps == 2);
	CHECK(riomap(b, mapped, sizeof mapped, PROT_WRITE, 0, 4096) == 4096);
	CHECK(rsend(b, "m", 1, 0) == 1 && ready(a, POLLIN, 10000) && rrecv(a, &c, 1, 0) == 1);
	CHECK(riowrite(a, "hello", 5, 4096 + 100, 0) == 5);
	FAILS(EFAULT, (ssize_t)riowrite(a, "hello", 5, 0, 0));
	CHECK(rsend(a, "w", 1, 0) == 1 && rrecv(b, &c, 1, 0) == 1);
	CHECK(!memcmp(mapped + 100, "hello", 5));
	CHECK(!riounmap(b, mapped, sizeof mapped));
	FAILS(EINVAL, riounmap(b, mapped, sizeof mapped));
	CHECK(!rclose(a) && !rclose(b) && !rclose(l));
}

static const struct test tests[] = {
	{"refusals", refusals},
	{"data", data},
	{"waiting", waiting},
	{"forks", forks},
	{"interrupted", interrupted},
	{"memory", memory},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
