/* forkfds.c: which descriptors a child of a fork has from its parent's engine.
 *
 * They are duplicates: while the child has them, the parent's port stays taken, and its place on a
 * shared address, after the parent has ended. The engine cannot be asked, since it does not run in
 * the child. But what it opens is of few kinds, and none of them one that other programs use. */
#include "front.h"

#include <dirent.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROCE_PORT = 4791 };

#ifndef AF_XDP
#define AF_XDP 44
#endif

/* Abstract names of the sockets by which processes share an address. */
static const char shared_name[] = "\0goroce";

static bool is_shared_name(const struct sockaddr_un *a, socklen_t len)
{
	return len >= offsetof(struct sockaddr_un, sun_path) + sizeof shared_name - 1 &&
	       !memcmp(a->sun_path, shared_name, sizeof shared_name - 1);
}

/* Whether a packet socket takes one kind of packets of one interface: the engine's do. Sniffers
 * mostly take all (ETH_P_ALL), and DHCP clients no ring and no fanout group. */
static bool has_fanout_or_ring(int fd)
{
	int fanout = 0;
	socklen_t len = sizeof fanout;

	return !getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &fanout, &len) && fanout;
}

static bool is_engines_socket(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		struct sockaddr_storage room;
	} a;
	socklen_t len = sizeof a;
	int type;
	socklen_t type_len = sizeof type;

	if (getsockname(fd, &a.any, &len))
		return false;
	switch (a.any.sa_family) {
	case AF_INET:
		return a.in.sin_port == htons(ROCE_PORT) && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) && type == SOCK_DGRAM;
	case AF_INET6:
		return a.in6.sin6_port == htons(ROCE_PORT) && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) && type == SOCK_DGRAM;
	case AF_UNIX:
		if (is_shared_name(&a.un, len))
			return true;
		len = sizeof a;
		return !getpeername(fd, &a.any, &len) && is_shared_name(&a.un, len);
	case AF_XDP:
		return true;
	case AF_PACKET:
		return has_fanout_or_ring(fd);
	}
	return false;
}

static bool is_engines_memory(int fd)
{
	static const char name[] = "/memfd:roce ";
	char path[64], target[64];
	ssize_t n;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof target);
	return n >= (ssize_t)sizeof name - 1 && !memcmp(target, name, sizeof name - 1);
}

void roce_fork_closes_fds(void)
{
	int saved = errno;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;

	if (!dir)
		goto out;
	while ((e = readdir(dir))) {
		char *end;
		long fd = strtol(e->d_name, &end, 10);

		if (*end || end == e->d_name || fd == dirfd(dir))
			continue;
		if (is_engines_socket((int)fd) || is_engines_memory((int)fd))
			close((int)fd);
	}
	closedir(dir);
out:
	errno = saved;
}
