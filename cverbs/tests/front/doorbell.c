/* While one thread destroys a queue pair, the engine forbids to collect and hands over: what another queue pair has collected is posted. */
#include "check.h"

#include <time.h>

static struct fake *f;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static int stop;

static void allow(uint32_t on)
{
	__atomic_store_n(&f->collecting[0].on, on, __ATOMIC_SEQ_CST);
	f->collecting[0].until = INT64_MAX;
}

static void post(uint64_t id)
{
	struct ibv_sge sge = {.addr = 1000, .length = 10};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void *destroys(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
		struct ibv_qp *other = make_qp(pd, cq, IBV_QPT_RC);

		CHECK(other && !ibv_destroy_qp(other));
	}
	return unused;
}

int main(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread;
	time_t end = time(NULL) + 2;

	f = fake();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	qp = make_qp(pd, cq, IBV_QPT_RC);
	f->room = FAKE_WRS;
	CHECK(!pthread_create(&thread, NULL, destroys, NULL));
	for (long round = 0; time(NULL) < end; round++) {
		f->sends = f->calls = 0;
		f->room = FAKE_WRS;
		allow(0);
		post(0);
		allow(1);
		post(1);
		CHECK(__atomic_load_n(&f->sends, __ATOMIC_SEQ_CST) >= 1); /* the other thread may have posted it */
		allow(0);
		f->hand_over(&f->collecting[0]);
		for (int i = 0; i < 500 && __atomic_load_n(&f->sends, __ATOMIC_SEQ_CST) < 2; i++)
			usleep(1000);
		if (f->sends != 2) {
			fprintf(stderr, "round %ld: the collected request was not posted within 0.5 s\n", round);
			exit(1);
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_join(thread, NULL));
	return 0;
}
