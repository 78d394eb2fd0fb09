/* forkfds.c: closes the descriptors that a child of a fork has inherited from its parent's engine.
 *
 * They are duplicates. If the child kept them, the parent's port and its place on a shared address would
  * stay in use after the parent has ended, and packets would queue up in sockets that no process reads.
  * The engine does not run in the child, so the child cannot ask it. Most descriptors of the engine can be
  * recognized by a name or port. Packet and XDP sockets cannot: these are noted when a device opens. */
#include "front.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* Calls f for each descriptor of the process, except the one that reads the list. */
static void each_fd(void (*f)(int fd, void *arg), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir))) {
		char *end;
		long fd = strtol(e->d_name, &end, 10);

		if (!*end && end != e->d_name && fd != dirfd(dir))
			f((int)fd, arg);
	}
	closedir(dir);
}

/* ---- packet and XDP sockets, by inode ---- */

enum { NOTED = 256 }; /* more than all devices have queues */

struct inodes {
	int count;
	ino_t list[NOTED];
};

static pthread_mutex_t noted_lock = PTHREAD_MUTEX_INITIALIZER;
static struct inodes noted;

static bool has(const struct inodes *set, ino_t inode)
{
	for (int i = 0; i < set->count; i++)
		if (set->list[i] == inode)
			return true;
	return false;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static bool is_noted(int fd)
{
	return has(&noted, inode_of(fd));
}

static void collect(int fd, void *arg)
{
	struct inodes *set = arg;
	int family;
	socklen_t len = sizeof family;

	if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) && (family == AF_PACKET || family == AF_XDP) && set->count < NOTED)
		set->list[set->count++] = inode_of(fd);
}

int roce_open_noting(const char *name, int notify_fd, roce_handle *ctx)
{
	struct inodes before = {0}, after = {0}, now = {0};
	int r;

	pthread_mutex_lock(&noted_lock);
	each_fd(collect, &before);
	r = roce_engine_table->open(name, notify_fd, ctx);
	each_fd(collect, &after);
	/* Forget sockets that are closed by now: the kernel reuses inodes. */
	for (int i = 0; i < after.count; i++)
		if (has(&noted, after.list[i]) || !has(&before, after.list[i]))
			now.list[now.count++] = after.list[i];
	noted = now;
	pthread_mutex_unlock(&noted_lock);
	return r;
}

void roce_forkfds_lock(void)
{
	pthread_mutex_lock(&noted_lock);
}

void roce_forkfds_unlock(void)
{
	pthread_mutex_unlock(&noted_lock);
}

/* ---- in the child ---- */

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
	case AF_PACKET:
		return is_noted(fd);
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

static void close_if_engines(int fd, void *unused)
{
	(void)unused;
	if (is_engines_socket(fd) || is_engines_memory(fd))
		close(fd);
}

void roce_fork_closes_fds(void)
{
	int saved = errno;

	each_fd(close_if_engines, NULL);
	noted.count = 0;
	errno = saved;
}
