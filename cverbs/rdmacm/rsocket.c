/* rsocket.c: rsockets, their descriptors and their addresses. */
#include "rs.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- all rsockets, by descriptor ---- */

enum { CHUNK = 1024, CHUNKS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rs *chunks[CHUNKS];

/* Returns the place of a descriptor. NULL: there is none, and make is not set. The caller holds the lock. */
static struct rs *place(int s, bool make)
{
	struct rs **chunk;

	if (s < 0 || s >= CHUNK * CHUNKS)
		return NULL;
	chunk = &chunks[s / CHUNK];
	if (!*chunk && make)
		*chunk = calloc(CHUNK, sizeof **chunk);
	return *chunk ? &(*chunk)[s % CHUNK] : NULL;
}

bool rs_find(int s, struct rs *out)
{
	struct rs *rs;
	bool found;

	pthread_mutex_lock(&lock);
	rs = place(s, false);
	found = rs && rs->used;
	if (found)
		*out = *rs;
	pthread_mutex_unlock(&lock);
	return found;
}

int rs_get(int s, struct rs *out)
{
	return rs_find(s, out) && out->engine ? 0 : fail(EBADF);
}

int rs_change(int s, void (*change)(struct rs *rs, const void *to), const void *to)
{
	struct rs *rs;
	bool found;

	pthread_mutex_lock(&lock);
	rs = place(s, false);
	found = rs && rs->used;
	if (found)
		change(rs, to);
	pthread_mutex_unlock(&lock);
	return found ? 0 : fail(EBADF);
}

static int insert(const struct rs *made)
{
	struct rs *rs;

	pthread_mutex_lock(&lock);
	rs = place(made->in, true);
	if (rs) {
		*rs = *made;
		rs->used = true;
	}
	pthread_mutex_unlock(&lock);
	return rs ? 0 : fail(ENOMEM);
}

void rs_before_fork(void)
{
	pthread_mutex_lock(&lock);
}

void rs_after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

void rs_in_child(void)
{
	for (int i = 0; i < CHUNKS; i++)
		for (int k = 0; chunks[i] && k < CHUNK; k++)
			chunks[i][k].engine = NULL;
}

/* ---- making and closing ---- */

static void close_fds(const struct rs *rs)
{
	int saved = errno;

	if (rs->engine_udp >= 0)
		close(rs->engine_udp);
	if (rs->udp >= 0)
		close(rs->udp);
	if (rs->out >= 0)
		close(rs->out);
	if (rs->in >= 0)
		close(rs->in);
	errno = saved;
}

static int open_fds(struct rs *rs, int type)
{
	rs->out = rs->udp = rs->engine_udp = -1;
	rs->in = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rs->in >= 0)
		rs->out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rs->out >= 0 && type == SOCK_DGRAM)
		rs->udp = socket(rs->domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (rs->udp >= 0)
		rs->engine_udp = fcntl(rs->udp, F_DUPFD_CLOEXEC, 0);
	if (rs->out < 0 || (type == SOCK_DGRAM && rs->engine_udp < 0)) {
		close_fds(rs);
		return -1;
	}
	return 0;
}

/* Closes an rsocket of this process. */
static void end(struct rs *rs)
{
	rs->engine->close(rs->handle);
	rs->engine_udp = -1;
	close_fds(rs);
}

/* Enters an rsocket that the engine has made. */
static int publish(struct rs *rs)
{
	if (insert(rs)) {
		end(rs);
		return -1;
	}
	return rs->in;
}

/* Refuses types with flags, as librdmacm does: the preload library then uses sockets of the kernel, because
 * programs that use these flags need accept4. */
int rsocket(int domain, int type, int protocol)
{
	struct rs rs = {.domain = domain};

	if (domain != AF_INET && domain != AF_INET6)
		return fail(EAFNOSUPPORT);
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return fail(EOPNOTSUPP);
	if (protocol && protocol != (type == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP))
		return fail(EPROTONOSUPPORT);
	rs.engine = cma_rs_engine(type);
	if (!rs.engine || open_fds(&rs, type))
		return -1;
	if (result(rs.engine->create(domain == AF_INET6 ? 6 : 4, rs.in, rs.out, rs.engine_udp, &rs.handle))) {
		rs.engine_udp = -1;
		close_fds(&rs);
		return -1;
	}
	return publish(&rs);
}

/* As with close(2), no error reports data that the peer did not get. In a child of a fork rclose closes the
 * descriptors only. It also closes a set of repoll_create. */
int rclose(int s)
{
	struct rs *p, rs = {0};
	bool is_set;
	int ret;

	pthread_mutex_lock(&lock);
	p = place(s, false);
	if (p) {
		rs = *p;
		memset(p, 0, sizeof *p);
	}
	pthread_mutex_unlock(&lock);
	if (!rs.used) {
		ret = rs_repoll_close(s, &is_set);
		return is_set ? ret : fail(EBADF);
	}
	if (rs.engine)
		end(&rs);
	else
		close_fds(&rs);
	return 0;
}

