/* rsocket_options.c: options of rsockets. The engine has most of them; this file keeps the others. */
#include "rs.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/time.h>

/* ---- options that the engine has: of type int ---- */

static const struct engine_option {
	int level, name;
	enum roce_rs_option option;
	bool read_only;
} engine_options[] = {
	{SOL_SOCKET, SO_SNDBUF, ROCE_RS_SNDBUF, false},
	{SOL_SOCKET, SO_RCVBUF, ROCE_RS_RCVBUF, false},
	{SOL_SOCKET, SO_REUSEADDR, ROCE_RS_REUSEADDR, false},
	{SOL_SOCKET, SO_KEEPALIVE, ROCE_RS_KEEPALIVE, false},
	{SOL_SOCKET, SO_ERROR, ROCE_RS_ERROR, true},
	{IPPROTO_TCP, TCP_KEEPIDLE, ROCE_RS_KEEPIDLE, false},
	{IPPROTO_IP, IP_TOS, ROCE_RS_TOS, false},
	{IPPROTO_TCP, TCP_MAXSEG, ROCE_RS_MAXSEG, true},
	{IPPROTO_IPV6, IPV6_V6ONLY, ROCE_RS_V6ONLY, false},
	{SOL_RDMA, RDMA_SQSIZE, ROCE_RS_SQSIZE, false},
	{SOL_RDMA, RDMA_RQSIZE, ROCE_RS_RQSIZE, false},
	{SOL_RDMA, RDMA_IOMAPSIZE, ROCE_RS_IOMAPSIZE, false},
};

static const struct engine_option *engine_option(int level, int name)
{
	for (size_t i = 0; i < sizeof engine_options / sizeof *engine_options; i++)
		if (engine_options[i].level == level && engine_options[i].name == name)
			return &engine_options[i];
	return NULL;
}

/* ---- options that are kept here ---- */

static int domain_of(const struct rs *rs)
{
	return rs->domain;
}

static int type_of(const struct rs *rs)
{
	(void)rs;
	return SOCK_STREAM;
}

static int protocol_of(const struct rs *rs)
{
	(void)rs;
	return IPPROTO_TCP;
}

static int is_listening(const struct rs *rs)
{
	return rs->listening;
}

static int inline_size(const struct rs *rs)
{
	(void)rs;
	return 64; /* the fixed value of package rsocket; setting it changes nothing */
}

static int one(const struct rs *rs)
{
	(void)rs;
	return 1;
}

/* An option is a field of struct rs, or the result of a function. Setting the latter changes nothing. */
static const struct local_option {
	int level, name;
	size_t offset, size;
	int (*value)(const struct rs *rs);
	bool ignored;
} local_options[] = {
#define FIELD(name) offsetof(struct rs, name), sizeof ((struct rs *)0)->name, NULL, false
	{SOL_SOCKET, SO_LINGER, FIELD(linger)},
	{SOL_SOCKET, SO_OOBINLINE, FIELD(oobinline)},
	{SOL_SOCKET, SO_RCVTIMEO, FIELD(receive_timeout)},
	{SOL_SOCKET, SO_SNDTIMEO, FIELD(send_timeout)},
	{IPPROTO_TCP, TCP_NODELAY, FIELD(nodelay)},
#undef FIELD
	{SOL_SOCKET, SO_DOMAIN, 0, sizeof(int), domain_of, false},
	{SOL_SOCKET, SO_TYPE, 0, sizeof(int), type_of, false},
	{SOL_SOCKET, SO_PROTOCOL, 0, sizeof(int), protocol_of, false},
	{SOL_SOCKET, SO_ACCEPTCONN, 0, sizeof(int), is_listening, false},
	{SOL_RDMA, RDMA_INLINE, 0, sizeof(int), inline_size, true},
	/* librdmacm has these two without a meaning, because the connection is reliable. */
	{IPPROTO_TCP, TCP_KEEPCNT, 0, sizeof(int), one, true},
	{IPPROTO_TCP, TCP_KEEPINTVL, 0, sizeof(int), one, true},
};

static const struct local_option *local_option(int level, int name)
{
	for (size_t i = 0; i < sizeof local_options / sizeof *local_options; i++)
		if (local_options[i].level == level && local_options[i].name == name)
			return &local_options[i];
	return NULL;
}

