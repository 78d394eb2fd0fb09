/* A queue pair of RC or UC has a ring of receives, which a post fills without a call of the engine: in order, as long as the ring is
 * open and there is room in the ring and in the queue. The engine takes the other posts. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { SLOTS = 32, LIMIT = 64 };

static struct fake *f;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct roce_recv_ring *ring;
static void *page; /* which a post may find missing */

static void set(uint32_t *member, uint32_t value)
{
	__atomic_store_n(member, value, __ATOMIC_SEQ_CST);
}

/* A new queue pair with an open ring. */
static void begin(enum ibv_qp_type type)
{
	f->recvs = f->calls = 0;
	f->room = FAKE_WRS;
	qp = make_qp(pd, cq, type);
	ring = f->recv_ring;
	CHECK(qp && ring && f->recv_slots == SLOTS && !ring->open && !ring->added && (uintptr_t)ring % 64 == 0);
	set(&ring->open, 1);
}

static void end(void)
{
	CHECK(!ibv_destroy_qp(qp));
}

static int post(uint64_t id, int elements)
{
	struct ibv_sge sge[2] = {{.addr = 1000 + id, .length = 10, .lkey = 3}, {.addr = 1}};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = elements}, *bad = NULL;
	int r = ibv_post_recv(qp, &wr, &bad);

	CHECK(r ? bad == &wr : !bad);
	memset(&wr, 0xff, sizeof wr);
	memset(sge, 0xff, sizeof sge);
	return r;
}

static void is_in(uint32_t at, uint64_t id, uint32_t elements)
{
	const struct roce_recv_slot *slot = &ring->slots[at % SLOTS];

	CHECK(slot->wr_id == id && slot->num_sge == elements);
	CHECK(slot->sge.addr == (elements ? 1000 + id : 0) && slot->sge.length == (elements ? 10 : 0) && slot->sge.lkey == (elements ? 3 : 0));
}

static void fills(enum ibv_qp_type type)
{
	begin(type);
	for (uint32_t i = 0; i < 200; i++) {
		CHECK(!post(i, i % 3 != 0) && ring->added == i + 1);
		is_in(i, i, i % 3 != 0);
		set(&ring->taken, i);
		set(&ring->done, i);
	}
	CHECK(!f->calls);
	CHECK(!post(200, 2) && ring->added == 200 && f->recvs == 1 && f->received[0].wr_id == 200 && f->received[0].num_sge == 2);
	CHECK(post(1, -1) == EINVAL && ring->added == 200 && f->calls == 1);
	end();
}

static void full(void)
{
	begin(IBV_QPT_RC);
	for (uint32_t i = 0; i < SLOTS; i++)
		CHECK(!post(i, 1));
	CHECK(!post(SLOTS, 1) && ring->added == SLOTS && f->calls == 1 && f->recvs == 1);
	set(&ring->done, UINT32_MAX); /* what the engine does then */
	for (uint32_t i = SLOTS; i < LIMIT - 1; i++) {
		set(&ring->taken, i);
		CHECK(!post(i, 1) && ring->added == i + 1);
		is_in(i, i, 1);
	}
	set(&ring->taken, LIMIT - 1);
	f->room = 0;
	CHECK(post(100, 1) == ENOMEM && ring->added == LIMIT - 1 && f->calls == 2);
	set(&ring->done, 0);
	CHECK(!post(101, 1) && ring->added == LIMIT && f->calls == 2);
	is_in(LIMIT - 1, 101, 1);
	end();
}

/* The longest element that the ring takes. The engine refuses longer ones. */
static void longest(void)
{
	struct ibv_sge sge = {.length = 1u << 31};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	begin(IBV_QPT_RC);
	CHECK(!ibv_post_recv(qp, &wr, &bad) && ring->added == 1 && ring->slots[0].sge.length == 1u << 31);
	sge.length++;
	CHECK(!ibv_post_recv(qp, &wr, &bad) && ring->added == 1 && f->recvs == 1);
	end();
}

static void closed(void)
{
	begin(IBV_QPT_RC);
	set(&ring->open, 0);
	CHECK(!post(7, 1) && !ring->added && f->recvs == 1 && f->received[0].wr_id == 7);
	end();
}

/* The engine closes the ring between the look and the post: when the post reads the missing page. */
static void closes(int signal)
{
	(void)signal;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
	set(&ring->open, 0);
}