int rshutdown(int s, int how)
{
	struct rs rs;

	if (rs_get(s, &rs))
		return -1;
	return result(rs.engine->shutdown(rs.handle, how));
}

/* ---- addresses ---- */

/* Copies an address to a program: as many bytes as its memory holds, and the full length. */
void rs_tell_addr(const struct roce_cm_addr *from, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage whole = {0};
	socklen_t n;

	if (!len)
		return;
	cma_from_engine(&whole, from);
	n = cma_addr_len((struct sockaddr *)&whole);
	if (addr)
		memcpy(addr, &whole, *len < n ? *len : n);
	*len = n;
}

/* Reads an address of a program. The length of a sockaddr_in6 is valid for an IPv4 address, too. */
int rs_take_addr(struct roce_cm_addr *to, const struct sockaddr *addr, socklen_t len)
{
	if (!addr || len < sizeof addr->sa_family || len < cma_addr_len(addr))
		return fail(EINVAL);
	return cma_to_engine(to, addr);
}

int rgetsockname(int s, struct sockaddr *addr, socklen_t *len)
{
	struct roce_cm_addr name;
	struct rs rs;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return getsockname(rs.udp, addr, len);
	if (result(rs.engine->name(rs.handle, &name)))
		return -1;
	rs_tell_addr(&name, addr, len);
	return 0;
}

int rgetpeername(int s, struct sockaddr *addr, socklen_t *len)
{
	struct roce_cm_addr peer;
	struct rs rs;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return getpeername(rs.udp, addr, len);
	if (result(rs.engine->peer(rs.handle, &peer)))
		return -1;
	rs_tell_addr(&peer, addr, len);
	return 0;
}

int rbind(int s, const struct sockaddr *addr, socklen_t len)
{
	struct roce_cm_addr to;
	struct rs rs;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return bind(rs.udp, addr, len);
	if (rs_take_addr(&to, addr, len))
		return -1;
	return result(rs.engine->bind(rs.handle, &to));
}

/* ---- connecting ---- */

static void set_listening(struct rs *rs, const void *unused)
{
	(void)unused;
	rs->listening = true;
}

int rlisten(int s, int backlog)
{
	struct rs rs;

	if (rs_get(s, &rs))
		return -1;
	if (!rs.engine->listen)
		return fail(EOPNOTSUPP);
	if (result(rs.engine->listen(rs.handle, backlog)))
		return -1;
	return rs_change(s, set_listening, NULL);
}

int raccept(int s, struct sockaddr *addr, socklen_t *len)
{
	struct rs rs, child;
	struct rs_deadline until;
	int ret;

	if (rs_get(s, &rs))
		return -1;
	if (!rs.engine->accept)
		return fail(EOPNOTSUPP);
	if (rs.nonblocking && !rs.engine->ready(rs.handle, POLLIN)) {
		rs_nothing(&(struct pollfd){.fd = rs.in, .events = POLLIN}, 1);
		return fail(EAGAIN);
	}
	child = rs;
	child.listening = child.nonblocking = false;
	if (open_fds(&child, SOCK_STREAM))
		return -1;
	until = rs_deadline(&rs.receive_timeout);
	while ((ret = rs.engine->accept(rs.handle, child.in, child.out, &child.handle)) == -EAGAIN && !rs.nonblocking) {
		int waited = rs_wait(rs.in, &until);

		if (waited <= 0) {
			ret = waited ? -errno : -EAGAIN;
			break;
		}
	}
	if (ret) {
		close_fds(&child);
		return result(ret);
	}
	ret = publish(&child);
	if (ret >= 0)
		rgetpeername(ret, addr, len);
	return ret;
}

int rconnect(int s, const struct sockaddr *addr, socklen_t len)
{
	struct roce_cm_addr to;
	struct rs rs;
	struct rs_deadline until;
	int64_t error;
	int ret;

	if (rs_get(s, &rs))
		return -1;
	if (rs.udp >= 0)
		return rs_datagram_connect(&rs, addr, len);
	if (rs_take_addr(&to, addr, len))
		return -1;
	ret = rs.engine->connect(rs.handle, &to);
	if (ret != -EINPROGRESS || rs.nonblocking)
		return result(ret);
	until = rs_deadline(&rs.send_timeout);
	while (!(ret = rs.engine->ready(rs.handle, POLLOUT))) {
		int waited = rs_wait(rs.out, &until);

		if (waited <= 0)
			return waited ? -1 : fail(EINPROGRESS);
	}
	if (ret > 0)
		ret = rs.engine->get_option(rs.handle, ROCE_RS_ERROR, &error);
	return ret < 0 ? fail(-ret) : error ? fail((int)error) : 0;
}
