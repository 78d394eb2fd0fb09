/* front.h: declarations that the files of libibverbs.so.1 share.
 *
 * The library has no device. Each object of a program is one of the structures below: first the structure
  * of <infiniband/verbs.h>, then the members of this library. Its handle is the engine's.
 *
 * Calls return what the manual pages say: an errno, -1 with errno, or NULL with errno. The engine
 * returns negative errnos; fail() and err() convert.
 *
 * The library exports only the functions of <infiniband/verbs.h> and those marked EXPORT.
 */
#ifndef ROCE_FRONT_H
#define ROCE_FRONT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../engine/engine.h"
#include "newer.h"

#define EXPORT __attribute__((visibility("default")))
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* ---- load.c: the engine ---- */

/* Generation of this process: one more in each child of a fork. An object works only in the generation that
 * made it, since the child does not have the engine of the object. */
extern uint32_t roce_generation;
/* The engine of this generation; NULL until roce_load_engine is called. */
extern const struct roce_engine *roce_engine_table;

/* Loads the engine if it is not loaded yet. NULL and errno if there is none.
 * librdmacm.so.1 calls it, too. */
EXPORT const struct roce_engine *roce_load_engine(void);

/* forkfds.c: closes the descriptors that a child of a fork has inherited from its parent's engine. */
void roce_fork_closes_fds(void);
void roce_forkfds_lock(void); /* around fork */
void roce_forkfds_unlock(void);
/* Calls open of the engine and notes the sockets that it makes. */
int roce_open_noting(const char *name, int notify_fd, roce_handle *ctx);

/* ---- signal.c ---- */

/* Adds SA_ONSTACK to all handlers that were installed without the interposed calls. */
void roce_signals_onstack(void);
int roce_libc_sigaction(int sig, const struct sigaction *act, struct sigaction *old);
/* libc's sigaction, with SA_ONSTACK. */
int roce_onstack_sigaction(int sig, const struct sigaction *act, struct sigaction *old);

/* ---- faults.c: SIGSEGV and SIGBUS ---- */

bool roce_is_fault(int sig);
/* Implements sigaction for the two signals. */
int roce_fault_action(int sig, const struct sigaction *act, struct sigaction *old);
/* Finds handlers that were installed without the interposed calls. */
void roce_faults_check(void);
/* Called before and after the loading of an engine. The first saves the program's actions; the second restores
 * them and separates them from the engine's. Actions that other threads set in between are stored until then.
 * engine is an address in the engine, or NULL. */
void roce_faults_before_load(void);
void roce_faults_after_load(const void *engine);
/* Called in the child of a fork, which has no engine: gives the program's actions to the kernel again. */
void roce_faults_forked(void);

/* ---- objects.c: which pointers are objects ---- */

enum roce_kind {
	ROCE_ANY,
	ROCE_CONTEXT,
	ROCE_PD, /* and parent domains */
	ROCE_TD,
	ROCE_MR,
	ROCE_MW,
	ROCE_DM,
	ROCE_CHANNEL,
	ROCE_CQ,
	ROCE_SRQ,
	ROCE_XRCD,
	ROCE_QP,
	ROCE_AH,
	ROCE_BUF,
};

/* Enters an object that belongs to a context; false: no memory. */
bool roce_enter(const void *object, enum roce_kind kind, const struct ibv_context *context);
void roce_remove(const void *object);
/* Removes a context and all its objects; returns how many objects it had. */
int roce_remove_context(const struct ibv_context *context);
/* Returns 0 if the pointer is a live object of this kind and generation, EIO if the object was made before a
 * fork, and otherwise EINVAL. It does not touch the memory at object. */
int roce_check(const void *object, enum roce_kind kind);
/* Like roce_check, and EINVAL if the object is of another context. */
int roce_check_in(const struct ibv_context *context, const void *object, enum roce_kind kind);
/* Like roce_check without the generation: calls that acknowledge and free need no engine. */
bool roce_known(const void *object, enum roce_kind kind);
void roce_objects_lock(void); /* around fork */
void roce_objects_unlock(void);

/* ---- errors ---- */

/* Sets errno, returns NULL. */
static inline void *roce_null(int e)
{
	errno = e;
	return NULL;
}

/* Sets errno, returns it: verbs that return an errno set it, too. 0 stays 0. */
static inline int roce_err(int e)
{
	if (e)
		errno = e;
	return e;
}

/* Sets errno, returns -1. */
static inline int roce_minus1(int e)
{
	errno = e;
	return -1;
}

/* ---- objects ---- */

struct roce_device {
	/* Libraries of providers treat our device as struct verbs_device of rdma-core. They compare its ops with
	 * their own, so ops must differ from all of theirs; sysfs is missing. */
	struct {
		struct ibv_device device;
		const void *ops;
		atomic_int refcount;
		void *list[2];
		void *sysfs;
		void *reserved[16];
	} verbs;
	uint64_t guid;
	int index;
	char netdev[16];
	struct roce_device *next;
};

