/* rs.h: what the files of rsockets share.
 *
 * A program knows an rsocket by a descriptor: an eventfd, which is readable while the rsocket may have
 * something to read or to accept. Another one, which programs do not see, is so while it may have room to
 * write. The engine's calls do not wait: calls here wait at these descriptors, so that signals, timeouts and
 * rpoll work as with sockets.
 */
#ifndef ROCE_RS_INTERNAL_H
#define ROCE_RS_INTERNAL_H

#include "cma.h"

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include "../engine/engine.h"
#include "../engine/rs.h"

/* An rsocket. Calls work on a copy: another thread may close it meanwhile, and then the engine says so. */
struct rs {
	const struct roce_rs_engine *engine; /* NULL: of before a fork, where it is dead */
	roce_handle handle;
	int in, out; /* in: the number of the rsocket */
	int domain;
	bool used, listening, nonblocking;
	int nodelay, oobinline; /* kept for programs that ask; they change nothing */
	struct linger linger;
	struct timeval receive_timeout, send_timeout; /* 0: none */
};

/* engine.c */
const struct roce_rs_engine *cma_rs_engine(void); /* NULL and errno */

/* rsocket.c */
bool rs_find(int s, struct rs *out);   /* false: no rsocket */
int rs_get(int s, struct rs *out);     /* 0, or -1 and EBADF, also if it is of before a fork */
int rs_change(int s, void (*change)(struct rs *rs, const void *to), const void *to); /* 0, or -1 and EBADF */
void rs_before_fork(void);
void rs_after_fork(void);
void rs_in_child(void); /* while the locks are held */

/* rsocket_poll.c */

struct rs_deadline {
	bool none;
	struct timespec at; /* of CLOCK_MONOTONIC */
};

struct rs_deadline rs_deadline(const struct timeval *timeout); /* NULL: none */
/* Tell how a call of this thread ended that may not wait: it found nothing, and fds may be readable when the next
 * one does, or it found something. A program that tries again and again keeps the engine's threads from
 * running, where an adapter would need no processor: after some tries rs_nothing sleeps a moment. */
void rs_nothing(struct pollfd *fds, nfds_t n);
void rs_something(void);
/* Waits until a descriptor is readable. 1, 0 when the time is over, or -1 and errno. */
int rs_wait(int fd, const struct rs_deadline *until);

#endif
