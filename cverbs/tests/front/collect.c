/* Work requests that a polling program posts one at a time are collected, and posted with one call of the engine: in order, each
 * once, and before anything else of the program that could depend on them. */
#include "check.h"

#include <stdbool.h>

static struct fake *f;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void allow(uint32_t on)
{
	__atomic_store_n(&f->collecting[0].on, on, __ATOMIC_SEQ_CST);
	f->collecting[0].until = INT64_MAX;
}

/* Posts a WRITE, and overwrites everything that the program may reuse after the call. */
static int post_to(struct ibv_qp *to, uint64_t id)
{
	struct ibv_sge sge = {.addr = 1000 + id, .length = 10, .lkey = 3};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .imm_data = (uint32_t)id + 7, .wr.rdma = {id + 1, (uint32_t)id + 2}}, *bad = NULL;
	int r = ibv_post_send(to, &wr, &bad);

	CHECK(r ? bad == &wr : !bad);
	memset(&wr, 0xff, sizeof wr);
	memset(&sge, 0xff, sizeof sge);
	return r;
}

static int post(uint64_t id)
{
	return post_to(qp, id);
}

/* Begins a case: a first request, which is posted at once, has told the room, and the engine allows to collect. */
static void begin(void)
{
	f->sends = f->calls = 0;
	f->room = FAKE_WRS;
	allow(0);
	CHECK(!post(0) && f->sends == 1 && f->program_calls[0] == 1);
	allow(1);
}

/* Checks that the requests from..to-1 were posted next, with one call. */
static void posted(int call, int from, int to)
{
	CHECK(f->calls == call + 1 && f->batch[call] == to - from && f->program_calls[call] == to - from && f->sends == to);
	for (int i = from; i < to; i++) {
		const struct roce_send_wr *wr = &f->sent[i];

		CHECK(wr->wr_id == (uint64_t)i && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && wr->imm == (uint32_t)i + 7 && wr->flags == IBV_SEND_SIGNALED && wr->num_sge == 1);
		CHECK(wr->remote_addr == (uint64_t)i + 1 && wr->rkey == (uint32_t)i + 2);
		CHECK(f->first_sge[i].addr == 1000 + (uint64_t)i && f->first_sge[i].length == 10 && f->first_sge[i].lkey == 3);
	}
}