struct roce_context {
	struct verbs_context verbs; /* programs have a pointer to its last member */
	roce_handle handle;
	uint32_t generation;
	struct roce_device_attr attr; /* does not change; also for a child of a fork */
	uint16_t gid_tbl_len;
	atomic_size_t dm_left; /* device memory, of ROCE_DM_SIZE */
	pthread_mutex_t lock; /* async events: from taking one to counting it for its object */
	atomic_bool closed; /* or being closed: its queue pairs collect nothing */
};

struct roce_pd {
	struct ibv_pd pd;
	uint32_t generation;
	struct roce_pd *parent; /* of a parent domain: the domain that it shares the handle with */
	struct roce_td *td;
	atomic_int users; /* the objects made in it, and its parent domains */
};

struct roce_td {
	struct ibv_td td;
	atomic_int users;
};

struct roce_mr {
	struct ibv_mr mr;
	struct roce_dm *dm; /* whose memory it is */
};

struct roce_mw {
	struct ibv_mw mw;
	uint32_t generation;
};

struct roce_dm {
	struct ibv_dm dm;
	char *memory;
	size_t length;
	atomic_int users;
};

struct roce_channel {
	struct ibv_comp_channel channel;
	roce_handle handle;
	pthread_mutex_t lock; /* from taking an event to counting it for its queue; refcnt */
};

enum { ROCE_CQ_BATCH = 32 };

struct roce_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	uint32_t generation;
	bool extended, shared; /* made by ibv_create_cq_ex; shared by threads */
	struct roce_shard *shard;
	/* Guarded by the locks of channel and context: the events that the program got, and whether the queue is
	 * being destroyed, so that no more come. */
	uint32_t comp_events, async_events;
	bool gone;
	/* Completions that ibv_start_poll has polled and the program has not read. lock is held from start to end. */
	pthread_mutex_t lock;
	int next, count;
	struct roce_wc batch[ROCE_CQ_BATCH];
};

struct roce_srq {
	struct ibv_srq srq;
	uint32_t generation, srqn, async_events;
	bool gone;
	enum ibv_srq_type type;
};

struct roce_xrcd {
	struct ibv_xrcd xrcd;
	roce_handle handle;
};

struct roce_builder; /* qp_ex.c */
struct roce_slots;   /* collect.c */

/* Queue pairs of one shard of the engine that have collected work requests. */
struct roce_shard {
	struct roce_collecting *engine; /* whether they may */
	int64_t clock;                  /* the engine's clock less CLOCK_MONOTONIC, in ns */
	_Atomic(struct roce_qp *) list;
	pthread_mutex_t handing;
	atomic_bool rung; /* somebody has asked to post what is there since the holder of `handing` last looked */
	struct roce_shard *next; /* of all */
};

/* The collected work requests of a queue pair. */
struct roce_collected {
	struct roce_shard *shard; /* NULL: it collects none */
	pthread_mutex_t lock;     /* guards what follows */
	int room;                 /* how many more the engine is sure to accept; also read without the lock */
	int count;                /* of used slots */
	struct roce_slots *slots; /* NULL: none was collected yet */
	bool listed;
	struct roce_qp *next; /* on the list */
};

/* The receives of a queue pair that the engine has not taken. */
struct roce_receives {
	struct roce_recv_ring *ring; /* NULL: the engine takes all posts */
	uint32_t slots;
	pthread_mutex_t lock; /* of those who post */
};

struct roce_qp {
	struct ibv_qp_ex ex; /* programs have a pointer to ex.qp_base */
	void *newer_ops[8];  /* members that later headers have after those of struct ibv_qp_ex */
	uint32_t generation, async_events;
	bool gone, sq_sig_all;
	struct ibv_qp_cap cap;
	struct roce_builder *builder; /* NULL: the queue pair does not support ibv_wr_* */
	struct roce_collected collected;
	struct roce_receives receives;
};

struct roce_ah {
	struct ibv_ah ah;
};

static inline struct roce_device *to_device(struct ibv_device *d)
{
	return container_of(d, struct roce_device, verbs.device);
}

static inline struct roce_context *to_context(struct ibv_context *c)
{
	return container_of(c, struct roce_context, verbs.context);
}

static inline struct roce_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct roce_qp, ex.qp_base);
}

#define to_pd(p) container_of(p, struct roce_pd, pd)
#define to_td(p) container_of(p, struct roce_td, td)
#define to_mr(p) container_of(p, struct roce_mr, mr)
#define to_mw(p) container_of(p, struct roce_mw, mw)
#define to_dm(p) container_of(p, struct roce_dm, dm)
#define to_channel(p) container_of(p, struct roce_channel, channel)
#define to_cq(p) container_of(p, struct roce_cq, cq)
#define to_srq(p) container_of(p, struct roce_srq, srq)
#define to_xrcd(p) container_of(p, struct roce_xrcd, xrcd)

