/* rsocket.c: the sockets API over RDMA is not there yet.
 *
 * rsocket says so, and as no rsocket exists, the other calls find none under any number: EBADF. What
 * is preloaded in front of programs takes the kernel's sockets then. rpoll and rselect also take
 * descriptors that are none of rsockets, which are all that there are. */
#include "cma.h"

#include <poll.h>
#include <sys/select.h>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

int rsocket(int domain, int type, int protocol)
{
	(void)domain, (void)type, (void)protocol;
	return fail(EOPNOTSUPP);
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return poll(fds, nfds, timeout);
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	return select(nfds, readfds, writefds, exceptfds, timeout);
}

/* A call on an rsocket. Its parameters do not count. */
#define NO_RSOCKET(type, name, ...) \
	type name(__VA_ARGS__) \
	{ \
		return (type)fail(EBADF); \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

NO_RSOCKET(int, rbind, int s, const struct sockaddr *addr, socklen_t len)
NO_RSOCKET(int, rlisten, int s, int backlog)
NO_RSOCKET(int, raccept, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rconnect, int s, const struct sockaddr *addr, socklen_t len)
NO_RSOCKET(int, rshutdown, int s, int how)
NO_RSOCKET(int, rclose, int s)
NO_RSOCKET(ssize_t, rrecv, int s, void *buf, size_t len, int flags)
NO_RSOCKET(ssize_t, rrecvfrom, int s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len)
NO_RSOCKET(ssize_t, rrecvmsg, int s, struct msghdr *msg, int flags)
NO_RSOCKET(ssize_t, rsend, int s, const void *buf, size_t len, int flags)
NO_RSOCKET(ssize_t, rsendto, int s, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addr_len)
NO_RSOCKET(ssize_t, rsendmsg, int s, const struct msghdr *msg, int flags)
NO_RSOCKET(ssize_t, rread, int s, void *buf, size_t len)
NO_RSOCKET(ssize_t, rreadv, int s, const struct iovec *iov, int n)
NO_RSOCKET(ssize_t, rwrite, int s, const void *buf, size_t len)
NO_RSOCKET(ssize_t, rwritev, int s, const struct iovec *iov, int n)
NO_RSOCKET(int, rgetpeername, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rgetsockname, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rsetsockopt, int s, int level, int name, const void *value, socklen_t len)
NO_RSOCKET(int, rgetsockopt, int s, int level, int name, void *value, socklen_t *len)
NO_RSOCKET(int, rfcntl, int s, int cmd, ...)
NO_RSOCKET(off_t, riomap, int s, void *buf, size_t len, int prot, int flags, off_t offset)
NO_RSOCKET(int, riounmap, int s, void *buf, size_t len)
NO_RSOCKET(size_t, riowrite, int s, const void *buf, size_t len, off_t offset, int flags)
