/* rsocket_datagram.c: what datagram rsockets do otherwise than streams. */
#include "rs.h"

#include <unistd.h>

/* The longest datagram of the engine with its header, so longer than any data. */
enum { LONGEST = 2048 };

/* Gives the engine the peer that the UDP socket has. */
static void follow_udp(const struct rs *rs)
{
	struct sockaddr_storage peer;
	struct roce_cm_addr to;
	socklen_t len = sizeof peer;
	bool none = getpeername(rs->udp, (struct sockaddr *)&peer, &len) || cma_to_engine(&to, (struct sockaddr *)&peer);

	rs->engine->connect(rs->handle, none ? NULL : &to);
}

/* AF_UNSPEC dissolves the association. The engine comes first: if it refuses the peer, the UDP socket stays as it was. */
int rs_datagram_connect(const struct rs *rs, const struct sockaddr *addr, socklen_t len)
{
	struct roce_cm_addr to;
	int error;

	if (addr && len >= sizeof addr->sa_family && addr->sa_family == AF_UNSPEC) {
		if (connect(rs->udp, addr, len))
			return -1;
		return result(rs->engine->connect(rs->handle, NULL));
	}
	if (rs_take_addr(&to, addr, len) || result(rs->engine->connect(rs->handle, &to)))
		return -1;
	if (!connect(rs->udp, addr, len))
		return 0;
	error = errno;
	follow_udp(rs);
	return fail(error);
}

/* ---- sending and receiving ---- */

/* Returns the sum of the lengths, or SIZE_MAX if it is larger than that. */
static size_t total(const struct iovec *iov, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
			return SIZE_MAX;
	return sum;
}

/* Returns the data of a message: in place if it is in one piece, otherwise copied to buffer. */
static const void *gather(char *buffer, const struct iovec *iov, size_t n)
{
	char *at = buffer;

	if (n == 1)
		return iov->iov_base;
	for (size_t i = 0; i < n; i++)
		if (iov[i].iov_len)
			at = mempcpy(at, iov[i].iov_base, iov[i].iov_len);
	return buffer;
}

static void scatter(const struct iovec *iov, size_t n, const char *from, size_t length)
{
	for (size_t i = 0; i < n && length; i++) {
		size_t part = iov[i].iov_len < length ? iov[i].iov_len : length;

		if (part)
			memcpy(iov[i].iov_base, from, part);
		from += part;
		length -= part;
	}
}

ssize_t rs_datagram_send(const struct rs *rs, const struct msghdr *msg, int flags)
{
	struct rs_deadline until = rs_deadline(&rs->send_timeout);
	size_t length = total(msg->msg_iov, msg->msg_iovlen);
	struct roce_cm_addr to;
	char buffer[LONGEST];
	const void *data;
	int64_t n;

	if (length > LONGEST)
		return fail(EMSGSIZE);
	if (msg->msg_name && rs_take_addr(&to, msg->msg_name, msg->msg_namelen))
		return -1;
	data = gather(buffer, msg->msg_iov, msg->msg_iovlen);
	do
		n = rs->engine->send_to(rs->handle, data, length, msg->msg_name ? &to : NULL);
	while (rs_again(&n, rs->out, &until, rs_may_wait(rs, flags)));
	return n < 0 ? fail((int)-n) : (ssize_t)n;
}

/* As with UDP sockets, data that does not fit is lost. MSG_TRUNC makes it return the length of the datagram. */
ssize_t rs_datagram_receive(const struct rs *rs, struct msghdr *msg, int flags)
{
	struct rs_deadline until = rs_deadline(&rs->receive_timeout);
	size_t room = total(msg->msg_iov, msg->msg_iovlen);
	bool whole = msg->msg_iovlen == 1;
	struct roce_cm_addr from;
	char buffer[LONGEST];
	int64_t n;

	do
		n = rs->engine->recv_from(rs->handle, whole ? msg->msg_iov->iov_base : buffer, whole ? room : sizeof buffer, flags & MSG_PEEK, &from);
	while (rs_again(&n, rs->in, &until, rs_may_wait(rs, flags)));
	if (n < 0)
		return fail((int)-n);
	if (!whole)
		scatter(msg->msg_iov, msg->msg_iovlen, buffer, (size_t)n);
	msg->msg_controllen = 0;
	msg->msg_flags = (size_t)n > room ? MSG_TRUNC : 0;
	if (msg->msg_name)
		rs_tell_addr(&from, msg->msg_name, &msg->msg_namelen);
	return (size_t)n > room && !(flags & MSG_TRUNC) ? (ssize_t)room : (ssize_t)n;
}

