/* engine.c: libibverbs.so.1 loads the engine, and another one after a fork. The child has only the thread that
 * forked, so no other thread may hold a lock during the fork. */
#include "cma.h"

#include "rs.h"

/* Of libibverbs.so.1, version node ROCE_PRIVATE_1. */
__attribute__((visibility("default"))) const struct roce_engine *roce_load_engine(void);

const struct roce_cm_engine *cma_engine(void)
{
	const struct roce_engine *engine = roce_load_engine();

	if (!engine)
		return NULL;
	if (!engine->cm || engine->cm->size < sizeof *engine->cm) {
		errno = ENOSYS;
		return NULL;
	}
	return engine->cm;
}

const struct roce_rs_engine *cma_rs_engine(int type)
{
	const struct roce_engine *engine = roce_load_engine();
	const struct roce_rs_engine *rs;

	if (!engine)
		return NULL;
	rs = type == SOCK_DGRAM ? engine->ds : engine->rs;
	if (!rs || rs->size < sizeof *rs) {
		errno = ENOSYS;
		return NULL;
	}
	return rs;
}

static void before_fork(void)
{
	rs_before_fork();
	rs_repoll_before_fork();
	pthread_mutex_lock(&cma_devices_lock);
	pthread_mutex_lock(&cma_lock);
	pthread_mutex_lock(&cma_objects_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&cma_objects_lock);
	pthread_mutex_unlock(&cma_lock);
	pthread_mutex_unlock(&cma_devices_lock);
	rs_repoll_after_fork();
	rs_after_fork();
}

static void after_fork_in_child(void)
{
	pthread_cond_init(&cma_acked, NULL); /* nobody waits here */
	rs_in_child();
	after_fork();
}

__attribute__((constructor)) static void init(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
