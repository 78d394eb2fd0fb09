/* collect.c: short work requests of a program that polls are collected, and posted with one call.
 *
 * A call of the engine takes about as long as a short SEND. Most programs post one work request with each call, as
 * many as they can, and then poll. While a program polls, the engine allows to collect (*may). A work request that
 * the engine is sure to accept then stays here until the next poll, until there are ROCE_COLLECTED, or until other
 * work requests of the queue pair are posted. If the program polls no more, the engine forbids to collect, and then
 * calls roce_hand_over_all. Whoever collects reads *may again afterwards, so either of them posts it.
 *
 * A program may call ibv_post_send for a queue pair, poll and destroy others in several threads. Each queue pair has a lock
 * for what it has collected, which is held while it is posted, so that the order stays. Queue pairs that have collected are on
 * a list: anybody adds to it, and who holds `handing` takes all of them. Only a holder of `handing` takes the lock of a
 * queue pair while it holds another one. */
#include "front.h"

enum { ROCE_COLLECTED = 32, MAX_LENGTH = 4096 };

struct roce_slots {
	struct roce_send_wr wrs[ROCE_COLLECTED]; /* members that no collected request has stay 0 */
	struct roce_sge sges[ROCE_COLLECTED];
};

_Atomic(struct roce_qp *) roce_collecting; /* the list */

static pthread_mutex_t handing = PTHREAD_MUTEX_INITIALIZER;

static bool may_collect(const struct roce_qp *qp)
{
	return __atomic_load_n(qp->collected.may, __ATOMIC_SEQ_CST);
}

void roce_collect_init(struct roce_qp *qp, const uint32_t *may)
{
	static const uint32_t never;
	enum ibv_qp_type type = qp->ex.qp_base.qp_type;
	bool can = may && (type == IBV_QPT_RC || type == IBV_QPT_UC) && qp->cap.max_send_sge;

	pthread_mutex_init(&qp->collected.lock, NULL);
	qp->collected.may = can ? may : &never;
}

/* Posts what was collected. The caller holds the lock of the queue pair. A refusal means that the queue pair was destroyed
 * or reset: its requests have no completions then. */
static void post_collected(struct roce_qp *qp)
{
	struct roce_collected *c = &qp->collected;
	int n = c->count, posted;

	if (!n)
		return;
	c->count = c->room = 0;
	roce_engine_table->post_send(qp->ex.qp_base.handle, c->slots->wrs, n, n, &posted, &c->room);
}

static void list(struct roce_qp *qp)
{
	if (qp->collected.listed)
		return;
	qp->collected.listed = true;
	qp->collected.next = atomic_load(&roce_collecting);
	while (!atomic_compare_exchange_weak(&roce_collecting, &qp->collected.next, qp))
		;
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

bool roce_collect(struct roce_qp *qp, const struct ibv_send_wr *wr)
{
	struct roce_collected *c = &qp->collected;
	struct roce_send_wr *slot;
	struct ibv_send_wr in;
	struct ibv_sge sge;

	if (!__atomic_load_n(&c->room, __ATOMIC_RELAXED) || !may_collect(qp) || !is_simple(wr))
		return false;
	in = *wr; /* before the lock: the program's memory may be missing */
	sge = *wr->sg_list;
	pthread_mutex_lock(&c->lock);
	if (!c->slots)
		c->slots = calloc(1, sizeof *c->slots);
	if (!c->room || !c->slots) {
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
	c->room--;
	if (c->count == ROCE_COLLECTED)
		post_collected(qp);
	else
		list(qp);
	pthread_mutex_unlock(&c->lock);
	atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(!may_collect(qp)))
		roce_collect_stop(qp);
	return true;
}

int roce_post(struct roce_qp *qp, const struct roce_send_wr *wrs, int n, int *posted)
{
	struct roce_collected *c = &qp->collected;
	int r;

	pthread_mutex_lock(&c->lock);
	post_collected(qp);
	c->room = 0;
	r = -roce_engine_table->post_send(qp->ex.qp_base.handle, wrs, n, 1, posted, &c->room);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int roce_post_bind(struct roce_qp *qp, const struct roce_send_wr *wr, uint32_t *rkey)
{
	struct roce_collected *c = &qp->collected;
	int r;

	pthread_mutex_lock(&c->lock);
	post_collected(qp);
	c->room = 0;
	r = -roce_engine_table->bind_mw(qp->ex.qp_base.handle, wr, rkey);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void roce_collect_stop(struct roce_qp *qp)
{
	pthread_mutex_lock(&qp->collected.lock);
	post_collected(qp);
	qp->collected.room = 0;
	pthread_mutex_unlock(&qp->collected.lock);
}

/* The caller holds `handing`. */
static void hand_over(void)
{
	struct roce_qp *qp = atomic_exchange(&roce_collecting, NULL), *next;

	for (; qp; qp = next) {
		pthread_mutex_lock(&qp->collected.lock);
		next = qp->collected.next;
		qp->collected.listed = false;
		post_collected(qp);
		pthread_mutex_unlock(&qp->collected.lock);
	}
}

void roce_hand_over_all(void)
{
	pthread_mutex_lock(&handing);
	hand_over();
	pthread_mutex_unlock(&handing);
}

void roce_hand_over(void)
{
	if (pthread_mutex_trylock(&handing))
		return;
	hand_over();
	pthread_mutex_unlock(&handing);
}

void roce_collect_forked(void)
{
	pthread_mutex_init(&handing, NULL);
	atomic_store(&roce_collecting, NULL);
}