static void poll_once(void)
{
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

static void polls(void)
{
	begin();
	for (int i = 1; i < 20; i++)
		CHECK(!post((uint64_t)i) && f->sends == 1);
	poll_once();
	posted(1, 1, 20);
	poll_once();
	CHECK(f->calls == 2);
	for (int i = 20; i < 52; i++)
		CHECK(!post((uint64_t)i) && f->sends == (i < 51 ? 20 : 52));
	posted(2, 20, 52); /* without a poll */
}

/* The engine forbids to collect: nothing waits. */
static void forbidden(void)
{
	begin();
	CHECK(!post(1) && !post(2) && f->sends == 1);
	allow(0);
	f->hand_over(&f->collecting[0]);
	posted(1, 1, 3);
	CHECK(!post(3) && f->sends == 4 && f->program_calls[2] == 1);
	begin();
	CHECK(!post(1));
	allow(0);
	CHECK(!post(2) && f->sends == 3 && f->batch[1] == 1 && f->batch[2] == 1);
}

/* The engine's clock differs from the library's. */
static void clocks(void)
{
	struct timespec t;
	int64_t now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec + FAKE_AHEAD;
	begin();
	f->collecting[0].until = now;
	CHECK(!post(1) && f->sends == 2);
	f->collecting[0].until = now + INT64_C(1000000000000);
	CHECK(!post(2) && f->sends == 2);
	poll_once();
	CHECK(f->sends == 3);
}

/* The last poll is too old to begin to collect, but not to go on. */
static void too_old(void)
{
	begin();
	f->collecting[0].until = 0;
	CHECK(!post(1) && f->sends == 2);
	f->collecting[0].until = INT64_MAX;
	CHECK(!post(2) && f->sends == 2);
	f->collecting[0].until = 0;
	CHECK(!post(3) && f->sends == 2);
	poll_once();
	posted(2, 2, 4);
	CHECK(!post(4) && f->sends == 5);
}

/* The last request that fits is collected; the next one gets the engine's answer. */
static void full(void)
{
	begin();
	f->room = 5;
	CHECK(!post(1));
	poll_once();
	CHECK(f->sends == 2);
	for (int i = 2; i < 6; i++)
		CHECK(!post((uint64_t)i) && f->sends == 2);
	CHECK(post(6) == ENOMEM);
	CHECK(f->calls == 4 && f->batch[2] == 4 && f->sends == 6);
	f->room = 2;
	CHECK(!post(6) && f->sends == 7);
}

/* Requests that cannot be collected leave after those that were. */
static void others(void)
{
	char data[8] = "inline";
	struct ibv_sge sge[2] = {{.addr = (uintptr_t)data, .length = 8}, {.addr = (uintptr_t)data, .length = 8}}, big = {.length = 4097};
	struct ibv_send_wr second = {.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr wrs[] = {
		{.next = &second, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND},
		{.sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND},
		{.opcode = IBV_WR_SEND},
		{.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE},
		{.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = 1 << 30},
		{.sg_list = &big, .num_sge = 1, .opcode = IBV_WR_SEND},
		{.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ},
		{.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV},
		{.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD},
	}, *bad;

	for (size_t i = 0; i < sizeof wrs / sizeof wrs[0]; i++) {
		begin();
		CHECK(!post(1) && !post(2) && f->sends == 1);
		CHECK(!ibv_post_send(qp, &wrs[i], &bad));
		CHECK(f->calls == 3 && f->batch[1] == 2 && f->sent[1].wr_id == 1 && f->sent[2].wr_id == 2 && f->program_calls[2] == 1);
	}
	begin();
	CHECK(!post(1));
	wrs[2].num_sge = -1;
	CHECK(ibv_post_send(qp, &wrs[2], &bad) == EINVAL && bad == &wrs[2]);
	wrs[2].num_sge = 1;
	CHECK(ibv_post_send(qp, &wrs[2], &bad) == EINVAL && bad == &wrs[2]);
	wrs[2].opcode = (enum ibv_wr_opcode)99;
	CHECK(ibv_post_send(qp, &wrs[2], &bad) == EINVAL && f->sends == 1);
	poll_once();
	posted(1, 1, 2);
}

/* Before the state changes, what was collected is posted. Another thread may post meanwhile. */
static void during_modify(void)
{
	posted(1, 1, 2);
	CHECK(!post(2) && f->sends == 3);
}

static void call_modify(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static void call_notify(void)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

static void call_start_poll(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 1};
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &init);

	CHECK(ex && ibv_start_poll(ex, &attr) == ENOENT);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
}

static void call_bind(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {0};

	CHECK(mw && !ibv_bind_mw(qp, mw, &bind));
	CHECK(f->sent[3].opcode == IBV_WR_BIND_MW);
	f->sends--;
	CHECK(!post(9) && f->sends == 4); /* the room is unknown */
	f->sends--, f->calls--;
	CHECK(!ibv_dealloc_mw(mw));
}

/* Calls that a program may make while requests are collected. */
static void calls(void)
{
	static void (*const all[])(void) = {call_modify, call_notify, call_start_poll, call_bind};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		begin();
		CHECK(!post(1) && !post(2) && f->sends == 1);
		all[i]();
		posted(1, 1, 3);
	}
	begin();
	CHECK(!post(1) && f->sends == 1);
	f->in_modify = during_modify;
	call_modify();
	f->in_modify = NULL;
	CHECK(!post(3) && f->sends == 4); /* the room is unknown again */
}

static void builders(void)
{
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *plain = qp;
	struct ibv_qp_ex *ex;

	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	ex = ibv_qp_to_qp_ex(qp);
	begin();
	CHECK(!post(1) && f->sends == 1);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	CHECK(!ibv_wr_complete(ex));
	CHECK(f->calls == 3 && f->sends == 3 && f->sent[1].wr_id == 1);
	CHECK(!ibv_destroy_qp(qp));
	qp = plain;
}

/* A queue pair that is destroyed posts first, and is no longer on the list. */
static void destroyed(void)
{
	struct ibv_qp *plain = qp, *other = make_qp(pd, cq, IBV_QPT_UC);

	qp = other;
	begin();
	CHECK(!post(1) && f->sends == 1);
	qp = plain;
	CHECK(!ibv_destroy_qp(other));
	posted(1, 1, 2);
	poll_once();
	CHECK(f->calls == 2);
	other = make_qp(pd, cq, IBV_QPT_RC); /* what others have collected is posted then, too */
	CHECK(!post_to(other, 0));
	begin();
	CHECK(!post(1) && !post_to(other, 2) && f->sends == 1);
	CHECK(!ibv_destroy_qp(other) && f->sends == 3 && f->sent[1].wr_id == 2 && f->sent[2].wr_id == 1);
	poll_once();
	CHECK(f->sends == 3);
}