static void closed_meanwhile(void)
{
	struct sigaction action = {.sa_handler = closes}, before;
	struct ibv_recv_wr wr = {.wr_id = 5, .num_sge = 1}, *bad;

	begin(IBV_QPT_RC);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	wr.sg_list = page;
	*wr.sg_list = (struct ibv_sge){1005, 10, 3};
	CHECK(!sigaction(SIGSEGV, &action, &before) && !mprotect(page, 4096, PROT_NONE));
	CHECK(!ibv_post_recv(qp, &wr, &bad));
	CHECK(!sigaction(SIGSEGV, &before, NULL));
	is_in(0, 5, 1);
	CHECK(ring->added == 1 && f->calls == 1 && f->batch[0] == 0 && !f->recvs);
	CHECK(!munmap(page, 4096));
	end();
}

/* What is not for the ring, and what follows it in the list, is for the engine. */
static void lists(void)
{
	struct ibv_recv_wr wr[70] = {{0}}, *bad = NULL;

	begin(IBV_QPT_UC);
	for (int i = 0; i < 70; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i, .next = i < 69 ? &wr[i + 1] : NULL};
	CHECK(!ibv_post_recv(qp, wr, &bad) && ring->added == SLOTS && f->recvs == 70 - SLOTS && f->received[0].wr_id == SLOTS);
	for (uint32_t i = 0; i < SLOTS; i++)
		is_in(i, i, 0);
	set(&ring->taken, SLOTS);
	wr[3].num_sge = 1;
	CHECK(ibv_post_recv(qp, wr, &bad) == EINVAL && bad == &wr[3] && ring->added == SLOTS + 3);
	wr[3].num_sge = 0;
	wr[1].next = wr;
	f->room = FAKE_WRS;
	set(&ring->taken, SLOTS + 3);
	set(&ring->done, SLOTS + 3);
	CHECK(ibv_post_recv(qp, wr, &bad) == EINVAL && ring->added <= 2 * SLOTS + 3);
	end();
}

/* Several threads post to one queue pair: every receive is there once, and those of a thread are in order. */
enum { THREADS = 4, EACH = 50000 };

static atomic_bool over;

/* Takes the receives like the engine. */
static void *takes(void *seen)
{
	uint32_t taken = 0;

	while (!over || taken != __atomic_load_n(&ring->added, __ATOMIC_ACQUIRE)) {
		uint32_t added = __atomic_load_n(&ring->added, __ATOMIC_ACQUIRE);

		for (; taken != added; taken++) {
			const struct roce_recv_slot *slot = &ring->slots[taken % SLOTS];

			CHECK(((uint64_t *)seen)[slot->wr_id >> 32]++ == (uint32_t)slot->wr_id);
			CHECK(slot->sge.addr == 1000 + slot->wr_id && slot->num_sge == 1);
			set(&ring->done, taken + 1);
			set(&ring->taken, taken + 1);
		}
	}
	return NULL;
}

static void *posts(void *first)
{
	for (uint64_t i = 0; i < EACH; i++) {
		while (ring->added - __atomic_load_n(&ring->taken, __ATOMIC_SEQ_CST) > SLOTS - THREADS)
			sched_yield();
		CHECK(!post((uintptr_t)first + i, 1));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS], taker;
	uint64_t seen[THREADS] = {0};

	begin(IBV_QPT_RC);
	CHECK(!pthread_create(&taker, NULL, takes, seen));
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, posts, (void *)(i << 32)));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(t[i], NULL));
	over = true;
	CHECK(!pthread_join(taker, NULL));
	for (int i = 0; i < THREADS; i++)
		CHECK(seen[i] == EACH);
	CHECK(!f->calls);
	end();
}

static void none(void)
{
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .srq = srq, .cap = {.max_recv_wr = 1}};
	struct ibv_recv_wr wr = {.wr_id = 3}, *bad;

	f->recvs = 0;
	for (int i = 0; i < 3; i++) {
		switch (i) {
		case 1:
			init.srq = NULL;
			init.cap.max_recv_wr = 0;
			break;
		case 2:
			init.cap.max_recv_wr = 1;
			init.qp_type = IBV_QPT_UD;
		}
		qp = ibv_create_qp(pd, &init);
		CHECK(qp && !f->recv_ring && !ibv_post_recv(qp, &wr, &bad) && f->recvs == i + 1);
		end();
	}
	CHECK(!ibv_destroy_srq(srq));
}

int main(void)
{
	struct ibv_context *context = open_first();

	f = fake();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	fills(IBV_QPT_RC);
	fills(IBV_QPT_UC);
	full();
	longest();
	closed();
	closed_meanwhile();
	lists();
	threads();
	none();
	return 0;
}
