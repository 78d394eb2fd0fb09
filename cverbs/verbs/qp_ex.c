/* qp_ex.c: ibv_wr_*: work requests that are built by calls and posted together.
 *
 * ibv_wr_start locks the builder; ibv_wr_complete posts the requests in one call of the engine. If a call in
  * between fails, ibv_wr_complete returns its error. Inline data are copied when the program sets them, since
  * it may change them before ibv_wr_complete. */
#include "front.h"

struct roce_builder {
	pthread_mutex_t lock; /* from start to complete or abort */
	int error;
	struct roce_send_wr *wrs;
	uint32_t count, room;
	struct roce_send_wr *current, spare; /* spare: written after an error, never posted */
	/* Elements of all requests. Until the requests are posted, sg is an index into sges, and addr of inline data
	 * an index into bytes: both arrays may move as they grow. */
	struct roce_sge *sges;
	size_t sge_count, sge_room;
	char *bytes;
	size_t byte_count, byte_room;
};

static struct roce_qp *qp_of(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct roce_qp, ex);
}

static struct roce_builder *builder_of(struct ibv_qp_ex *ex)
{
	return qp_of(ex)->builder;
}

static void fail(struct roce_builder *b, int error)
{
	if (!b->error)
		b->error = error;
	b->current = &b->spare;
}

/* Makes room for n more elements; false: no memory. */
static bool reserve(void *array, size_t size, size_t count, size_t *room, size_t n)
{
	void **at = array, *bigger;
	size_t want = *room ? *room : 64;

	if (n <= *room - count)
		return true;
	while (want - count < n)
		want *= 2;
	bigger = realloc(*at, want * size);
	if (!bigger)
		return false;
	*at = bigger;
	*room = want;
	return true;
}

static struct roce_send_wr *begin(struct ibv_qp_ex *ex, uint32_t opcode)
{
	struct roce_builder *b = builder_of(ex);
	size_t room = b->room;

	if (b->count == qp_of(ex)->cap.max_send_wr || !reserve(&b->wrs, sizeof *b->wrs, b->count, &room, 1)) {
		fail(b, ENOMEM);
		return b->current;
	}
	b->room = (uint32_t)room;
	b->current = &b->wrs[b->count++];
	*b->current = (struct roce_send_wr){.wr_id = ex->wr_id, .opcode = opcode, .flags = ex->wr_flags & ~(uint32_t)IBV_SEND_INLINE};
	return b->current;
}

static struct roce_send_wr *begin_remote(struct ibv_qp_ex *ex, uint32_t opcode, uint32_t rkey, uint64_t addr)
{
	struct roce_send_wr *wr = begin(ex, opcode);

	wr->rkey = rkey;
	wr->remote_addr = addr;
	return wr;
}

/* ---- operations ---- */

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct roce_send_wr *wr = begin_remote(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	wr->compare_add = compare;
	wr->swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	begin_remote(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr)->compare_add = add;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct roce_send_wr *wr = begin(ex, IBV_WR_BIND_MW);

	if (!mw || !info) {
		fail(builder_of(ex), EINVAL);
		return;
	}
	wr->mw = mw->handle;
	wr->mr = info->mr ? info->mr->handle : 0;
	wr->new_rkey = rkey;
	wr->bind_addr = info->addr;
	wr->bind_length = info->length;
	wr->bind_access = info->mw_access_flags;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, IBV_WR_LOCAL_INV)->imm = rkey;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_remote(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_remote(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	begin_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm = imm;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	begin(ex, IBV_WR_SEND_WITH_IMM)->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, IBV_WR_SEND_WITH_INV)->imm = rkey;
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	(void)hdr, (void)hdr_sz, (void)mss;
	fail(builder_of(ex), EOPNOTSUPP);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *data)
{
	struct roce_send_wr *wr = begin_remote(ex, ROCE_WR_ATOMIC_WRITE, rkey, addr);

	memcpy(&wr->atomic_write, data, sizeof wr->atomic_write);
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level)
{
	struct roce_send_wr *wr = begin_remote(ex, ROCE_WR_FLUSH, rkey, addr);

	wr->flush_length = len;
	wr->flush_type = type;
	wr->flush_level = level;
}

