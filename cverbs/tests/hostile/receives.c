/* receives.c: receives that several threads post at once to one queue pair.
 *
 *	receives limit	how many are accepted before ENOMEM
 *	receives threads	one thread posts lists of two elements, which the engine takes, another those of one: each completes once
 *	receives full	two threads post until ENOMEM, during traffic: each completes once */
#include "rig.h"

#include <stdatomic.h>
#include <time.h>

static struct end a, b;
static uint32_t granted;

static int post(struct end *e, uint64_t id, int elements)
{
	struct ibv_sge sge[2] = {{(uintptr_t)e->buf, 8, e->mr->lkey}, {(uintptr_t)e->buf + 8, 8, e->mr->lkey}};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = elements}, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

static void fail_qp(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE));
}

/* The completion queue has room for what the receive queue may have. */
static void limit(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	uint32_t n = 0, done = 0;

	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
	granted = init.cap.max_recv_wr;
	while (n < granted - 1 && !post(&a, n, 1))
		n++;
	CHECK(!post(&a, n++, 2));
	while (n < 10 * granted && !post(&a, n, 1))
		n++;
	fail_qp(&a);
	while (ibv_poll_cq(a.cq, 1, &wc) == 1)
		done++;
	fprintf(stderr, "granted %u, accepted %u, completed %u\n", granted, n, done);
	CHECK(n == granted && done == n);
}

enum { MANY = 400000 };

static unsigned char seen[2 * MANY];
static _Atomic uint32_t next_id;
static atomic_int stop;
static int elements_of_other = 2;

static void *posts(void *elements)
{
	while (!stop) {
		uint32_t id = next_id++;

		if (id >= MANY)
			break;
		while (post(&a, id, (int)(intptr_t)elements))
			if (stop) {
				seen[id] = 255;
				return NULL;
			}
	}
	return NULL;
}

static uint64_t sent, got;

static void take(void)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(a.cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++) {
			CHECK(wc[i].opcode == IBV_WC_RECV || wc[i].status);
			CHECK(wc[i].wr_id < MANY);
			if (seen[wc[i].wr_id]++) {
				fprintf(stderr, "receive %lu completed again\n", (unsigned long)wc[i].wr_id);
				_exit(1);
			}
			got++;
		}
	while ((n = ibv_poll_cq(b.cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++)
			CHECK(!wc[i].status);
}

static void traffic(void)
{
	pthread_t t[2];
	uint32_t lost = 0, posted;

	CHECK(!pthread_create(&t[0], NULL, posts, (void *)1) && !pthread_create(&t[1], NULL, posts, (void *)(intptr_t)elements_of_other));
	for (time_t end = time(NULL) + 2; time(NULL) < end && next_id < MANY;) {
		struct ibv_sge sge = {(uintptr_t)b.buf, 8, b.mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

		if (!ibv_post_send(b.qp, &wr, &bad))
			sent++;
		take();
	}
	stop = 1;
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	usleep(100000);
	take();
	fail_qp(&a);
	take();
	posted = next_id < MANY ? next_id : MANY;
	for (uint32_t i = 0; i < posted; i++)
		lost += !seen[i];
	fprintf(stderr, "posted %u, sent %lu, completed %lu, lost %u\n", posted, (unsigned long)sent, (unsigned long)got, lost);
	CHECK(!lost);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	both(&a, &b);
	if (!strcmp(argv[1], "limit"))
		limit();
	else if (!strcmp(argv[1], "full"))
		elements_of_other = 1, traffic();
	else
		traffic();
	return 0;
}
