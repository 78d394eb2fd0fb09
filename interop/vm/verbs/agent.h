/*
 * The verbs agent: executes verbs calls for the conformance suite, one line per call.
 *
 *	request   name key=value key=value ...
 *	reply     ok key=value ...      the call succeeded
 *	          err N key=value ...   it failed with errno N
 *	          bad text              the request itself is invalid
 *
 * Values are numbers in decimal, or in hex with 0x; memory and GIDs are plain hex
 * strings. A key that is left out is 0. Objects are named by handles, small numbers
 * that begin at 1; handle 0 is the null pointer. A key may be repeated: sg is a
 * scatter/gather element, address:length:lkey.
 *
 * Every connection has its own process and device context: when the connection closes,
 * the process ends and the kernel destroys its objects.
 */
#ifndef AGENT_H
#define AGENT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

enum { MAX_ARGS = 128, MAX_SG = 64, MAX_OBJECTS = 4096 };

/* call is one request, and the reply as far as it has been written. */
struct call {
	int argc;
	char *key[MAX_ARGS];
	char *val[MAX_ARGS];
	const char *bad; /* set when the request is invalid */
	char *out;       /* " key=value ..." */
	size_t len, cap;
};

/* Arguments. */
const char *text(struct call *c, const char *key);  /* NULL when absent */
uint64_t num(struct call *c, const char *key);
void gid_arg(struct call *c, const char *key, union ibv_gid *gid);
int sg_args(struct call *c, struct ibv_sge *sg);     /* returns how many */
size_t hex_arg(struct call *c, const char *key, uint8_t *to, size_t room);
int fail(struct call *c, const char *why);           /* marks the request as bad */

/* Results. */
void put(struct call *c, const char *key, uint64_t v);
void put_hex(struct call *c, const char *key, const void *p, size_t n);
void put_raw(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Objects. */
enum kind { K_NONE, K_PD, K_MR, K_MW, K_AH, K_CQ, K_CHANNEL, K_SRQ, K_QP, K_XRCD };

uint64_t object_add(enum kind kind, void *p);
void *object(struct call *c, const char *key, enum kind kind);
void object_forget(struct call *c, const char *key);
uint64_t object_handle(enum kind kind, const void *p);

extern struct ibv_context *ctx;

/* made turns the result of a verb that returns a pointer into a reply. */
int made(struct call *c, enum kind kind, void *p);
/* ended is for verbs that destroy an object: after success it frees the handle. */
int ended(struct call *c, const char *key, int rc);
/* result turns the return value of a verb (0, an errno, or -1 with errno set) into 0 or an errno. */
int result(int rc);
/* await waits until fd can be read, at most ms milliseconds. */
int await(int fd, uint64_t ms);

struct command {
	const char *name;
	int (*run)(struct call *c); /* returns 0 or an errno */
	const char *args, *results;
};

extern const struct command device_commands[];
extern const struct command memory_commands[];
extern const struct command queue_commands[];
extern const struct command qp_commands[];
extern const struct command post_commands[];

#endif
