/* rs.h: declarations that the files of rsockets share.
 *
 * An rsocket has two eventfds. The program knows the first one as the rsocket's descriptor: it is readable
 * while there may be something to read or to accept. The second one is hidden from programs: it is readable
 * while there may be room to write. The engine's calls do not wait. The calls here wait for these
 * descriptors, so that signals, timeouts and rpoll work as with sockets.
 *
 * A datagram rsocket also has a UDP socket, hidden from programs, for its addresses and options. The engine
 * receives from it, and sends to peers whose queue pair it does not know.
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
	int udp;     /* of a datagram rsocket; -1: it is a stream */
	int engine_udp; /* a duplicate that the engine owns. A child of a fork closes it, so that it does not keep the port */
	int domain;
	bool used, listening, nonblocking;
	int nodelay, oobinline; /* kept for programs that ask; they change nothing */
	struct linger linger;
	struct timeval receive_timeout, send_timeout; /* 0: none */
};

/* engine.c */
const struct roce_rs_engine *cma_rs_engine(int type); /* SOCK_STREAM or SOCK_DGRAM; NULL and errno */

/* rsocket.c */
bool rs_find(int s, struct rs *out);   /* false: no rsocket */
int rs_get(int s, struct rs *out);     /* 0, or -1 and EBADF, also if it is of before a fork */
int rs_change(int s, void (*change)(struct rs *rs, const void *to), const void *to); /* 0, or -1 and EBADF */
int rs_take_addr(struct roce_cm_addr *to, const struct sockaddr *addr, socklen_t len); /* of a program; 0, or -1 and errno */
void rs_tell_addr(const struct roce_cm_addr *from, struct sockaddr *addr, socklen_t *len); /* to a program */
void rs_before_fork(void);
void rs_after_fork(void);
void rs_in_child(void); /* while the locks are held */

/* rsocket_io.c */
int rs_arguments(int s, struct rs *rs, const struct iovec *iov, size_t n, int flags); /* checks them; 0, or -1 and errno */
bool rs_may_wait(const struct rs *rs, int flags);

/* rsocket_datagram.c */
int rs_datagram_connect(const struct rs *rs, const struct sockaddr *addr, socklen_t len);
/* msg has the data, the address and its length. They return the number of bytes, or -1 and errno. */
ssize_t rs_datagram_send(const struct rs *rs, const struct msghdr *msg, int flags);
ssize_t rs_datagram_receive(const struct rs *rs, struct msghdr *msg, int flags);
int rs_datagram_set(int s, const struct rs *rs, int level, int name, const void *value, socklen_t len);
int rs_datagram_get(const struct rs *rs, int level, int name, void *value, socklen_t *len);

/* rsocket_repoll.c */
int rs_repoll_close(int fd, bool *is_set); /* 0 or an errno; false: it is no set of repoll_create */
void rs_repoll_before_fork(void);
void rs_repoll_after_fork(void);

/* rsocket_options.c */
bool rs_keeps_option(int level, int name); /* it is a field of struct rs */
int rs_set_kept(int s, int level, int name, const void *value, socklen_t len);

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
/* Says whether to repeat a call of the engine that has returned *n, and waits before. If it returns false, *n is the
 * result. */
bool rs_again(int64_t *n, int fd, const struct rs_deadline *until, bool wait);

#endif
