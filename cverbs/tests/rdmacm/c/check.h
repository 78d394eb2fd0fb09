/* check.h: declarations that the tests of librdmacm.so.1 share. A test program has a table of tests and runs the
 * one that its argument names, with the address of a device in AT. A failing test prints the place, and ends
 * the program. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* The call returns -1, with this errno. */
#define FAILS(error, call) \
	do { \
		errno = 0; \
		CHECK((call) == -1); \
		CHECK(errno == (error)); \
	} while (0)

struct test {
	const char *name;
	void (*run)(void);
};

int run_test(const struct test *tests, int argc, char **argv);

/* The device's address with a port. */
struct sockaddr *at(int port);

/* Takes the next event, which must have this type. */
struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Like expect, and acknowledges the event. */
void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Checks that no event comes within a moment. */
void expect_none(struct rdma_event_channel *ch);

/* Return a listening identifier, and one that is ready to connect to it. */
struct rdma_cm_id *listening(struct rdma_event_channel *ch, enum rdma_port_space ps, int port);
struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, int port);

void create_qp(struct rdma_cm_id *id);

/* A connection of two identifiers of this process. */
struct pair {
	struct rdma_event_channel *here, *there;
	struct rdma_cm_id *listener, *client, *server;
};

void connect_pair(struct pair *p, int port);
void close_pair(struct pair *p);

/* Sends a message from one end to the other. */
void transfer(struct rdma_cm_id *from, struct rdma_cm_id *to);

#endif
