/* rsocket_io.c: reading and writing. No call raises SIGPIPE: with and without MSG_NOSIGNAL it is EPIPE. */
#include "rs.h"

#include <limits.h>

enum { KNOWN_FLAGS = MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_NOSIGNAL | MSG_MORE };

/* Bytes, or a negative errno. */
typedef int64_t step(const struct rs *rs, void *buf, size_t len, int64_t arg);

static int64_t receive_step(const struct rs *rs, void *buf, size_t len, int64_t peek)
{
	return rs->engine->recv(rs->handle, buf, len, (int)peek);
}

static int64_t send_step(const struct rs *rs, void *buf, size_t len, int64_t unused)
{
	(void)unused;
	return rs->engine->send(rs->handle, buf, len);
}

static int64_t write_step(const struct rs *rs, void *buf, size_t len, int64_t offset)
{
	return rs->engine->write_at(rs->handle, buf, len, offset);
}

bool rs_may_wait(const struct rs *rs, int flags)
{
	return !rs->nonblocking && !(flags & MSG_DONTWAIT);
}

/* Repeats a step, and waits in between, until it returns something other than EAGAIN. */
static int64_t attempt(const struct rs *rs, step *f, int fd, const struct rs_deadline *until, bool wait, void *buf, size_t len, int64_t arg)
{
	int64_t n;

	do
		n = f(rs, buf, len, arg);
	while (rs_again(&n, fd, until, wait));
	return n;
}

static ssize_t outcome(size_t done, int64_t n)
{
	return done || n >= 0 ? (ssize_t)done : fail((int)-n);
}

int rs_arguments(int s, struct rs *rs, const struct iovec *iov, size_t n, int flags)
{
	if (rs_get(s, rs))
		return -1;
	if (flags & ~(KNOWN_FLAGS | (rs->udp >= 0 ? MSG_TRUNC : 0)))
		return fail(EOPNOTSUPP);
	if (n > IOV_MAX)
		return fail(EMSGSIZE);
	for (size_t i = 0; i < n; i++)
		if (!iov[i].iov_base && iov[i].iov_len)
			return fail(EFAULT);
	return 0;
}

/* ---- reading ---- */

/* Reads into one element of iov after the other. It waits for the first bytes only, or with MSG_WAITALL for all. */
static ssize_t receive_stream(const struct rs *rs, const struct iovec *iov, size_t n, int flags)
{
	struct rs_deadline until = rs_deadline(&rs->receive_timeout);
	size_t done = 0, at = 0;
	int64_t got = 0;
	int peek = flags & MSG_PEEK;

	for (size_t i = 0; i < n;) {
		bool wait = rs_may_wait(rs, flags) && (!done || (flags & MSG_WAITALL && !peek));

		if (at == iov[i].iov_len) {
			at = 0;
			i++;
			continue;
		}
		got = attempt(rs, receive_step, rs->in, &until, wait, (char *)iov[i].iov_base + at, iov[i].iov_len - at, peek);
		if (got <= 0)
			break;
		done += (size_t)got;
		at += (size_t)got;
		if (peek || (at < iov[i].iov_len && !(flags & MSG_WAITALL)))
			break; /* a peek sees the same bytes again */
	}
	return outcome(done, got);
}

/* It returns the address of the peer if it returns data. */
static ssize_t receive(int s, struct msghdr *msg, int flags)
{
	struct rs rs;
	ssize_t n;

	if (rs_arguments(s, &rs, msg->msg_iov, msg->msg_iovlen, flags))
		return -1;
	if (rs.udp >= 0)
		return rs_datagram_receive(&rs, msg, flags);
	n = receive_stream(&rs, msg->msg_iov, msg->msg_iovlen, flags);
	if (n < 0)
		return n;
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	if (n && msg->msg_name)
		rgetpeername(s, msg->msg_name, &msg->msg_namelen);
	return n;
}

ssize_t rrecv(int s, void *buf, size_t len, int flags)
{
	return rrecvfrom(s, buf, len, flags, NULL, NULL);
}

ssize_t rrecvfrom(int s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len)
{
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (addr && addr_len) {
		msg.msg_name = addr;
		msg.msg_namelen = *addr_len;
	}
	n = receive(s, &msg, flags);
	if (n >= 0 && msg.msg_name)
		*addr_len = msg.msg_namelen;
	return n;
}

