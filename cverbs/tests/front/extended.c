/* ibv_cq_ex and ibv_qp_ex. */
#include "check.h"

static struct fake *f;
static struct ibv_context *context;

static void complete(int n)
{
	f->wc_next = 0;
	f->wc_count = n;
	for (int i = 0; i < n; i++)
		f->wcs[i] = (struct roce_wc){.wr_id = (uint64_t)i, .status = (uint32_t)i % 3, .opcode = 128, .vendor_err = 1, .byte_len = 2, .imm = 3, .qp_num = 4, .src_qp = 5, .wc_flags = 6, .slid = 7, .sl = 8, .dlid_path_bits = 9};
}

static void queues(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 100, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc_tm_info tm;
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	struct ibv_wc wc[100];

	CHECK(cq && cq->cqe == 101);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	complete(70);
	CHECK(!ibv_start_poll(cq, &attr));
	for (int i = 0;; i++) {
		CHECK(cq->wr_id == (uint64_t)i && cq->status == (unsigned int)i % 3);
		CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_vendor_err(cq) == 1 && ibv_wc_read_byte_len(cq) == 2);
		CHECK(ibv_wc_read_imm_data(cq) == 3 && ibv_wc_read_qp_num(cq) == 4 && ibv_wc_read_src_qp(cq) == 5);
		CHECK(ibv_wc_read_wc_flags(cq) == 6 && ibv_wc_read_slid(cq) == 7 && ibv_wc_read_sl(cq) == 8 && ibv_wc_read_dlid_path_bits(cq) == 9);
		CHECK(!ibv_wc_read_completion_ts(cq) && !ibv_wc_read_cvlan(cq) && !ibv_wc_read_flow_tag(cq) && !ibv_wc_read_completion_wallclock_ns(cq));
		ibv_wc_read_tm_info(cq, &tm);
		if (i == 69)
			break;
		CHECK(!ibv_next_poll(cq));
	}
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	/* Both calls first return the completions that were polled ahead. */
	complete(50);
	CHECK(!ibv_start_poll(cq, &attr) && cq->wr_id == 0);
	ibv_end_poll(cq);
	CHECK(!ibv_start_poll(cq, &attr) && cq->wr_id == 1);
	ibv_end_poll(cq);
	CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 100, wc) == 48 && wc[0].wr_id == 2 && wc[47].wr_id == 49);
	attr.comp_mask = 1;
	CHECK(ibv_start_poll(cq, &attr) == EINVAL);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	FAILS(EOPNOTSUPP, ibv_create_cq_ex(context, &init));
	init.wc_flags = 0;
	init.comp_mask = 1 << 7;
	FAILS(EINVAL, ibv_create_cq_ex(context, &init));
}

static void builders(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init), *plain = make_qp(pd, cq, IBV_QPT_RC);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	const struct roce_send_wr *sent = f->sent;
	struct ibv_sge list[2] = {{1, 2, 3}, {4, 5, 6}};
	char data[8] = "inline!";
	struct ibv_data_buf parts[2] = {{data, 3}, {data + 3, 4}};

	CHECK(ex && !ibv_qp_to_qp_ex(plain));
	for (size_t at = offsetof(struct ibv_qp_ex, wr_atomic_cmp_swp); at < sizeof *ex + sizeof(void *); at += sizeof(void *))
		CHECK(*(void **)((char *)ex + at)); /* all calls, and wr_flush of later headers */
	f->sends = f->calls = 0;
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 2, list);
	ex->wr_id = 2;
	ibv_wr_rdma_read(ex, 10, 11);
	ibv_wr_set_sge(ex, 7, 8, 9);
	ibv_wr_send_imm(ex, 12);
	ibv_wr_set_inline_data_list(ex, 2, parts);
	memset(data, 'x', sizeof data);
	ibv_wr_send(ex);
	CHECK(!ibv_wr_complete(ex));
	CHECK(f->calls == 1 && f->sends == 4);
	CHECK(sent[0].wr_id == 1 && sent[0].num_sge == 2 && f->first_sge[0].addr == 1 && sent[0].flags == IBV_SEND_SIGNALED);
	CHECK(sent[1].wr_id == 2 && sent[1].opcode == IBV_WR_RDMA_READ && sent[1].rkey == 10 && sent[1].remote_addr == 11 && f->first_sge[1].addr == 8);
	CHECK(sent[2].imm == 12 && sent[2].flags == (IBV_SEND_SIGNALED | IBV_SEND_INLINE) && !memcmp(f->inline_data[2], "inline!", 7));
	CHECK(sent[3].num_sge == 0);

	/* If the program aborts, or a request is too large or invalid, nothing is posted. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	for (int i = 0; i < 65; i++)
		ibv_wr_send(ex);
	CHECK(ibv_wr_complete(ex) == ENOMEM);
	ibv_wr_start(ex);
	ibv_wr_send_tso(ex, data, 1, 1);
	CHECK(ibv_wr_complete(ex) == EOPNOTSUPP);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 61);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	CHECK(f->sends == 4);
	f->sends = 0; /* the last setter counts */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 4);
	ibv_wr_set_sge(ex, 7, 8, 9);
	CHECK(!ibv_wr_complete(ex) && f->sends == 1 && sent[0].num_sge == 1 && !(sent[0].flags & IBV_SEND_INLINE));

	init.send_ops_flags = IBV_QP_EX_WITH_TSO;
	FAILS(EOPNOTSUPP, ibv_create_qp_ex(context, &init));
	init.qp_type = IBV_QPT_UD;
	init.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	FAILS(EOPNOTSUPP, ibv_create_qp_ex(context, &init));
	init.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
	FAILS(EOPNOTSUPP, ibv_create_qp_ex(context, &init));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(plain) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

int main(void)
{
	alarm(30);
	context = open_first();
	f = fake();
	queues();
	builders();
	return 0;
}
