/* collect.c: short work requests of a program that polls are collected, and posted with one call.
 *
 * A call of the engine takes about as long as a short SEND. Most programs post one work request with each call, as
 * many as they can, and then poll. While a program polls, the engine allows to collect. A work request that
 * the engine is sure to accept then stays here until the next poll, until there are COLLECTED, or until other
 * work requests of the queue pair are posted. If the program polls no more, the engine forbids to collect, and then
 * calls roce_hand_over. Whoever collects looks again afterwards whether it was forbidden; so one of the two posts it.
 *
 * Each queue pair has a lock for what it has collected, which is held while it is posted, so that the order stays. Queue
 * pairs that have collected are on the list of their shard: anybody adds to it, and who holds `handing` takes all of
 * them. Nobody waits for these locks but calls that post to the queue pair, change its state or destroy it: who finds a lock held
 * leaves the work to its holder, which looks again afterwards. For a thread that holds one may have been interrupted by a
 * signal whose handler calls exit. */
#include "front.h"

#include <time.h>

enum { COLLECTED = 32, MAX_LENGTH = 4096 };

struct roce_slots {
	struct roce_send_wr wrs[COLLECTED]; /* members that no collected request has stay 0 */
	struct roce_sge sges[COLLECTED];
};

static _Atomic(struct roce_shard *) shards; /* they stay for ever, as those of the engine do */

/* ---- whether to collect ---- */

static int64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static struct roce_shard *new_shard(struct roce_collecting *engine, int64_t clock)
{
	struct roce_shard *shard = calloc(1, sizeof *shard);

	if (!shard)
		return NULL;
	shard->engine = engine;
	shard->clock = clock;
	pthread_mutex_init(&shard->handing, NULL);
	shard->next = shards;
	shards = shard;
	return shard;
}

struct roce_shard *roce_shard_of(roce_handle cq)
{
	int64_t now, before = clock_now(); /* if the call takes long, the last poll seems older than it is */
	struct roce_collecting *engine = roce_engine_table->collecting(cq, &now);

	if (!engine)
		return NULL;
	roce_objects_lock();
	if (!engine->front_end)
		engine->front_end = (uintptr_t)new_shard(engine, now - before);
	roce_objects_unlock();
	return (struct roce_shard *)(uintptr_t)engine->front_end;
}

void roce_collect_init(struct roce_qp *qp)
{
	const struct ibv_qp *b = &qp->ex.qp_base;

	if ((b->qp_type == IBV_QPT_RC || b->qp_type == IBV_QPT_UC) && qp->cap.max_send_sge)
		qp->collected.shard = to_cq(b->send_cq)->shard;
}

static bool allowed(struct roce_qp *qp)
{
	struct roce_context *context = to_context(qp->ex.qp_base.context);

	return __atomic_load_n(&qp->collected.shard->engine->on, __ATOMIC_SEQ_CST) && !atomic_load(&context->closed);
}

/* The last poll was a short time ago. */
static bool polls(const struct roce_shard *shard)
{
	return clock_now() + shard->clock < __atomic_load_n(&shard->engine->until, __ATOMIC_RELAXED);
}

static bool is_simple(const struct ibv_send_wr *wr)
{
	const unsigned int flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return !wr->next && wr->num_sge == 1 && wr->sg_list && !(wr->send_flags & ~flags) && wr->sg_list->length <= MAX_LENGTH;
	default:
		return false;
	}
}

/* ---- one queue pair ---- */

static void set_room(struct roce_collected *c, int room)
{
	__atomic_store_n(&c->room, room, __ATOMIC_RELAXED);
}

/* Posts what was collected. The caller holds the lock of the queue pair. The engine refuses only what a program posts while it
 * resets or destroys the queue pair, or closes its context; such requests have no completions. */
static void post_collected(struct roce_qp *qp)
{
	struct roce_collected *c = &qp->collected;
	int n = c->count, posted, room = 0;

	if (!n)
		return;
	c->count = 0;
	roce_engine_table->post_send(qp->ex.qp_base.handle, c->slots->wrs, n, n, &posted, &room);
	set_room(c, room);
}

/* Puts a queue pair that is not on the list there. */
static void list(struct roce_qp *qp)
{
	struct roce_collected *c = &qp->collected;

	c->next = atomic_load(&c->shard->list);
	while (!atomic_compare_exchange_weak(&c->shard->list, &c->next, qp))
		;
}