static void several(void)
{
	struct ibv_qp *other = make_qp(pd, cq, IBV_QPT_RC);

	begin();
	CHECK(!post_to(other, 1) && f->sends == 2); /* its room is not known */
	for (int i = 2; i < 10; i += 2)
		CHECK(!post((uint64_t)i) && !post_to(other, (uint64_t)i + 1));
	CHECK(f->sends == 2);
	poll_once();
	CHECK(f->sends == 10 && f->calls == 4 && f->batch[2] == 4 && f->batch[3] == 4);
	CHECK(!ibv_destroy_qp(other));
}

/* Work requests that name more than their data are not collected. */
static void types(void)
{
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .qp_type = IBV_QPT_XRC_SEND, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD, .cap = {.max_send_sge = 1}};
	struct ibv_qp *xrc = ibv_create_qp_ex(context, &init), *ud = make_qp(pd, cq, IBV_QPT_UD);
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_sge sge = {0};
	struct ibv_send_wr datagram = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .wr.ud = {ah, 1, 2}}, *bad;

	CHECK(xrc && ud && ah);
	begin();
	for (int i = 1; i < 5; i++)
		CHECK(!post_to(xrc, (uint64_t)i) && f->sends == 1 + i);
	for (int i = 5; i < 9; i++)
		CHECK(!ibv_post_send(ud, &datagram, &bad) && f->sends == 1 + i);
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(xrc) && !ibv_destroy_qp(ud));
}

/* A slow post to a queue pair of one shard holds up no other shard. */

static int slow_posts, go_on;

static void slow(uint64_t id)
{
	if (id != 77 && id != 88)
		return;
	__atomic_store_n(&slow_posts, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&go_on, __ATOMIC_SEQ_CST))
		sched_yield();
}

static void *poller(void *unused)
{
	poll_once();
	return unused;
}

static void shards(void)
{
	struct ibv_cq *far_cq = ibv_create_cq(context, 1, NULL, NULL, 1);
	struct ibv_qp *far = make_qp(pd, far_cq, IBV_QPT_RC), *near = make_qp(pd, cq, IBV_QPT_RC);
	struct ibv_wc wc;
	pthread_t thread;

	CHECK(far_cq && far && near);
	allow(0);
	CHECK(!post_to(near, 0));
	begin();
	f->collecting[1].on = 1;
	f->collecting[1].until = INT64_MAX;
	CHECK(!post_to(far, 1) && f->sends == 2);
	CHECK(!post(77) && f->sends == 2);
	f->in_post = slow;
	CHECK(!pthread_create(&thread, NULL, poller, NULL));
	while (!__atomic_load_n(&slow_posts, __ATOMIC_SEQ_CST))
		sched_yield();
	CHECK(!post_to(far, 3) && f->sends == 2);
	CHECK(ibv_poll_cq(far_cq, 1, &wc) == 0 && f->sends == 3 && f->sent[2].wr_id == 3);
	CHECK(!post_to(far, 4) && f->sends == 3);
	f->hand_over(&f->collecting[1]);
	CHECK(f->sends == 4);
	CHECK(!post_to(near, 5) && f->sends == 4); /* of the shard whose locks are held */
	poll_once();
	f->hand_over(&f->collecting[0]);
	CHECK(!ibv_req_notify_cq(cq, 0) && f->sends == 4);
	__atomic_store_n(&go_on, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_join(thread, NULL));
	f->in_post = NULL;
	CHECK(f->sends == 6 && f->sent[4].wr_id == 77 && f->sent[5].wr_id == 5); /* by the other thread, which was asked */
	CHECK(!post(6) && !post_to(far, 7) && f->sends == 6);
	f->hand_over(NULL);
	CHECK(f->sends == 8);
	CHECK(!ibv_destroy_qp(near) && !ibv_destroy_qp(far) && !ibv_destroy_cq(far_cq));
}

static void *reader(void *near)
{
	struct ibv_sge sge = {.length = 1};
	struct ibv_send_wr wr = {.wr_id = 88, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}, *bad;

	CHECK(!ibv_post_send(near, &wr, &bad));
	return NULL;
}

