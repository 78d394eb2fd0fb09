/* cq_ex.c: reading completions field by field.
 *
 * ibv_start_poll polls a batch from the engine, and ibv_next_poll walks it. The next ibv_start_poll or
  * ibv_poll_cq first returns the completions that ibv_end_poll has left in the batch. */
#include "front.h"

static struct roce_cq *cq_of(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct roce_cq, ex);
}

static void lock(struct roce_cq *cq)
{
	if (cq->shared)
		pthread_mutex_lock(&cq->lock);
}

static void unlock(struct roce_cq *cq)
{
	if (cq->shared)
		pthread_mutex_unlock(&cq->lock);
}

/* Makes batch[next] the current completion; ENOENT: there is none. */
static int advance(struct roce_cq *cq)
{
	if (cq->next == cq->count) {
		int n;

		roce_doorbell(cq->shard);
		n = roce_engine_table->poll_cq(cq->cq.handle, cq->batch, ROCE_CQ_BATCH);
		cq->next = cq->count = 0;
		if (n <= 0)
			return n ? -n : ENOENT;
		cq->count = n;
	}
	cq->ex.wr_id = cq->batch[cq->next].wr_id;
	cq->ex.status = cq->batch[cq->next].status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct roce_cq *cq = cq_of(ex);
	int r;

	if (unlikely(cq->generation != roce_generation))
		return EIO;
	if (unlikely(attr && attr->comp_mask))
		return EINVAL;
	lock(cq);
	if (cq->next < cq->count) /* otherwise advance polls */
		roce_doorbell(cq->shard);
	r = advance(cq);
	if (r)
		unlock(cq);
	return r;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct roce_cq *cq = cq_of(ex);

	if (cq->next < cq->count)
		cq->next++;
	return advance(cq);
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct roce_cq *cq = cq_of(ex);

	if (cq->next < cq->count)
		cq->next++;
	unlock(cq);
}

int roce_cq_ex_poll(struct roce_cq *cq, int n, struct ibv_wc *wc)
{
	int had = 0, r = 0;

	lock(cq);
	for (; had < n && cq->next < cq->count; had++)
		memcpy(&wc[had], &cq->batch[cq->next++], sizeof *wc);
	if (had < n)
		r = roce_engine_table->poll_cq(cq->cq.handle, (struct roce_wc *)wc + had, n - had);
	unlock(cq);
	return r < 0 && !had ? r : had + (r > 0 ? r : 0);
}

/* ---- the fields of batch[next] ---- */

#define READ(type, name, field) \
	static type read_##name(struct ibv_cq_ex *ex) \
	{ \
		const struct roce_cq *cq = cq_of(ex); \
		return (type)cq->batch[cq->next].field; \
	}

READ(enum ibv_wc_opcode, opcode, opcode)
READ(uint32_t, vendor_err, vendor_err)
READ(uint32_t, byte_len, byte_len)
READ(__be32, imm_data, imm)
READ(uint32_t, qp_num, qp_num)
READ(uint32_t, src_qp, src_qp)
READ(unsigned int, wc_flags, wc_flags)
READ(uint32_t, slid, slid)
READ(uint8_t, sl, sl)
READ(uint8_t, dlid_path_bits, dlid_path_bits)

/* Returns 0 for the fields that ibv_create_cq_ex refuses. */
static uint64_t no_time(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint16_t no_cvlan(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint32_t no_flow_tag(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static void no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	(void)ex;
	memset(info, 0, sizeof *info);
}

void roce_cq_ex_ops(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = no_time;
	cq->read_cvlan = no_cvlan;
	cq->read_flow_tag = no_flow_tag;
	cq->read_tm_info = no_tm_info;
	cq->read_completion_wallclock_ns = no_time;
}