bool roce_collect(struct roce_qp *qp, const struct ibv_send_wr *wr)
{
	struct roce_collected *c = &qp->collected;
	struct roce_send_wr *slot;
	struct ibv_send_wr in;
	struct ibv_sge sge;

	if (!__atomic_load_n(&c->room, __ATOMIC_RELAXED) || !allowed(qp) || !is_simple(wr))
		return false;
	in = *wr; /* before the lock: the program's memory may be missing */
	sge = *wr->sg_list;
	pthread_mutex_lock(&c->lock);
	if (!c->slots)
		c->slots = calloc(1, sizeof *c->slots);
	if (!c->room || !c->slots || (!c->count && !polls(c->shard))) {
		pthread_mutex_unlock(&c->lock);
		return false;
	}
	c->slots->sges[c->count] = (struct roce_sge){sge.addr, sge.length, sge.lkey};
	slot = &c->slots->wrs[c->count];
	slot->wr_id = in.wr_id;
	slot->sg = &c->slots->sges[c->count];
	slot->num_sge = 1;
	slot->opcode = in.opcode;
	slot->flags = in.send_flags;
	slot->imm = in.imm_data;
	slot->remote_addr = in.wr.rdma.remote_addr;
	slot->rkey = in.wr.rdma.rkey;
	c->count++;
	set_room(c, c->room - 1);
	if (c->count == COLLECTED) {
		post_collected(qp);
	} else if (!c->listed) {
		c->listed = true;
		list(qp);
	}
	pthread_mutex_unlock(&c->lock);
	atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(!allowed(qp)))
		roce_collect_stop(qp);
	return true;
}

int roce_post(struct roce_qp *qp, const struct roce_send_wr *wrs, int n, int *posted)
{
	struct roce_collected *c = &qp->collected;
	int r, room = 0;

	pthread_mutex_lock(&c->lock);
	post_collected(qp);
	r = -roce_engine_table->post_send(qp->ex.qp_base.handle, wrs, n, 1, posted, &room);
	set_room(c, c->shard ? room : 0);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int roce_post_bind(struct roce_qp *qp, const struct roce_send_wr *wr, uint32_t *rkey)
{
	struct roce_collected *c = &qp->collected;
	int r;

	pthread_mutex_lock(&c->lock);
	post_collected(qp);
	set_room(c, 0);
	r = -roce_engine_table->bind_mw(qp->ex.qp_base.handle, wr, rkey);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void roce_collect_stop(struct roce_qp *qp)
{
	pthread_mutex_lock(&qp->collected.lock);
	post_collected(qp);
	set_room(&qp->collected, 0);
	pthread_mutex_unlock(&qp->collected.lock);
}

/* ---- the queue pairs of a shard ---- */

/* Takes all queue pairs off the list and posts what they have collected. The caller holds `handing`. Those whose lock is held return to
 * the list: the holder posts what was collected before, or looks again whether it may collect. */
static void hand_over(struct roce_shard *shard)
{
	struct roce_qp *qp = atomic_exchange(&shard->list, NULL), *busy = NULL, *next;

	for (; qp; qp = next) {
		next = qp->collected.next;
		if (pthread_mutex_trylock(&qp->collected.lock)) {
			qp->collected.next = busy;
			busy = qp;
			continue;
		}
		qp->collected.listed = false;
		post_collected(qp);
		pthread_mutex_unlock(&qp->collected.lock);
	}
	for (; busy; busy = next) {
		next = busy->collected.next;
		list(busy);
	}
}

void roce_ring_doorbell(struct roce_shard *shard)
{
	atomic_store(&shard->rung, true);
	while (atomic_load(&shard->rung) && !pthread_mutex_trylock(&shard->handing)) {
		atomic_store(&shard->rung, false);
		hand_over(shard);
		pthread_mutex_unlock(&shard->handing);
		atomic_thread_fence(memory_order_seq_cst); /* who has found it locked has rung before */
	}
}

void roce_collect_end(struct roce_qp *qp)
{
	struct roce_shard *shard = qp->collected.shard;
	struct roce_qp *other, *next;

	if (shard) {
		pthread_mutex_lock(&shard->handing);
		for (other = atomic_exchange(&shard->list, NULL); other; other = next) {
			next = other->collected.next;
			if (other != qp)
				list(other);
		}
		pthread_mutex_unlock(&shard->handing);
		roce_ring_doorbell(shard); /* for those who have found it locked, or the list empty */
	}
	free(qp->collected.slots);
}

void roce_hand_over(struct roce_collecting *engine)
{
	if (engine) {
		if (engine->front_end)
			roce_ring_doorbell((struct roce_shard *)(uintptr_t)engine->front_end);
		return;
	}
	for (struct roce_shard *shard = shards; shard; shard = shard->next)
		roce_ring_doorbell(shard);
}

void roce_collect_forked(void)
{
	shards = NULL;
}
