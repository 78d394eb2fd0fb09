/* recv_ring.c: receives that a program posts without a call of the engine.
 *
 * A call of the engine costs more than a receive. So a queue pair of RC or UC shares a short ring of receives with the engine, as it
 * would with an adapter: a post adds to it, and the engine takes a receive when a message needs one. If the ring is full, or
 * a receive has several elements, the engine takes the post, after those that are in the ring. While the queue
 * pair is in RESET or ERR, the ring is not open, and the engine takes all posts. A post that has added a receive
 * looks again whether the ring is open still. If not, it tells the engine, which flushes the receive. */
#include "front.h"

enum { MAX_SLOTS = 32, MAX_LENGTH = 1u << 31 };

void roce_recv_ring_init(struct roce_qp *qp, struct roce_qp_init *init)
{
	uint32_t slots = 1;
	void *ring;

	pthread_mutex_init(&qp->receives.lock, NULL);
	if ((init->type != IBV_QPT_RC && init->type != IBV_QPT_UC) || init->srq || !init->cap.max_recv_wr)
		return;
	while (slots < init->cap.max_recv_wr && slots < MAX_SLOTS)
		slots *= 2;
	if (posix_memalign(&ring, _Alignof(struct roce_recv_ring), sizeof(struct roce_recv_ring) + slots * sizeof(struct roce_recv_slot)))
		return; /* the engine takes all posts */
	memset(ring, 0, sizeof(struct roce_recv_ring));
	init->recv_ring = qp->receives.ring = ring;
	init->recv_slots = qp->receives.slots = slots;
}

void roce_recv_ring_free(struct roce_qp *qp)
{
	free(qp->receives.ring);
}

static bool is_open(const struct roce_recv_ring *ring)
{
	return __atomic_load_n(&ring->open, __ATOMIC_RELAXED);
}

bool roce_recv_ring_add(struct roce_qp *qp, const struct ibv_recv_wr *wr)
{
	struct roce_receives *r = &qp->receives;
	struct roce_recv_ring *ring = r->ring;
	struct roce_recv_slot slot = {.wr_id = wr->wr_id, .num_sge = (uint32_t)wr->num_sge}; /* before the lock: the program's memory may be missing */
	uint32_t at;
	bool room;
	int posted;

	if (!ring || !is_open(ring) || slot.num_sge > 1 || (slot.num_sge && !wr->sg_list))
		return false;
	if (slot.num_sge)
		slot.sge = (struct roce_sge){wr->sg_list->addr, wr->sg_list->length, wr->sg_list->lkey};
	if (slot.sge.length > MAX_LENGTH)
		return false;
	pthread_mutex_lock(&r->lock);
	at = ring->added;
	room = at - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE) < r->slots && at - __atomic_load_n(&ring->done, __ATOMIC_RELAXED) < qp->cap.max_recv_wr;
	if (room) {
		ring->slots[at & (r->slots - 1)] = slot;
		__atomic_store_n(&ring->added, at + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&r->lock);
	if (!room)
		return false;
	atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(!is_open(ring)))
		roce_engine_table->post_recv(qp->ex.qp_base.handle, NULL, 0, &posted);
	return true;
}

int roce_recv_ring_call(struct roce_qp *qp, const struct roce_recv_wr *wrs, int n, int *posted)
{
	int r;

	pthread_mutex_lock(&qp->receives.lock);
	r = roce_engine_table->post_recv(qp->ex.qp_base.handle, wrs, n, posted);
	pthread_mutex_unlock(&qp->receives.lock);
	return r;
}
