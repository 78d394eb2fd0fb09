/* rs.h: declarations that the files of rsockets share.
 *
 * An rsocket has two eventfds. The program knows the first one as the rsocket's descriptor: it is readable
  * while there may be something to read or to accept. The second one is hidden from programs: it is readable
  * while there may be room to write. The engine's calls do not wait. The calls here wait for these
  * descriptors, so that signals, timeouts and rpoll work as with sockets.
 */
#ifndef ROCE_RS_INTERNAL_H
#define ROCE_RS_INTERNAL_H

#include "cma.h"

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include "../engine/engine.h"
#include "../engine/rs.h"

/* An rsocket. Calls work on a copy: if another thread closes the rsocket meanwhile, the engine returns an error. */
struct rs {
	const struct roce_rs_engine *engine; /* NULL: made before a fork, so dead */
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
/* A call that may not wait calls rs_nothing if it found nothing, and rs_something otherwise. fds become readable
 * when another try may succeed. A program that polls in a loop keeps the engine's threads from running, so
 * after some tries rs_nothing sleeps a moment. */
void rs_nothing(struct pollfd *fds, nfds_t n);
void rs_something(void);
/* Waits until a descriptor is readable. 1, 0 when the time is over, or -1 and errno. */
int rs_wait(int fd, const struct rs_deadline *until);

#endif