struct new_value {
	const struct local_option *option;
	const void *value;
};

static void store(struct rs *rs, const void *to)
{
	const struct new_value *n = to;

	memcpy((char *)rs + n->option->offset, n->value, n->option->size);
}

bool rs_keeps_option(int level, int name)
{
	const struct local_option *o = local_option(level, name);

	return o && !o->value;
}

static int set_local(int s, const struct local_option *o, const void *value, socklen_t len)
{
	struct new_value n = {o, value};

	if (len < o->size)
		return fail(EINVAL);
	if (o->value)
		return o->ignored ? 0 : fail(ENOPROTOOPT);
	return rs_change(s, store, &n);
}

int rs_set_kept(int s, int level, int name, const void *value, socklen_t len)
{
	return set_local(s, local_option(level, name), value, len);
}

/* ---- the calls ---- */

int rsetsockopt(int s, int level, int name, const void *value, socklen_t len)
{
	const struct engine_option *e = engine_option(level, name);
	const struct local_option *o = local_option(level, name);
	struct rs rs;
	int n;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return rs_datagram_set(s, &rs, level, name, value, len);
	if (!e && !o)
		return fail(ENOPROTOOPT);
	if (!value)
		return fail(EFAULT);
	if (o)
		return set_local(s, o, value, len);
	if (len < sizeof n)
		return fail(EINVAL);
	if (e->read_only)
		return fail(ENOPROTOOPT);
	memcpy(&n, value, sizeof n);
	return result(rs.engine->set_option(rs.handle, e->option, n));
}

/* Like librdmacm, it knows the state of the connection, and the depth of the send queue as the congestion window. */
static int get_tcp_info(const struct rs *rs, void *value, socklen_t *len)
{
	struct tcp_info info = {0};
	struct roce_cm_addr peer;
	int64_t depth;

	if (result(rs->engine->get_option(rs->handle, ROCE_RS_SQSIZE, &depth)))
		return -1;
	info.tcpi_state = rs->engine->peer(rs->handle, &peer) ? TCP_CLOSE : TCP_ESTABLISHED;
	info.tcpi_snd_cwnd = (uint32_t)depth;
	*len = *len < sizeof info ? *len : sizeof info;
	memcpy(value, &info, *len);
	return 0;
}

int rgetsockopt(int s, int level, int name, void *value, socklen_t *len)
{
	const struct engine_option *e = engine_option(level, name);
	const struct local_option *o = local_option(level, name);
	const void *from;
	bool info = level == IPPROTO_TCP && name == TCP_INFO;
	socklen_t size = sizeof(int);
	struct rs rs;
	int64_t wide;
	int n = 0;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return rs_datagram_get(&rs, level, name, value, len);
	if (!e && !o && !info)
		return fail(ENOPROTOOPT);
	if (!value || !len)
		return fail(EFAULT);
	if (info)
		return get_tcp_info(&rs, value, len);
	from = &n;
	if (e) {
		if (result(rs.engine->get_option(rs.handle, e->option, &wide)))
			return -1;
		n = (int)wide;
	} else if (o->value) {
		n = o->value(&rs);
	} else {
		from = (const char *)&rs + o->offset;
		size = (socklen_t)o->size;
	}
	*len = *len < size ? *len : size;
	memcpy(value, from, *len);
	return 0;
}

static void set_flags(struct rs *rs, const void *to)
{
	rs->nonblocking = *(const long *)to & O_NONBLOCK;
}

int rfcntl(int s, int cmd, ...)
{
	struct rs rs;
	va_list args;
	long arg;

	if (rs_get(s, &rs))
		return -1;
	va_start(args, cmd);
	arg = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, long) : 0;
	va_end(args);
	switch (cmd) {
	case F_GETFL:
		return O_RDWR | (rs.nonblocking ? O_NONBLOCK : 0);
	case F_SETFL:
		return rs_change(s, set_flags, &arg);
	case F_GETFD:
		return fcntl(s, F_GETFD);
	case F_SETFD:
		return fcntl(s, F_SETFD, (int)arg);
	}
	return fail(EOPNOTSUPP);
}
