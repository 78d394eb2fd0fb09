/* fuzz.h: declarations that the files of the fuzzer share.
 *
 * The fuzzer calls ibv_* and rdma_* at random: with good arguments, so that it makes objects and moves data,
  * and with arguments that no program should pass. Every call must return. With one thread, the same seed makes
  * the same calls.
 *
 * It never passes NULL or freed objects to ibv_post_*, ibv_poll_cq, ibv_req_notify_cq and the calls that read
  * the context first: rdma-core's inline functions would crash before they call a library. */
#ifndef FUZZ_H
#define FUZZ_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { CONTEXT, PD, TD, MR, MW, DM, CHANNEL, CQ, SRQ, XRCD, QP, AH, CM_CHANNEL, CM_ID, KINDS };

enum { PER_KIND = 24, DEAD = 32, RING = 64, ARENA = 1 << 20 };

struct object {
	void *p;
	void *buf;          /* MR: its memory. DM: none */
	size_t length;
	int mapped;         /* MR: buf is a separate mapping */
	enum ibv_qp_type type;
	bool extended;      /* CQ */
	int device;
	struct object *needs[4]; /* objects that must outlive it */
	int users;
};

struct thread {
	int index;
	uint64_t seed, calls;
	bool stale; /* freed objects may be used: no object of another thread or of librdmacm can have their address */
	struct object objects[KINDS][PER_KIND];
	int count[KINDS];
	void *dead[DEAD];
	int n_dead;
	char *arena;
	pthread_t id;
	/* The current call, for the watchdog. */
	struct {
		const char *call;
		uint64_t args[4];
		long result;
	} ring[RING];
	volatile uint64_t at;
	volatile time_t since; /* 0: outside a call */
};

extern struct ibv_device **devices;
extern int device_count;
extern bool in_child; /* this is a child of a fork: the parent's objects are among the dead ones */

/* ---- fuzz.c ---- */
uint64_t rnd(struct thread *t);
static inline bool one_in(struct thread *t, unsigned n) { return rnd(t) % n == 0; }
void begin(struct thread *t, const char *call, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
long end(struct thread *t, long result);
void print_ring(struct thread *t);
_Noreturn void fail_at(struct thread *t, const char *file, int line, const char *what);

#define MUST(t, condition) \
	do { \
		if (!(condition)) \
			fail_at(t, __FILE__, __LINE__, #condition); \
	} while (0)

/* Calls, and notes the call and its result. */
#define CALL(t, name, a, b, c, d, expression) (begin(t, name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d)), end(t, (long)(expression)))

/* ---- objects.c ---- */
struct object *pick(struct thread *t, enum kind k);           /* a live one, or NULL if there is none */
void *wrong(struct thread *t, enum kind k);                   /* not a live object of this kind */
struct object *keep(struct thread *t, enum kind k, void *p);  /* NULL if there is no room: the caller destroys it */
bool full(struct thread *t, enum kind k);
void make(struct thread *t, enum kind k);
int destroy(struct thread *t, enum kind k, struct object *o); /* returns the result of the call */
void destroy_all(struct thread *t);                           /* in order; all must succeed */
int call_destroy(struct thread *t, enum kind k, void *p);
void needs(struct object *o, struct object *what);

/* ---- calls.c ---- */
void step(struct thread *t); /* one random call */

/* ---- post.c ---- */
void post(struct thread *t);
void connect_pair(struct thread *t);

/* ---- cm.c ---- */
void cm_step(struct thread *t);

#endif
