/* later.c: calls that rdma-core 45 to 65 added. Headers of 44 do not declare them. */
#include "front.h"
#include "../symbols/generated/private.h"

#include <sys/mman.h>
#include <unistd.h>

struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

/* ---- speed ---- */

/* In units of 100 Mbit/s: the number of lanes times the speed of a lane. */
EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	static const struct {
		uint32_t code;
		uint64_t lane; /* 100 Mbit/s */
	} speeds[] = {{1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000}, {256, 2000}};
	static const struct {
		uint32_t code, lanes;
	} widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	struct roce_port_attr a;
	uint64_t lane = 0;
	uint32_t lanes = 0;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && !speed)
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_port(handle_of(context), port, &a);
	if (r)
		return roce_err(r);
	for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++)
		if (speeds[i].code == a.active_speed)
			lane = speeds[i].lane;
	for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
		if (widths[i].code == a.active_width)
			lanes = widths[i].lanes;
	*speed = lane * lanes;
	return 0;
}

/* ---- buffers: memory of the program like any other ---- */

struct ibv_buf {
	char *memory;
	size_t length, mapped;
};

EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_buf *b;
	int r = roce_check(pd, ROCE_PD);

	if (!r && (!size || !buf || size > SIZE_MAX - page))
		r = EINVAL;
	if (r)
		return roce_null(r);
	b = malloc(sizeof *b);
	if (!b)
		return roce_null(ENOMEM);
	b->length = size;
	b->mapped = (size + page - 1) & ~(page - 1);
	b->memory = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->memory == MAP_FAILED) {
		free(b);
		return roce_null(ENOMEM);
	}
	if (!roce_enter(b, ROCE_BUF, pd->context)) {
		munmap(b->memory, b->mapped);
		free(b);
		return roce_null(ENOMEM);
	}
	*buf = b;
	return b->memory;
}

EXPORT void ibv_free_buf(struct ibv_buf *b)
{
	if (!roce_known(b, ROCE_BUF))
		return;
	roce_remove(b);
	munmap(b->memory, b->mapped);
	free(b);
}

EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *b, void *addr, size_t length, int access)
{
	size_t at;

	if (!roce_known(b, ROCE_BUF))
		return roce_null(EINVAL);
	at = (uintptr_t)addr - (uintptr_t)b->memory;
	if (at > b->length || length > b->length - at)
		return roce_null(EINVAL);
	return roce_reg_mr(pd, (uintptr_t)addr, length, (uintptr_t)addr, (unsigned int)access, NULL);
}

EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *b)
{
	return roce_minus1(roce_known(b, ROCE_BUF) ? EOPNOTSUPP : EINVAL);
}

EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	return roce_minus1(roce_known(dm, ROCE_DM) ? EOPNOTSUPP : EINVAL);
}

/* ---- registering by attributes ---- */

EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *init)
{
	const struct roce_mr_init_attr *in = (const struct roce_mr_init_attr *)init;
	const uint64_t plain = ROCE_REG_MR_IOVA | ROCE_REG_MR_ADDR | ROCE_REG_MR_BUF;
	uint64_t iova;
	int r = roce_check(pd, ROCE_PD);

	if (!r && (!in || in->comp_mask & ~(uint64_t)ROCE_REG_MR_ALL))
		r = EINVAL;
	if (!r && in->comp_mask & ~plain)
		r = EOPNOTSUPP;
	if (!r && !(in->comp_mask & ROCE_REG_MR_ADDR))
		r = EINVAL;
	if (r)
		return roce_null(r);
	if (in->comp_mask & ROCE_REG_MR_BUF)
		return ibv_reg_buf_mr(pd, in->buf, in->addr, in->length, in->access);
	iova = in->comp_mask & ROCE_REG_MR_IOVA ? in->iova : (uintptr_t)in->addr;
	return roce_reg_mr(pd, (uintptr_t)in->addr, in->length, iova, (unsigned int)in->access, NULL);
}

/* ---- not supported: hints for caches of PCI Express, completion counters ---- */

EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr)
{
	(void)attr;
	return roce_null(roce_known(context, ROCE_CONTEXT) ? EOPNOTSUPP : EINVAL);
}

EXPORT int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	(void)dmah;
	return roce_err(EOPNOTSUPP);
}

EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size)
{
	(void)caps, (void)size;
	return roce_err(roce_known(context, ROCE_CONTEXT) ? EOPNOTSUPP : EINVAL);
}

EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	(void)attr;
	return roce_null(roce_known(context, ROCE_CONTEXT) ? EOPNOTSUPP : EINVAL);
}

EXPORT int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter, struct ibv_qp_attach_comp_cntr_attr *attr)
{
	(void)counter, (void)attr;
	return roce_err(roce_known(qp, ROCE_QP) ? EOPNOTSUPP : EINVAL);
}

EXPORT int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter)
{
	(void)counter;
	return roce_err(EOPNOTSUPP);
}

#define COUNTER_CALL(name, type) \
	EXPORT int name(struct ibv_comp_cntr *counter, type value); \
	EXPORT int name(struct ibv_comp_cntr *counter, type value) \
	{ \
		(void)counter, (void)value; \
		return roce_err(EOPNOTSUPP); \
	}

COUNTER_CALL(ibv_set_comp_cntr, uint64_t)
COUNTER_CALL(ibv_set_err_comp_cntr, uint64_t)
COUNTER_CALL(ibv_inc_comp_cntr, uint64_t)
COUNTER_CALL(ibv_inc_err_comp_cntr, uint64_t)
COUNTER_CALL(ibv_read_comp_cntr, uint64_t *)
COUNTER_CALL(ibv_read_err_comp_cntr, uint64_t *)

/* rdma-core 65 exports this function in its private node, for the pyverbs of the same release. */
EXPORT const char *ROCE_PRIVATE(ibv_wr_opcode_str)(enum ibv_wr_opcode opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "rdma-write",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "rdma-write-with-imm",
		[IBV_WR_SEND] = "send",
		[IBV_WR_SEND_WITH_IMM] = "send-with-imm",
		[IBV_WR_RDMA_READ] = "rdma-read",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "atomic-cmp-and-swp",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "atomic-fetch-and-add",
		[IBV_WR_LOCAL_INV] = "local-inv",
		[IBV_WR_BIND_MW] = "bind-mw",
		[IBV_WR_SEND_WITH_INV] = "send-with-inv",
		[IBV_WR_TSO] = "tso",
		[IBV_WR_DRIVER1] = "driver1",
		[ROCE_WR_FLUSH] = "flush",
		[ROCE_WR_ATOMIC_WRITE] = "atomic-write",
	};
	unsigned int i = opcode;

	return i < sizeof names / sizeof names[0] && names[i] ? names[i] : "unknown";
}
ROCE_PRIVATE_ibv_wr_opcode_str
