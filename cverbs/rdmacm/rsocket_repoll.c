/* rsocket_repoll.c: epoll for rsockets and other descriptors together. Events are level-triggered, as in rdma-core.
 *
 * The descriptor of a set is an eventfd, which is readable after a change of the set until a waiting thread has
 * noticed it. As in rdma-core, errors of repoll_ctl and repoll_wait are returned as positive numbers, and not in
 * errno. */
#include "newer.h"

#include "rs.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct entry {
	int fd;
	uint32_t events;
	epoll_data_t data;
};

struct set {
	struct set *next;
	int fd;
	struct entry *entries;
	int n, room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set *sets;

void rs_repoll_before_fork(void)
{
	pthread_mutex_lock(&lock);
}

void rs_repoll_after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* The caller holds the lock. */
static struct set **place(int fd)
{
	struct set **at = &sets;

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	return at;
}

int repoll_create(int flags)
{
	struct set *s = calloc(1, sizeof *s);

	if (!s)
		return fail(ENOMEM);
	s->fd = eventfd(0, EFD_NONBLOCK | (flags & EPOLL_CLOEXEC ? EFD_CLOEXEC : 0));
	if (s->fd < 0) {
		free(s);
		return -1;
	}
	pthread_mutex_lock(&lock);
	s->next = sets;
	sets = s;
	pthread_mutex_unlock(&lock);
	return s->fd;
}

int rs_repoll_close(int fd, bool *is_set)
{
	struct set **at, *s;
	int ret = 0;

	pthread_mutex_lock(&lock);
	at = place(fd);
	s = *at;
	*is_set = s != NULL;
	if (s && s->n)
		ret = EBUSY;
	else if (s)
		*at = s->next;
	pthread_mutex_unlock(&lock);
	if (!s || ret)
		return ret;
	close(s->fd);
	free(s->entries);
	free(s);
	return 0;
}

static int entry_of(const struct set *s, int fd)
{
	int i = 0;

	while (i < s->n && s->entries[i].fd != fd)
		i++;
	return i < s->n ? i : -1;
}

static int add(struct set *s, int fd, const struct epoll_event *event)
{
	if (s->n == s->room) {
		int room = s->room ? 2 * s->room : 16;
		struct entry *more = reallocarray(s->entries, (size_t)room, sizeof *more);

		if (!more)
			return ENOMEM;
		s->entries = more;
		s->room = room;
	}
	s->entries[s->n++] = (struct entry){fd, event->events, event->data};
	return 0;
}

static int change(struct set *s, int op, int fd, const struct epoll_event *event)
{
	int i = entry_of(s, fd);

	if (op != EPOLL_CTL_DEL && !event)
		return EFAULT;
	switch (op) {
	case EPOLL_CTL_ADD:
		return i < 0 ? add(s, fd, event) : EEXIST;
	case EPOLL_CTL_MOD:
		if (i < 0)
			return ENOENT;
		s->entries[i].events = event->events;
		s->entries[i].data = event->data;
		return 0;
	case EPOLL_CTL_DEL:
		if (i < 0)
			return ENOENT;
		s->entries[i] = s->entries[--s->n];
		return 0;
	}
	return EINVAL;
}

int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct set *s;
	int ret = EINVAL;

	if (fd < 0)
		return EBADF;
	pthread_mutex_lock(&lock);
	s = *place(epfd);
	if (s && fd != epfd)
		ret = change(s, op, fd, event);
	pthread_mutex_unlock(&lock);
	if (!ret)
		eventfd_write(epfd, 1);
	return ret;
}

/* The events of epoll that poll knows have the same values. */
enum { POLL_EVENTS = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLRDBAND | EPOLLWRNORM | EPOLLWRBAND | EPOLLRDHUP };

/* A copy of a set for one call of rpoll. */
struct view {
	struct pollfd *fds; /* of the entries, then that of the set */
	epoll_data_t *data;
	nfds_t n;
};

/* Copies a set. It returns 0 or an errno. */
static int look(int epfd, struct view *v)
{
	struct set *s;
	int ret = 0;

	pthread_mutex_lock(&lock);
	s = *place(epfd);
	if (!s) {
		ret = EINVAL;
	} else {
		v->n = (nfds_t)s->n;
		v->fds = calloc(v->n + 1, sizeof *v->fds);
		v->data = calloc(v->n + 1, sizeof *v->data);
		if (!v->fds || !v->data)
			ret = ENOMEM;
	}
	for (nfds_t i = 0; !ret && i < v->n; i++) {
		v->fds[i] = (struct pollfd){.fd = s->entries[i].fd, .events = (short)(s->entries[i].events & POLL_EVENTS)};
		v->data[i] = s->entries[i].data;
	}
	pthread_mutex_unlock(&lock);
	if (!ret)
		v->fds[v->n] = (struct pollfd){.fd = epfd, .events = POLLIN};
	return ret;
}

static int collect(const struct view *v, struct epoll_event *events, int max)
{
	int n = 0;

	for (nfds_t i = 0; i < v->n && n < max; i++)
		if (v->fds[i].revents)
			events[n++] = (struct epoll_event){.events = (uint32_t)v->fds[i].revents, .data = v->data[i]};
	return n;
}

/* Returns what is left of a timeout in milliseconds, rounded up. */
static int left(const struct timespec *end)
{
	struct timespec now;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (end->tv_sec - now.tv_sec) * 1000000000LL + end->tv_nsec - now.tv_nsec;
	return ns > 0 ? (int)((ns + 999999) / 1000000) : 0;
}

int repoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
	struct timespec end;
	int remaining = timeout;

	if (max <= 0 || !events)
		return EINVAL;
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (timeout > 0) {
		end.tv_sec += timeout / 1000;
		end.tv_nsec += timeout % 1000 * 1000000L;
	}
	for (;;) {
		struct view v = {0};
		eventfd_t changes;
		int ready, n = 0, ret = look(epfd, &v);

		ready = ret ? 0 : rpoll(v.fds, v.n + 1, remaining);
		if (ready < 0)
			ret = errno;
		if (ready > 0)
			n = collect(&v, events, max);
		if (ready > 0 && v.fds[v.n].revents && eventfd_read(epfd, &changes))
			ret = errno == EAGAIN ? 0 : errno; /* another thread has noticed the change, too */
		free(v.fds);
		free(v.data);
		if (ret || n)
			return ret ? ret : n;
		if (timeout > 0)
			remaining = left(&end);
		if (!ready && (!timeout || (timeout > 0 && !remaining)))
			return 0;
	}
}
