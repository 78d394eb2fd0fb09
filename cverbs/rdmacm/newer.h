/* newer.h: declarations of the headers of rdma-core later than 44, so that every header gives the same library. */
#ifndef ROCE_CMA_NEWER_H
#define ROCE_CMA_NEWER_H

#include "cma.h"

#include <sys/epoll.h>

/* enum rdma_cm_event_type */
enum { CMA_EVENT_ADDRINFO_RESOLVED = 16, CMA_EVENT_ADDRINFO_ERROR = 17, CMA_EVENT_USER = 18, CMA_EVENT_INTERNAL = 19 };

/* Flags of struct rdma_addrinfo: names are resolved by the subnet administrator of InfiniBand, or by getaddrinfo. */
enum { CMA_RAI_SA = 0x10, CMA_RAI_DNS = 0x20 };

#define EXPORT __attribute__((visibility("default")))

/* RDMACM_1.4 */
EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints);
EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);
/* RDMACM_1.5 */
EXPORT int repoll_create(int flags);
EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
EXPORT int repoll_wait(int epfd, struct epoll_event *events, int max, int timeout);

#endif
