/* FLUSH and ATOMIC WRITE on the real engine, by ibv_wr_*. ROCE_FLAGS names two devices.
 *
 * Headers of rdma-core 44 have ATOMIC WRITE only, so FLUSH has names of its own here. */
#include "../hostile/rig.h"

#include "../../verbs/newer.h"

enum {
	WC_FLUSH = 8,
	WC_ATOMIC_WRITE = 9,
	ACCESS_FLUSH_GLOBAL = 1 << 8,
	FLUSH_GLOBAL = 1 << 0, /* enum ibv_placement_type */
	FLUSH_PERSISTENT = 1 << 1,
	RANGE = 0, /* enum ibv_selectivity_level */
	WHOLE_MR = 1,
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL,
};

static const uint64_t cap_flush_global = 1ULL << 38, cap_flush_persistent = 1ULL << 39, cap_atomic_write = 1ULL << 40;

static struct end a, b;
static struct ibv_mr *plain; /* the memory of b, without the right to FLUSH */

/* Replaces the queue pair of an end by one that has the calls. */
static void extend(struct end *e)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = e->cq, .recv_cq = e->cq, .cap = {DEPTH, DEPTH, 1, 1, 64}, .qp_type = IBV_QPT_RC, .pd = e->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | ROCE_QP_EX_WITH_FLUSH | ROCE_QP_EX_WITH_ATOMIC_WRITE,
	};

	CHECK(!ibv_destroy_qp(e->qp) && !ibv_dereg_mr(e->mr));
	CHECK((e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, ALL_ACCESS)) && (e->qp = ibv_create_qp_ex(e->context, &init)));
}

static void init(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL};

	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_again(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;

	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) && !ibv_modify_qp(b.qp, &attr, IBV_QP_STATE));
	while (ibv_poll_cq(a.cq, 1, &wc) > 0)
		;
	init(&a);
	init(&b);
	join(&a, &b);
	join(&b, &a);
}

/* ---- work requests of a, built one after the other ---- */

static struct ibv_qp_ex *begin(uint64_t id, unsigned int flags)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a.qp);

	ex->wr_id = id;
	ex->wr_flags = flags;
	return ex;
}

static void write_all(uint64_t id)
{
	struct ibv_qp_ex *ex = begin(id, 0);

	ibv_wr_rdma_write(ex, b.mr->rkey, (uintptr_t)b.buf);
	ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.buf, SIZE);
}

static void atomic_write(uint64_t id, size_t offset, uint64_t value)
{
	ibv_wr_atomic_write(begin(id, IBV_SEND_SIGNALED), b.mr->rkey, (uintptr_t)b.buf + offset, &value);
}

static void flush(uint64_t id, uint32_t rkey, size_t offset, size_t length, uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *ex = begin(id, IBV_SEND_SIGNALED);
	roce_wr_flush_fn wr_flush = *(roce_wr_flush_fn *)((char *)&ex->wr_atomic_write + sizeof ex->wr_atomic_write);

	wr_flush(ex, rkey, (uintptr_t)b.buf + offset, length, type, level);
}

static void post(void (*build)(void))
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a.qp);

	ibv_wr_start(ex);
	build();
	CHECK(!ibv_wr_complete(ex));
}

static void expect(uint64_t id, int opcode, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(a.cq, 1, &wc)))
		;
	if (n != 1 || wc.wr_id != id || wc.status != status)
		fprintf(stderr, "completion of %d: %s, want of %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), (int)id, ibv_wc_status_str(status));
	CHECK(n == 1 && wc.wr_id == id && wc.status == status);
	CHECK(status != IBV_WC_SUCCESS || (int)wc.opcode == opcode);
}

/* ---- the tests ---- */

static void capabilities(void)
{
	struct ibv_device_attr_ex attr;

	CHECK(!ibv_query_device_ex(a.context, NULL, &attr));
	CHECK((attr.device_cap_flags_ex & (cap_flush_global | cap_atomic_write)) == (cap_flush_global | cap_atomic_write));
	CHECK(!(attr.device_cap_flags_ex & cap_flush_persistent));
}

/* A log: data, FLUSH, and then the pointer to it by ATOMIC WRITE, all in one list. */
static void log_entry(void)
{
	write_all(1);
	flush(2, b.mr->rkey, 0, SIZE, FLUSH_GLOBAL, RANGE);
	atomic_write(3, SIZE - 8, 0x0123456789ABCDEF);
}

static void placed(void)
{
	for (int i = 1; i <= 100; i++) {
		uint64_t pointer;

		memset(a.buf, i, SIZE);
		post(log_entry);
		expect(2, WC_FLUSH, IBV_WC_SUCCESS);
		CHECK(b.buf[0] == i && b.buf[SIZE / 2] == i && b.buf[SIZE - 9] == i);
		expect(3, WC_ATOMIC_WRITE, IBV_WC_SUCCESS);
		memcpy(&pointer, b.buf + SIZE - 8, sizeof pointer);
		CHECK(pointer == 0x0123456789ABCDEF); /* in the byte order of the host, as a WRITE */
	}
}

static void flush_ranges(void)
{
	flush(1, b.mr->rkey, 0, 0, FLUSH_GLOBAL, RANGE);
	flush(2, b.mr->rkey, 4096, 1, FLUSH_GLOBAL, RANGE);
	flush(3, b.mr->rkey, 0, 0, FLUSH_GLOBAL, WHOLE_MR);
}

static void ranges(void)
{
	post(flush_ranges);
	for (uint64_t id = 1; id <= 3; id++)
		expect(id, WC_FLUSH, IBV_WC_SUCCESS);
}

static void atomic_behind(void) { atomic_write(1, SIZE, 1); }
static void without_right(void) { flush(1, plain->rkey, 0, SIZE, FLUSH_GLOBAL, RANGE); }
static void to_persistence(void) { flush(1, b.mr->rkey, 0, SIZE, FLUSH_PERSISTENT, RANGE); }
static void flush_behind(void) { flush(1, b.mr->rkey, 8, SIZE, FLUSH_GLOBAL, RANGE); }

static void refused(void)
{
	static const struct {
		void (*build)(void);
		enum ibv_wc_status status;
	} cases[] = {
		{atomic_behind, IBV_WC_REM_ACCESS_ERR}, {without_right, IBV_WC_REM_ACCESS_ERR}, {to_persistence, IBV_WC_REM_INV_REQ_ERR}, {flush_behind, IBV_WC_REM_ACCESS_ERR},
	};
	static char before[SIZE];

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memcpy(before, b.buf, SIZE);
		post(cases[i].build);
		expect(1, 0, cases[i].status);
		CHECK(!memcmp(before, b.buf, SIZE));
		connect_again();
		placed();
	}
}

static void misaligned(void) { atomic_write(1, 4, 1); }
static void no_placement(void) { flush(1, b.mr->rkey, 0, SIZE, 0, RANGE); }
static void no_level(void) { flush(1, b.mr->rkey, 0, SIZE, FLUSH_GLOBAL, 7); }

/* A list with an invalid request sends nothing. */
static void invalid(void)
{
	void (*const cases[])(void) = {misaligned, no_placement, no_level};
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a.qp);

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ibv_wr_start(ex);
		cases[i]();
		CHECK(ibv_wr_complete(ex) == EINVAL);
		placed();
	}
}

int main(void)
{
	both(&a, &b);
	extend(&a);
	extend(&b);
	CHECK((plain = ibv_reg_mr(b.pd, b.buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	connect_again();
	capabilities();
	placed();
	ranges();
	invalid();
	refused();
	return 0;
}
