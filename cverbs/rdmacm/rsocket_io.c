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

static bool may_wait(const struct rs *rs, int flags)
{
	return !rs->nonblocking && !(flags & MSG_DONTWAIT);
}

/* Repeats a step, and waits in between, until it returns something other than EAGAIN. */
static int64_t attempt(const struct rs *rs, step *f, int fd, const struct rs_deadline *until, bool wait, void *buf, size_t len, int64_t arg)
{
	int64_t n;

	while ((n = f(rs, buf, len, arg)) == -EAGAIN && wait) {
		int waited = rs_wait(fd, until);

		if (waited <= 0)
			return waited ? -errno : -EAGAIN;
	}
	if (n == -EAGAIN)
		rs_nothing(&(struct pollfd){.fd = fd, .events = POLLIN}, 1);
	else
		rs_something();
	return n;
}

static ssize_t outcome(size_t done, int64_t n)
{
	return done || n >= 0 ? (ssize_t)done : fail((int)-n);
}

static int arguments(int s, struct rs *rs, const struct iovec *iov, size_t n, int flags)
{
	if (rs_get(s, rs))
		return -1;
	if (flags & ~KNOWN_FLAGS)
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
static ssize_t receive(int s, const struct iovec *iov, size_t n, int flags)
{
	struct rs_deadline until;
	struct rs rs;
	size_t done = 0, at = 0;
	int64_t got = 0;
	int peek = flags & MSG_PEEK;

	if (arguments(s, &rs, iov, n, flags))
		return -1;
	until = rs_deadline(&rs.receive_timeout);
	for (size_t i = 0; i < n;) {
		bool wait = may_wait(&rs, flags) && (!done || (flags & MSG_WAITALL && !peek));

		if (at == iov[i].iov_len) {
			at = 0;
			i++;
			continue;
		}
		got = attempt(&rs, receive_step, rs.in, &until, wait, (char *)iov[i].iov_base + at, iov[i].iov_len - at, peek);
		if (got <= 0)
			break;
		done += (size_t)got;
		at += (size_t)got;
		if (peek || (at < iov[i].iov_len && !(flags & MSG_WAITALL)))
			break; /* a peek sees the same bytes again */
	}
	return outcome(done, got);
}

ssize_t rrecv(int s, void *buf, size_t len, int flags)
{
	struct iovec iov = {buf, len};

	return receive(s, &iov, 1, flags);
}

/* It returns the address of the peer if it returns data. */
ssize_t rrecvfrom(int s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len)
{
	ssize_t n = rrecv(s, buf, len, flags);

	if (n > 0 && addr && addr_len)
		rgetpeername(s, addr, addr_len);
	return n;
}

ssize_t rrecvmsg(int s, struct msghdr *msg, int flags)
{
	ssize_t n;

	if (!msg)
		return fail(EFAULT);
	n = receive(s, msg->msg_iov, msg->msg_iovlen, flags);
	if (n < 0)
		return n;
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	if (msg->msg_name)
		rgetpeername(s, msg->msg_name, &msg->msg_namelen);
	return n;
}

ssize_t rread(int s, void *buf, size_t len)
{
	return rrecv(s, buf, len, 0);
}

ssize_t rreadv(int s, const struct iovec *iov, int n)
{
	return n < 0 ? fail(EINVAL) : receive(s, iov, (size_t)n, 0);
}

/* ---- writing ---- */

/* Writes all bytes, or as many as there is room for if it may not wait. */
static size_t write_piece(const struct rs *rs, step *f, const struct rs_deadline *until, const struct iovec *piece, int64_t offset, int flags, int64_t *n)
{
	size_t done = 0;

	do {
		*n = attempt(rs, f, rs->out, until, may_wait(rs, flags), (char *)piece->iov_base + done, piece->iov_len - done, offset + (int64_t)done);
		if (*n > 0)
			done += (size_t)*n;
	} while (*n > 0 && done < piece->iov_len);
	return done;
}

static ssize_t transmit(int s, const struct iovec *iov, size_t n, int flags)
{
	struct rs_deadline until;
	struct rs rs;
	size_t done = 0;
	int64_t last = 0;

	if (arguments(s, &rs, iov, n, flags))
		return -1;
	until = rs_deadline(&rs.send_timeout);
	for (size_t i = 0; i < n && last >= 0; i++)
		done += write_piece(&rs, send_step, &until, &iov[i], 0, flags, &last);
	return outcome(done, last);
}

ssize_t rsend(int s, const void *buf, size_t len, int flags)
{
	struct iovec iov = {(void *)buf, len};

	return transmit(s, &iov, 1, flags);
}

ssize_t rsendto(int s, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addr_len)
{
	if (addr || addr_len)
		return fail(EISCONN);
	return rsend(s, buf, len, flags);
}

ssize_t rsendmsg(int s, const struct msghdr *msg, int flags)
{
	if (!msg)
		return fail(EFAULT);
	if (msg->msg_control && msg->msg_controllen)
		return fail(EOPNOTSUPP);
	return transmit(s, msg->msg_iov, msg->msg_iovlen, flags);
}

ssize_t rwrite(int s, const void *buf, size_t len)
{
	return rsend(s, buf, len, 0);
}

ssize_t rwritev(int s, const struct iovec *iov, int n)
{
	return n < 0 ? fail(EINVAL) : transmit(s, iov, (size_t)n, 0);
}

/* ---- memory that the peer writes to ---- */

off_t riomap(int s, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs rs;
	int64_t at = offset;

	if (rs_get(s, &rs))
		return -1;
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
	return result(rs.engine->unmap(rs.handle, buf));
}

size_t riowrite(int s, const void *buf, size_t len, off_t offset, int flags)
{
	struct iovec iov = {(void *)buf, len};
	struct rs_deadline until;
	struct rs rs;
	int64_t last = 0;
	size_t done;

	if (arguments(s, &rs, &iov, 1, flags))
		return (size_t)-1;
	until = rs_deadline(&rs.send_timeout);
	done = write_piece(&rs, write_step, &until, &iov, offset, flags, &last);
	return (size_t)outcome(done, last);
}