/* ---- options ---- */

/* Options of the engine. The UDP socket has those of SOL_SOCKET, too. */
static const struct {
	int level, name;
	enum roce_rs_option option;
} engine_options[] = {
	{SOL_SOCKET, SO_SNDBUF, ROCE_RS_SNDBUF},
	{SOL_SOCKET, SO_RCVBUF, ROCE_RS_RCVBUF},
	{SOL_RDMA, RDMA_SQSIZE, ROCE_RS_SQSIZE},
	{SOL_RDMA, RDMA_RQSIZE, ROCE_RS_RQSIZE},
	{SOL_SOCKET, SO_ERROR, ROCE_RS_ERROR},
};

enum { NOT_THERE = -1 };

static int engine_option(int level, int name)
{
	for (size_t i = 0; i < sizeof engine_options / sizeof *engine_options; i++)
		if (engine_options[i].level == level && engine_options[i].name == name)
			return (int)engine_options[i].option;
	return NOT_THERE;
}

/* Options of streams that librdmacm accepts without effect on datagrams. */
static bool without_effect(int level, int name)
{
	return level == SOL_RDMA && (name == RDMA_INLINE || name == RDMA_IOMAPSIZE);
}

int rs_datagram_set(int s, const struct rs *rs, int level, int name, const void *value, socklen_t len)
{
	int option = engine_option(level, name), n;

	if (level == SOL_RDMA && option == NOT_THERE)
		return without_effect(level, name) ? 0 : fail(ENOPROTOOPT);
	if (level != SOL_RDMA && setsockopt(rs->udp, level, name, value, len))
		return -1;
	if (rs_keeps_option(level, name))
		return rs_set_kept(s, level, name, value, len);
	if (option == NOT_THERE)
		return 0;
	if (!value)
		return fail(EFAULT);
	if (len < sizeof n)
		return fail(EINVAL);
	memcpy(&n, value, sizeof n);
	return result(rs->engine->set_option(rs->handle, (uint32_t)option, n));
}

/* The index of the number of dropped datagrams in the result of SO_MEMINFO: SK_MEMINFO_DROPS of linux/sock_diag.h. */
enum { DROPS_AT = 8 };

int rs_datagram_get(const struct rs *rs, int level, int name, void *value, socklen_t *len)
{
	int option = level == SOL_SOCKET && name == SO_MEMINFO ? ROCE_RS_DROPS : engine_option(level, name), n;
	uint32_t *meminfo = value;
	int64_t wide;

	if (level == SOL_RDMA && option == NOT_THERE)
		return fail(ENOPROTOOPT);
	if (level != SOL_RDMA && getsockopt(rs->udp, level, name, value, len))
		return -1;
	if (option == NOT_THERE)
		return 0;
	if (!value || !len)
		return fail(EFAULT);
	if (result(rs->engine->get_option(rs->handle, (uint32_t)option, &wide)))
		return -1;
	if (option == ROCE_RS_DROPS) {
		if (*len >= (DROPS_AT + 1) * sizeof *meminfo)
			meminfo[DROPS_AT] += (uint32_t)wide;
		return 0;
	}
	if (option == ROCE_RS_ERROR && !wide)
		return 0; /* the UDP socket's error, if any, which the engine has not read */
	n = (int)wide;
	*len = *len < sizeof n ? *len : sizeof n;
	memcpy(value, &n, *len);
	return 0;
}
