/* rig.h: two devices of ROCE_FLAGS with a connected queue pair each. */
#ifndef RIG_H
#define RIG_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			_exit(1); \
		} \
	} while (0)

enum { DEPTH = 16, SIZE = 64 << 10 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	char *buf; /* SIZE bytes, a mapping of their own */
};

static inline void make(struct end *e, struct ibv_device *device)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 1, 2, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	CHECK((e->context = ibv_open_device(device)) && (e->pd = ibv_alloc_pd(e->context)));
	e->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK((e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
	CHECK((e->cq = ibv_create_cq(e->context, 4 * DEPTH, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = e->cq;
	CHECK((e->qp = ibv_create_qp(e->pd, &init)) && !ibv_query_gid(e->context, 1, 0, &e->gid));
	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static inline void join(struct end *e, struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
	};

	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void both(struct end *a, struct end *b)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0] && list[1]);
	make(a, list[0]);
	make(b, list[1]);
	join(a, b);
	join(b, a);
	ibv_free_device_list(list);
}

/* Posts one transfer of n bytes between the buffers. */
static inline int transfer(struct end *e, struct end *peer, enum ibv_wr_opcode opcode, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)e->mr->addr, n, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)peer->mr->addr, peer->mr->rkey}}, *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

static inline enum ibv_wc_status outcome(struct end *e)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc)))
		;
	CHECK(n == 1);
	return wc.status;
}

#endif
