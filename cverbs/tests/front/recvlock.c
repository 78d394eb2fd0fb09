/* While one thread posts a receive with a call, no other thread adds one to the ring: the engine takes what is in the ring first. */
#include "check.h"

static struct fake *f;
static struct ibv_qp *qp;
static struct roce_recv_ring *ring;
static pthread_t thread;

static void post(int elements)
{
	struct ibv_sge sge[2] = {{.addr = 1000, .length = 10}, {.addr = 1}};
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = elements}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void *adds(void *unused)
{
	post(1);
	return unused;
}

static void in_recv(void)
{
	f->in_recv = NULL;
	CHECK(!pthread_create(&thread, NULL, adds, NULL));
	usleep(200000);
	CHECK(!__atomic_load_n(&ring->added, __ATOMIC_SEQ_CST));
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);

	f = fake();
	f->room = FAKE_WRS;
	CHECK(pd && cq && (qp = make_qp(pd, cq, IBV_QPT_RC)));
	ring = f->recv_ring;
	__atomic_store_n(&ring->open, 1, __ATOMIC_SEQ_CST);
	f->in_recv = in_recv;
	post(2);
	CHECK(!pthread_join(thread, NULL));
	CHECK(ring->added == 1 && f->recvs == 1);
	return 0;
}
