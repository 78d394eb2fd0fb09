/* rsocket_poll.c: waiting, for rsockets and other descriptors together. */
#include "rs.h"

#include <poll.h>
#include <sys/select.h>
#include <time.h>

enum {
	READ_EVENTS = POLLIN | POLLRDNORM,
	WRITE_EVENTS = POLLOUT | POLLWRNORM,
	NS_PER_SECOND = 1000000000,
	/* The longest sleep of rpoll when it looks for POLLERR and POLLHUP only: no descriptor signals these. */
	SLICE_MS = 100,
};

/* ---- time ---- */

static struct rs_deadline after(int64_t seconds, int64_t ns)
{
	struct rs_deadline d = {0};

	clock_gettime(CLOCK_MONOTONIC, &d.at);
	d.at.tv_sec += seconds + (d.at.tv_nsec + ns) / NS_PER_SECOND;
	d.at.tv_nsec = (d.at.tv_nsec + ns) % NS_PER_SECOND;
	return d;
}

struct rs_deadline rs_deadline(const struct timeval *timeout)
{
	if (!timeout || (!timeout->tv_sec && !timeout->tv_usec))
		return (struct rs_deadline){.none = true};
	return after(timeout->tv_sec, timeout->tv_usec * 1000);
}

static struct timespec left(const struct rs_deadline *until)
{
	struct timespec now, t;

	clock_gettime(CLOCK_MONOTONIC, &now);
	t.tv_sec = until->at.tv_sec - now.tv_sec;
	t.tv_nsec = until->at.tv_nsec - now.tv_nsec;
	if (t.tv_nsec < 0) {
		t.tv_nsec += NS_PER_SECOND;
		t.tv_sec--;
	}
	if (t.tv_sec < 0)
		t = (struct timespec){0};
	return t;
}

static bool earlier(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static int wait_for(struct pollfd *fds, nfds_t n, const struct rs_deadline *until)
{
	struct timespec t = {0};

	if (!until->none)
		t = left(until);
	return ppoll(fds, n, until->none ? NULL : &t, NULL);
}

int rs_wait(int fd, const struct rs_deadline *until)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return wait_for(&p, 1, until);
}

enum { TRIES = 4, NAP_NS = 50000 };

static __thread int tries;

void rs_nothing(struct pollfd *fds, nfds_t n)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};

	if (tries < TRIES)
		tries++;
	else
		ppoll(fds, n, &nap, NULL);
}

void rs_something(void)
{
	tries = 0;
}

bool rs_again(int64_t *n, int fd, const struct rs_deadline *until, bool wait)
{
	int waited;

	if (*n != -EAGAIN) {
		rs_something();
		return false;
	}
	if (!wait) {
		rs_nothing(&(struct pollfd){.fd = fd, .events = POLLIN}, 1);
		return false;
	}
	waited = rs_wait(fd, until);
	if (waited > 0)
		return true;
	*n = waited ? -errno : -EAGAIN;
	return false;
}

/* ---- rpoll ---- */

/* The descriptors to wait for: those of rsockets, and the program's other ones with their events. */
struct watch {
	struct pollfd *fds;
	int *of; /* for each the index of the program's entry; -1: an rsocket */
	nfds_t n;
	bool slices;
};

static void add(struct watch *w, int fd, short events, int of)
{
	w->fds[w->n] = (struct pollfd){.fd = fd, .events = events};
	w->of[w->n++] = of;
}

static short with_synonyms(int ready)
{
	short events = (short)ready;

	if (ready & POLLIN)
		events |= POLLRDNORM;
	if (ready & POLLOUT)
		events |= POLLWRNORM;
	return events;
}

/* Asks an rsocket for its events, and watches it if it has none. */
static short ask(struct watch *w, const struct rs *rs, short events)
{
	uint32_t want = (events & READ_EVENTS ? POLLIN : 0) | (events & WRITE_EVENTS ? POLLOUT : 0);
	int ready = rs->engine ? rs->engine->ready(rs->handle, want) : -EBADF;

	if (ready < 0)
		return POLLNVAL;
	if (ready)
		return with_synonyms(ready) & (short)(events | POLLERR | POLLHUP);
	if (want & POLLIN)
		add(w, rs->in, POLLIN, -1);
	if (want & POLLOUT)
		add(w, rs->out, POLLIN, -1);
	w->slices |= !want;
	return 0;
}

