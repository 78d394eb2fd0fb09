/* fails.c: a thread posts a list of receives while the queue pair fails, again and again. Each that was accepted is flushed once. */
#include "rig.h"

#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 20000, LIST = 14 };

static struct end a;
static atomic_int go, begun, finished;
static int accepted;
static unsigned char flushed[LIST];

static void await(atomic_int *number, int round)
{
	for (int i = 0; *number < round; i++)
		if (i % 4096 == 4095)
			sched_yield();
}

static void *posts(void *unused)
{
	struct ibv_sge sge = {(uintptr_t)a.buf, 8, a.mr->lkey};
	struct ibv_recv_wr wrs[LIST], *bad;

	for (int i = 0; i < LIST; i++)
		wrs[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1, .next = i < LIST - 1 ? &wrs[i + 1] : NULL};
	for (int round = 1; round <= ROUNDS; round++) {
		await(&go, round);
		begun = round;
		accepted = ibv_post_recv(a.qp, wrs, &bad) ? (int)(bad - wrs) : LIST;
		finished = round;
	}
	return unused;
}

static void move(enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

	CHECK(!ibv_modify_qp(a.qp, &attr, state == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS : IBV_QP_STATE));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	pthread_t t;

	CHECK(list && list[0]);
	make(&a, list[0]);
	CHECK(!pthread_create(&t, NULL, posts, NULL));
	for (int round = 1; round <= ROUNDS; round++) {
		struct ibv_wc wc;
		int n;

		memset(flushed, 0, sizeof flushed);
		if (round % 2) { /* the post begins while the state changes, or before */
			go = round;
			for (volatile int i = 0; i < round % 500; i++)
				;
		} else {
			go = round;
			await(&begun, round);
		}
		move(IBV_QPS_ERR);
		await(&finished, round);
		while ((n = ibv_poll_cq(a.cq, 1, &wc)) > 0) {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id < LIST);
			flushed[wc.wr_id]++;
		}
		CHECK(!n);
		for (int i = 0; i < LIST; i++)
			if (flushed[i] != (i < accepted)) {
				fprintf(stderr, "round %d: receive %d of %d that were accepted was flushed %d times\n", round, i, accepted, flushed[i]);
				_exit(1);
			}
		move(IBV_QPS_RESET);
		move(IBV_QPS_INIT);
	}
	return 0;
}
