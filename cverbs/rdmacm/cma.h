/* cma.h: declarations that the files of librdmacm.so.1 share.
 *
 * The library knows identifiers, event channels and events, as programs see them. Addresses, routes and
 * connections are the engine's: see cm.h. This library makes queue pairs and their queues with the public
  * functions of libibverbs.so.1, and moves them through their states.
 *
 * Calls return what the manual pages say: -1 with errno, or NULL with errno. The engine returns
 * negative errnos; result() converts.
 *
 * Only what the headers of <rdma/> declare is visible outside.
 */
#ifndef ROCE_CMA_H
#define ROCE_CMA_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#pragma GCC visibility pop

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/cm.h"

#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* ---- engine.c ---- */

/* Returns the connection manager of the engine of this process, and loads the engine if necessary. After a
 * fork it is another one, which does not know older objects. NULL and errno if there is none. */
const struct roce_cm_engine *cma_engine(void);

/* ---- objects.c: memory of objects that programs have pointers to ---- */

enum cma_kind { CMA_CHANNEL, CMA_ID, CMA_EVENT, CMA_KINDS };

/* Returns zeroed memory for an object, or NULL and ENOMEM. cma_free marks the object dead and keeps the
 * memory: a program that uses a freed object gets EINVAL for as long as possible. */
void *cma_alloc(enum cma_kind kind);
void cma_free(enum cma_kind kind, void *object);

/* ---- errors ---- */

static inline int fail(int e)
{
	errno = e;
	return -1;
}

/* Converts the result of a call of the engine. */
static inline int result(int ret)
{
	return ret < 0 ? fail(-ret) : 0;
}

/* Converts the result of a verb: 0 or an errno, or -1 with errno. */
static inline int verb_result(int ret)
{
	return ret > 0 ? fail(ret) : ret;
}

/* ---- objects ---- */

/* The first member of each is its owner: the engine's connection manager that knows it, NULL if it was freed. */

struct cma_posted; /* posted.c */

struct cma_channel {
	const struct roce_cm_engine *cm;
	struct rdma_event_channel channel;
	roce_handle handle;
	struct cma_posted *posted; /* under cma_lock */
};

/* A device that identifiers are bound to, with the protection domain that they share. */
struct cma_device {
	struct cma_device *next;
	char name[64];
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* while there are users */
	struct ibv_xrcd *xrcd;
	int users;
	uint8_t max_responder_resources, max_initiator_depth;
};

struct cma_group {
	struct cma_group *next;
	uint64_t number; /* names the group in events of the engine, which may come after the program has left the group */
	void *context;
	struct sockaddr_storage addr;
	bool send_only, attached;
	union ibv_gid mgid;
	uint16_t mlid;
	unsigned reported, acked; /* events; under cma_lock */
};

struct cma_id {
	const struct roce_cm_engine *cm;
	struct rdma_cm_id id;
	roce_handle handle;
	struct cma_device *device;
	struct ibv_sa_path_rec path;
	unsigned reported, acked;    /* events; under cma_lock */
	struct cma_group *groups;    /* under cma_lock */
	bool resolving;              /* a name is being resolved, or its addresses wait in resolved; under cma_lock */
	struct rdma_addrinfo *resolved;
	bool sync;                   /* the identifier has its own channel, and calls wait for their event */
	bool connect_error;          /* the program has a CONNECT_ERROR, after which no event follows */
	uint8_t responder_resources, initiator_depth; /* of the connection, if known */
	/* Arguments of rdma_create_ep for later calls. */
	struct ibv_pd *ep_pd;
	struct ibv_qp_init_attr *ep_attr; /* of requests; NULL: they get no queue pair */
	void *ep_private;
	size_t ep_private_len;
};

struct cma_event {
	const struct roce_cm_engine *cm;
	struct rdma_cm_event event;
	struct cma_id *of; /* the identifier that counts the event; of a request: the listener */
	struct cma_group *group;
	uint64_t arg; /* of an event that a program has posted */
	uint8_t private_data[255];
};

/* Return the object behind a program's pointer. NULL and EINVAL: no such object works in this process. */
struct cma_channel *cma_channel_of(struct rdma_event_channel *channel);
struct cma_id *cma_id_of(struct rdma_cm_id *id);

/* Guards the counts of events, and ensures that the program knows a request before it gets later events of
 * it. cma_acked is signalled when an event is acknowledged. */
extern pthread_mutex_t cma_lock;
extern pthread_cond_t cma_acked;

/* Guard the devices, and the memory of freed objects. A thread that takes several locks takes the lock of
 * the devices first and the lock of the objects last. */
extern pthread_mutex_t cma_devices_lock, cma_objects_lock;

/* ---- between files ---- */

/* device.c */
struct cma_device *cma_get_device(const char *name); /* one more user; NULL and errno */
void cma_put_device(struct cma_device *device);

/* addr.c */
int cma_to_engine(struct roce_cm_addr *out, const struct sockaddr *addr); /* 0, or -1 and errno */
void cma_from_engine(struct sockaddr_storage *out, const struct roce_cm_addr *addr);
void cma_to_ah_attr(struct ibv_ah_attr *out, const struct roce_ah_attr *in);
socklen_t cma_addr_len(const struct sockaddr *addr); /* 0: a family that is not supported */

/* posted.c. The caller holds cma_lock. */
bool cma_take_posted(struct cma_channel *ch, struct cma_event *ev, struct roce_cm_event *raw); /* false: there is none */
void cma_move_posted(struct cma_id *p, struct cma_channel *to); /* to another channel; NULL: drops them */
void cma_drop_posted(struct cma_channel *ch);

/* id.c */
struct cma_id *cma_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
int cma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
void cma_release_id(struct cma_id *p); /* the caller has taken its last event */
int cma_query(struct cma_id *p, bool path); /* fills in the device and the addresses, and the path if path is set */
int cma_complete(struct cma_id *p); /* of a synchronous identifier: waits for the event of a call */

/* qp.c */
enum { CMA_AS_AGREED = 0xFF }; /* READs and atomics: as many as the connection manager says */
int cma_ready_qp(struct rdma_cm_id *id, uint8_t responder_resources, uint8_t initiator_depth); /* to RTS */
void cma_qp_to_error(struct rdma_cm_id *id);
int cma_connected_qp(struct cma_id *p); /* after the peer's REP: connects the queue pair and sends the RTU; 0 or an errno */

/* multicast.c */
struct cma_group *cma_group_of(struct cma_id *p, uint64_t number); /* NULL: not a member. cma_lock is held */
int cma_joined(struct cma_event *ev, const struct roce_cm_event *raw); /* 0 or an errno */
void cma_detach_groups(struct cma_id *p);
void cma_free_groups(struct cma_id *p);

#endif
