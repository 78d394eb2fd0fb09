/* check.h: declarations that the test programs of libibverbs.so.1 share. A program exits with 0, or prints where
 * it failed. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

/* The call returns a pointer, and fails with this errno. */
#define FAILS(error, call) \
	do { \
		errno = 0; \
		CHECK((call) == NULL); \
		CHECK(errno == (error)); \
	} while (0)

static inline struct fake *fake(void)
{
	void *library = dlopen(getenv("ROCE_ENGINE"), RTLD_NOW | RTLD_NOLOAD);
	struct fake *(*find)(void);

	CHECK(library);
	*(void **)&find = dlsym(library, "fake_state");
	CHECK(find);
	return find();
}

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1}};

	return ibv_create_qp(pd, &init);
}

/* Runs f in a child, and checks that it ends well. */
static inline void in_child(void (*f)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		alarm(30);
		f();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