/* Returns how many rsockets have events. Other descriptors come later. */
static int ask_all(struct watch *w, struct pollfd *fds, nfds_t n)
{
	int ready = 0;

	w->n = 0;
	w->slices = false;
	for (nfds_t i = 0; i < n; i++) {
		struct rs rs;

		fds[i].revents = 0;
		if (fds[i].fd < 0)
			continue;
		if (!rs_find(fds[i].fd, &rs)) {
			add(w, fds[i].fd, fds[i].events, (int)i);
			continue;
		}
		fds[i].revents = ask(w, &rs, fds[i].events);
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* One round. It returns how many entries have events. If it returns 0, *over says whether the time is over. */
static int poll_once(struct watch *w, struct pollfd *fds, nfds_t n, const struct rs_deadline *until, bool *over)
{
	struct rs_deadline slice = after(0, SLICE_MS * 1000000LL), now = after(0, 0);
	int ready = ask_all(w, fds, n);
	const struct rs_deadline *limit = until;
	int waited;

	if (ready)
		limit = &now;
	else if (w->slices && (until->none || earlier(&slice.at, &until->at)))
		limit = &slice;
	waited = wait_for(w->fds, w->n, limit);
	if (waited < 0)
		return ready ? ready : -1;
	*over = !waited && limit == until;
	for (nfds_t i = 0; i < w->n; i++) {
		if (w->of[i] < 0)
			continue;
		fds[w->of[i]].revents = w->fds[i].revents;
		ready += w->fds[i].revents != 0;
	}
	return ready;
}

/* at_once: until is over already. */
static int poll_until(struct pollfd *fds, nfds_t n, const struct rs_deadline *until, bool at_once)
{
	struct pollfd few[32];
	int of_few[32];
	struct watch w = {.fds = few, .of = of_few};
	bool over = false, many = 2 * n > sizeof few / sizeof *few;
	int ready;

	if (many) {
		w.fds = calloc(2 * n, sizeof *w.fds);
		w.of = calloc(2 * n, sizeof *w.of);
	}
	if (!w.fds || !w.of) {
		ready = fail(ENOMEM);
	} else {
		do
			ready = poll_once(&w, fds, n, until, &over);
		while (!ready && !over);
		if (ready)
			rs_something();
		else if (at_once)
			rs_nothing(w.fds, w.n);
	}
	if (many) {
		free(w.fds);
		free(w.of);
	}
	return ready;
}

int rpoll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct rs_deadline until = {.none = true};


	if (timeout >= 0)
		until = after(timeout / 1000, timeout % 1000 * 1000000LL);
	return poll_until(fds, n, &until, !timeout);
}

/* ---- rselect ---- */

static bool has(int fd, const fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

/* The sets by what makes a descriptor ready, as in Linux. */
static const struct {
	short ask, ready;
} kinds[] = {{POLLIN, POLLIN | POLLRDNORM | POLLHUP | POLLERR}, {POLLOUT, POLLOUT | POLLWRNORM | POLLERR}, {POLLPRI, POLLPRI}};

int rselect(int n, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	fd_set *sets[] = {readfds, writefds, exceptfds};
	struct pollfd fds[FD_SETSIZE];
	struct rs_deadline until = {.none = true};
	nfds_t count = 0;
	int ready, bits = 0;

	if (n < 0 || n > FD_SETSIZE || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return fail(EINVAL);
	for (int fd = 0; fd < n; fd++) {
		short events = 0;

		for (int k = 0; k < 3; k++)
			events |= has(fd, sets[k]) ? kinds[k].ask : 0;
		if (events)
			fds[count++] = (struct pollfd){.fd = fd, .events = events};
	}
	if (timeout)
		until = after(timeout->tv_sec, timeout->tv_usec * 1000);
	ready = poll_until(fds, count, &until, timeout && !timeout->tv_sec && !timeout->tv_usec);
	if (ready < 0)
		return -1;
	for (nfds_t i = 0; i < count; i++)
		if (fds[i].revents & POLLNVAL)
			return fail(EBADF);
	for (int k = 0; k < 3; k++)
		if (sets[k])
			FD_ZERO(sets[k]);
	for (nfds_t i = 0; i < count; i++)
		for (int k = 0; k < 3; k++)
			if (fds[i].events & kinds[k].ask && fds[i].revents & kinds[k].ready) {
				FD_SET(fds[i].fd, sets[k]);
				bits++;
			}
	if (timeout) {
		struct timespec t = left(&until);

		*timeout = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
	}
	return bits;
}
