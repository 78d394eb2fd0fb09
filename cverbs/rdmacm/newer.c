/* newer.c: calls of rdma-core later than 44, which the headers of 44 do not declare. All return errors so far. */
#include "cma.h"

#define EXPORT __attribute__((visibility("default")))

/* RDMACM_1.4 */
EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints);
EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);
/* RDMACM_1.5 */
EXPORT int repoll_create(int size);
EXPORT int repoll_ctl(int epfd, int op, int fd, void *event);
EXPORT int repoll_wait(int epfd, void *events, int n, int timeout);

#pragma GCC diagnostic ignored "-Wunused-parameter"

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	return fail(EOPNOTSUPP);
}

int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	return fail(EOPNOTSUPP);
}

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg)
{
	return fail(EOPNOTSUPP);
}

int repoll_create(int size)
{
	return fail(EOPNOTSUPP);
}

int repoll_ctl(int epfd, int op, int fd, void *event)
{
	return fail(EOPNOTSUPP);
}

int repoll_wait(int epfd, void *events, int n, int timeout)
{
	return fail(EOPNOTSUPP);
}