/* ---- addresses and data of the current request ---- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct roce_send_wr *wr = builder_of(ex)->current;

	if (!ah) {
		fail(builder_of(ex), EINVAL);
		return;
	}
	wr->ah = ah->handle;
	wr->remote_qpn = qpn;
	wr->remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	builder_of(ex)->current->srqn = srqn;
}

/* Appends n elements to those of all requests, and gives them to the current one. */
static struct roce_sge *give_sges(struct roce_builder *b, size_t n)
{
	struct roce_sge *first;

	if (n > INT32_MAX || !reserve(&b->sges, sizeof *b->sges, b->sge_count, &b->sge_room, n)) {
		fail(b, ENOMEM);
		return NULL;
	}
	first = b->sges + b->sge_count;
	b->current->sg = (const struct roce_sge *)(uintptr_t)b->sge_count;
	b->current->num_sge = (int32_t)n;
	b->current->flags &= ~(uint32_t)IBV_SEND_INLINE; /* the new data replace earlier inline data */
	b->sge_count += n;
	return first;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct roce_sge *to = give_sges(builder_of(ex), n);

	if (to && n)
		memcpy(to, list, n * sizeof *to);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge one = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct roce_builder *b = builder_of(ex);
	size_t total = 0, limit = qp_of(ex)->cap.max_inline_data;
	struct roce_sge *sge;

	for (size_t i = 0; i < n; i++) {
		if (list[i].length > limit - total) {
			fail(b, EINVAL);
			return;
		}
		total += list[i].length;
	}
	if (!reserve(&b->bytes, 1, b->byte_count, &b->byte_room, total)) {
		fail(b, ENOMEM);
		return;
	}
	/* One element for all buffers: their copies are contiguous. */
	sge = give_sges(b, 1);
	if (!sge)
		return;
	*sge = (struct roce_sge){.addr = b->byte_count, .length = (uint32_t)total};
	b->current->flags |= IBV_SEND_INLINE;
	for (size_t i = 0; i < n; i++) {
		memcpy(b->bytes + b->byte_count, list[i].addr, list[i].length);
		b->byte_count += list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf one = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &one);
}

/* ---- start to end ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct roce_builder *b = builder_of(ex);

	pthread_mutex_lock(&b->lock);
	b->error = 0;
	b->count = 0;
	b->sge_count = b->byte_count = 0;
	b->current = &b->spare;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&builder_of(ex)->lock);
}

static int post(struct roce_qp *qp)
{
	struct roce_builder *b = qp->builder;
	int posted;

	if (qp->generation != roce_generation)
		return EIO;
	if (b->error || !b->count)
		return b->error;
	for (uint32_t i = 0; i < b->count; i++) {
		struct roce_send_wr *wr = &b->wrs[i];
		struct roce_sge *sg = b->sges + (uintptr_t)wr->sg;

		if (!wr->num_sge) {
			wr->sg = NULL;
			wr->flags &= ~(uint32_t)IBV_SEND_INLINE;
			continue;
		}
		wr->sg = sg;
		if (wr->flags & IBV_SEND_INLINE)
			sg->addr += (uintptr_t)b->bytes;
	}
	return roce_post(qp, b->wrs, (int)b->count, &posted);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	int r = post(qp_of(ex));

	pthread_mutex_unlock(&builder_of(ex)->lock);
	return roce_err(r);
}

_Static_assert(offsetof(struct roce_qp, newer_ops) == sizeof(struct ibv_qp_ex), "later members follow");

bool roce_qp_ex_init(struct roce_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->builder = calloc(1, sizeof *qp->builder);
	if (!qp->builder)
		return false;
	pthread_mutex_init(&qp->builder->lock, NULL);
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_write = wr_atomic_write;
	/* wr_flush is the next member, in headers that have it. */
	*(roce_wr_flush_fn *)((char *)&ex->wr_atomic_write + sizeof ex->wr_atomic_write) = wr_flush;
	return true;
}

void roce_qp_ex_free(struct roce_qp *qp)
{
	if (!qp->builder)
		return;
	free(qp->builder->wrs);
	free(qp->builder->sges);
	free(qp->builder->bytes);
	free(qp->builder);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return roce_known(qp, ROCE_QP) && to_qp(qp)->builder ? &to_qp(qp)->ex : NULL;
}