/* A queue pair to which another thread posts stays on the list. */
static void held(void)
{
	struct ibv_qp *near = make_qp(pd, cq, IBV_QPT_RC);
	pthread_t thread;

	slow_posts = go_on = 0;
	allow(0);
	CHECK(!post_to(near, 0));
	begin();
	CHECK(!post_to(near, 1) && f->sends == 1);
	f->in_post = slow;
	CHECK(!pthread_create(&thread, NULL, reader, near));
	while (!__atomic_load_n(&slow_posts, __ATOMIC_SEQ_CST))
		sched_yield();
	CHECK(f->sends == 2);
	f->hand_over(&f->collecting[0]);
	__atomic_store_n(&go_on, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_join(thread, NULL));
	f->in_post = NULL;
	CHECK(f->sends == 3 && f->sent[2].wr_id == 88);
	CHECK(!post_to(near, 3) && f->sends == 3);
	poll_once();
	CHECK(f->sends == 4 && f->sent[3].wr_id == 3);
	CHECK(!ibv_destroy_qp(near));
}

/* ---- several threads ---- */

enum { THREADS = 4, EACH = 900 };

static int finished;

static void *poster(void *number)
{
	struct ibv_qp *mine = make_qp(pd, cq, IBV_QPT_RC);
	struct ibv_wc wc;

	CHECK(mine);
	for (uint64_t i = 0; i < EACH; i++) {
		CHECK(!post_to(mine, (uint64_t)(uintptr_t)number * EACH + i));
		if (i % 7 == 0)
			CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	}
	__atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
	return mine;
}

/* As the engine does when the program polls no more: it forbids, then takes what is there. */
static void *engine(void *unused)
{
	while (__atomic_load_n(&finished, __ATOMIC_SEQ_CST) < THREADS) {
		allow(0);
		f->hand_over(&f->collecting[0]);
		allow(1);
	}
	allow(0);
	f->hand_over(&f->collecting[0]);
	return unused;
}

static void threads(void)
{
	pthread_t thread[THREADS], taker;
	struct ibv_qp *theirs[THREADS];
	uint64_t next[THREADS];

	f->sends = f->calls = 0;
	f->room = FAKE_WRS;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, poster, (void *)(uintptr_t)i));
	CHECK(!pthread_create(&taker, NULL, engine, NULL));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(thread[i], (void **)&theirs[i]));
	CHECK(!pthread_join(taker, NULL));
	CHECK(f->sends == THREADS * EACH);
	for (int i = 0; i < THREADS; i++)
		next[i] = (uint64_t)i * EACH;
	for (int i = 0; i < f->sends; i++)
		CHECK(f->sent[i].wr_id == next[f->sent[i].wr_id / EACH]++);
	for (int i = 0; i < THREADS; i++)
		CHECK(!ibv_destroy_qp(theirs[i]));
}

/* The engine forbids to collect after the library has seen that it may, and takes what is there, before anything is: the library
 * posts it itself. The first request of a queue pair gets memory at that moment. */

extern void *__libc_calloc(size_t n, size_t size);

static bool forbid;

void *calloc(size_t n, size_t size)
{
	if (forbid) {
		forbid = false;
		allow(0);
		f->hand_over(&f->collecting[0]);
	}
	return __libc_calloc(n, size);
}

static void forbidden_meanwhile(void)
{
	struct ibv_qp *plain = qp;

	qp = make_qp(pd, cq, IBV_QPT_RC);
	begin();
	forbid = true;
	CHECK(!post(1) && !forbid);
	posted(1, 1, 2);
	CHECK(!ibv_destroy_qp(qp));
	qp = plain;
}

/* ---- fork ---- */

static void child(void)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_wc wc;

	CHECK(ibv_post_send(qp, &wr, &bad) == EIO);
	CHECK(ibv_poll_cq(cq, 1, &wc) == -EIO);
	CHECK(open_first());
}

static void forked(void)
{
	begin();
	CHECK(!post(1) && f->sends == 1);
	in_child(child);
	poll_once();
	posted(1, 1, 2);
}

/* What was collected is posted before the context closes; nothing is collected from then on. */
static void while_closing(void)
{
	posted(1, 1, 2);
	CHECK(!post(2) && f->sends == 3);
}

int main(void)
{
	context = open_first();
	f = fake();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	qp = make_qp(pd, cq, IBV_QPT_RC);
	CHECK(qp);
	polls();
	forbidden();
	clocks();
	too_old();
	full();
	others();
	calls();
	builders();
	destroyed();
	several();
	types();
	shards();
	held();
	threads();
	forbidden_meanwhile();
	forked();
	begin();
	CHECK(!post(1) && f->sends == 1);
	f->in_close = while_closing;
	CHECK(!ibv_close_device(context));
	CHECK(!post(3) && f->sends == 4); /* the engine refuses it */
	return 0;
}