ssize_t rrecvmsg(int s, struct msghdr *msg, int flags)
{
	return msg ? receive(s, msg, flags) : fail(EFAULT);
}

ssize_t rread(int s, void *buf, size_t len)
{
	return rrecv(s, buf, len, 0);
}

ssize_t rreadv(int s, const struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};

	return n < 0 ? fail(EINVAL) : receive(s, &msg, 0);
}

/* ---- writing ---- */

/* Writes all bytes, or as many as there is room for if it may not wait. */
static size_t write_piece(const struct rs *rs, step *f, const struct rs_deadline *until, const struct iovec *piece, int64_t offset, int flags, int64_t *n)
{
	size_t done = 0;

	do {
		*n = attempt(rs, f, rs->out, until, rs_may_wait(rs, flags), (char *)piece->iov_base + done, piece->iov_len - done, offset + (int64_t)done);
		if (*n > 0)
			done += (size_t)*n;
	} while (*n > 0 && done < piece->iov_len);
	return done;
}

static ssize_t transmit(int s, const struct msghdr *msg, int flags)
{
	struct rs_deadline until;
	struct rs rs;
	size_t done = 0;
	int64_t last = 0;

	if (rs_arguments(s, &rs, msg->msg_iov, msg->msg_iovlen, flags))
		return -1;
	if (rs.udp >= 0)
		return rs_datagram_send(&rs, msg, flags);
	until = rs_deadline(&rs.send_timeout);
	for (size_t i = 0; i < msg->msg_iovlen && last >= 0; i++)
		done += write_piece(&rs, send_step, &until, &msg->msg_iov[i], 0, flags, &last);
	return outcome(done, last);
}

ssize_t rsend(int s, const void *buf, size_t len, int flags)
{
	return rsendto(s, buf, len, flags, NULL, 0);
}

ssize_t rsendto(int s, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addr_len)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_name = (void *)addr, .msg_namelen = addr_len, .msg_iov = &iov, .msg_iovlen = 1};
	struct rs rs;

	if ((addr || addr_len) && rs_find(s, &rs) && rs.udp < 0)
		return fail(EISCONN);
	return transmit(s, &msg, flags);
}

ssize_t rsendmsg(int s, const struct msghdr *msg, int flags)
{
	if (!msg)
		return fail(EFAULT);
	if (msg->msg_control && msg->msg_controllen)
		return fail(EOPNOTSUPP);
	return transmit(s, msg, flags);
}

ssize_t rwrite(int s, const void *buf, size_t len)
{
	return rsend(s, buf, len, 0);
}

ssize_t rwritev(int s, const struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};

	return n < 0 ? fail(EINVAL) : transmit(s, &msg, 0);
}

/* ---- memory that the peer writes to ---- */

off_t riomap(int s, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs rs;
	int64_t at = offset;

	if (rs_get(s, &rs))
		return -1;
	if (!rs.engine->map)
		return fail(EOPNOTSUPP);
	if (prot & ~(PROT_WRITE | PROT_NONE) || flags)
		return fail(EINVAL);
	return result(rs.engine->map(rs.handle, buf, len, prot & PROT_WRITE, &at)) ? -1 : (off_t)at;
}

int riounmap(int s, void *buf, size_t len)
{
	struct rs rs;

	(void)len;
	if (rs_get(s, &rs))
		return -1;
	if (!rs.engine->unmap)
		return fail(EOPNOTSUPP);
	return result(rs.engine->unmap(rs.handle, buf));
}

size_t riowrite(int s, const void *buf, size_t len, off_t offset, int flags)
{
	struct iovec iov = {(void *)buf, len};
	struct rs_deadline until;
	struct rs rs;
	int64_t last = 0;
	size_t done;

	if (rs_arguments(s, &rs, &iov, 1, flags))
		return (size_t)-1;
	if (!rs.engine->write_at)
		return (size_t)fail(EOPNOTSUPP);
	until = rs_deadline(&rs.send_timeout);
	done = write_piece(&rs, write_step, &until, &iov, offset, flags, &last);
	return (size_t)outcome(done, last);
}