static inline roce_handle handle_of(struct ibv_context *c)
{
	return to_context(c)->handle;
}

/* ---- between files ---- */

/* sysfs.c; no header declares it */
EXPORT const char *ibv_get_sysfs_path(void);

/* context.c */
int roce_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int roce_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size);
int roce_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* memory.c, window.c, devmem.c */
/* Counts an object for its domain. The engine does not know parent domains, so this library counts the objects
 * that were made with one. NULL is no domain. */
void roce_use_pd(struct ibv_pd *pd);
void roce_leave_pd(struct ibv_pd *pd);
struct ibv_pd *roce_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
struct ibv_td *roce_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int roce_dealloc_td(struct ibv_td *td);
struct ibv_mr *roce_reg_mr(struct ibv_pd *pd, uint64_t addr, size_t length, uint64_t iova, unsigned int access, struct roce_dm *dm);
struct ibv_mr *roce_alloc_null_mr(struct ibv_pd *pd);
int roce_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg, uint32_t n);
struct ibv_mw *roce_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int roce_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int roce_dealloc_mw(struct ibv_mw *mw);
enum { ROCE_DM_SIZE = 1 << 20 }; /* bytes for each context, about what adapters have */
struct ibv_dm *roce_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int roce_free_dm(struct ibv_dm *dm);
struct ibv_mr *roce_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);

/* cq.c, cq_ex.c */
int roce_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int roce_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int roce_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *roce_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void roce_cq_ex_ops(struct ibv_cq_ex *cq);
int roce_cq_ex_poll(struct roce_cq *cq, int n, struct ibv_wc *wc);

/* channel.c, events.c: before a queue is destroyed, these wait until the program has acknowledged its events */
void roce_wait_comp_acks(struct roce_cq *cq);
struct roce_acks {
	bool *gone;
	const uint32_t *told, *completed;
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
};
void roce_wait_async_acks(struct ibv_context *context, const struct roce_acks *acks);

/* srq.c */
struct ibv_srq *roce_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int roce_get_srq_num(struct ibv_srq *srq, uint32_t *num);
struct ibv_xrcd *roce_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int roce_close_xrcd(struct ibv_xrcd *xrcd);

/* qp.c, qp_ex.c, post.c */
struct ibv_qp *roce_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *roce_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
bool roce_qp_ex_init(struct roce_qp *qp);
void roce_qp_ex_free(struct roce_qp *qp);
int roce_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int roce_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int roce_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* recv_ring.c */
/* Makes the ring for a new queue pair. */
void roce_recv_ring_init(struct roce_qp *qp, struct roce_qp_init *init);
void roce_recv_ring_free(struct roce_qp *qp);
/* Posts a receive. false: it is not for the ring, and the engine has to take it. */
bool roce_recv_ring_add(struct roce_qp *qp, const struct ibv_recv_wr *wr);
/* The call post_recv of the engine. Nobody adds to the ring meanwhile. */
int roce_recv_ring_call(struct roce_qp *qp, const struct roce_recv_wr *wrs, int n, int *posted);

/* collect.c */
/* The shard of a completion queue; NULL: its queue pairs collect nothing. */
struct roce_shard *roce_shard_of(roce_handle cq);
void roce_collect_init(struct roce_qp *qp);
/* Collects a work request. false: it cannot be collected, and the caller posts it. */
bool roce_collect(struct roce_qp *qp, const struct ibv_send_wr *wr);
/* The calls post_send and bind_mw of the engine, after what was collected; they return an errno. */
int roce_post(struct roce_qp *qp, const struct roce_send_wr *wrs, int n, int *posted);
int roce_post_bind(struct roce_qp *qp, const struct roce_send_wr *wr, uint32_t *rkey);
/* Posts what was collected for a queue pair, which collects nothing until the next call of roce_post. */
void roce_collect_stop(struct roce_qp *qp);
/* Takes a queue pair that is destroyed off the list. */
void roce_collect_end(struct roce_qp *qp);
/* Posts what was collected for the queue pairs of a shard. If another thread is doing so, that thread looks again. */
void roce_ring_doorbell(struct roce_shard *shard);
static inline void roce_doorbell(struct roce_shard *shard)
{
	if (shard && atomic_load_explicit(&shard->list, memory_order_relaxed))
		roce_ring_doorbell(shard);
}
void roce_hand_over(struct roce_collecting *engine); /* of struct roce_host */
void roce_collect_forked(void); /* in the child of a fork: what the parent has collected is the parent's */

/* ah.c */
void roce_from_ah_attr(struct roce_ah_attr *out, const struct ibv_ah_attr *in);
void roce_to_ah_attr(struct ibv_ah_attr *out, const struct roce_ah_attr *in);

#endif
