/* Lists of work requests: arrays for the engine, bad_wr, mistakes of the program. */
#include "check.h"

static struct fake *f;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void reset(void)
{
	f->sends = f->recvs = f->calls = 0;
	f->room = FAKE_WRS;
}

static void chain(struct ibv_send_wr *wr, struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uint64_t)i, .length = 1, .lkey = 7};
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i, .next = i + 1 < n ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1, .opcode = IBV_WR_SEND};
	}
}

static void long_lists(struct ibv_qp *qp)
{
	struct ibv_send_wr wr[100], *bad;
	struct ibv_sge sge[100];

	reset();
	chain(wr, sge, 100);
	CHECK(!ibv_post_send(qp, wr, &bad));
	CHECK(f->sends == 100 && f->calls == 4 && f->batch[0] == 32 && f->batch[3] == 4);
	for (int i = 0; i < 100; i++)
		CHECK(f->sent[i].wr_id == (uint64_t)i && f->first_sge[i].addr == (uint64_t)i);
	for (int room = 0; room < 100; room++) {
		reset();
		f->room = room;
		CHECK(ibv_post_send(qp, wr, &bad) == ENOMEM && bad == &wr[room] && f->sends == room);
	}
	CHECK(!ibv_post_send(qp, NULL, &bad));
}

/* The requests before a bad one are posted, and bad_wr names the bad one. */
static void bad_requests(struct ibv_qp *qp)
{
	struct ibv_send_wr wr[40], *bad;
	struct ibv_sge sge[40];
	static const int opcodes[] = {-1, 10, 11, 12, 13, 14, 16, 255};

	for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
		reset();
		chain(wr, sge, 40);
		wr[35].opcode = opcodes[i];
		CHECK(ibv_post_send(qp, wr, &bad) == EINVAL && bad == &wr[35] && f->sends == 35);
	}
	reset();
	chain(wr, sge, 40);
	wr[0].num_sge = -1;
	CHECK(ibv_post_send(qp, wr, &bad) == EINVAL && bad == &wr[0] && !f->sends);
	chain(wr, sge, 40);
	wr[3].sg_list = NULL;
	CHECK(ibv_post_send(qp, wr, &bad) == EINVAL && bad == &wr[3] && f->sends == 3);
}

static void loops(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_send_wr wr[40], *bad;
	struct ibv_recv_wr recv[2] = {{.next = &recv[1]}, {.next = &recv[0]}}, *bad_recv;
	struct ibv_sge sge[40];

	for (int to = 0; to < 40; to++) {
		reset();
		chain(wr, sge, 40);
		wr[39].next = &wr[to];
		CHECK(ibv_post_send(qp, wr, &bad) == EINVAL && f->sends < 400);
	}
	reset();
	CHECK(ibv_post_recv(qp, recv, &bad_recv) == EINVAL && f->recvs < 10);
	CHECK(ibv_post_srq_recv(srq, recv, &bad_recv) == EINVAL && f->recvs < 20);
}

static void every_form(struct ibv_qp *qp)
{
	struct ibv_mr *mr = (ibv_reg_mr)(pd, &reset, 1, 0);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	uint64_t eight = 0x1122334455667788;
	struct ibv_sge one = {.addr = (uintptr_t)&eight, .length = 8};
	struct ibv_send_wr wr[] = {
		{.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 1, .wr.rdma = {2, 3}, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED},
		{.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .wr.atomic = {2, 4, 5, 3}},
		{.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = 6},
		{.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, 7, {mr, 8, 9, 10}}},
		{.opcode = 15, .sg_list = &one, .num_sge = 1, .wr.rdma = {2, 3}},
	}, *bad;
	const struct roce_send_wr *sent = f->sent;

	CHECK(mr && mw);
	reset();
	for (int i = 0; i < 4; i++)
		wr[i].next = &wr[i + 1];
	CHECK(!ibv_post_send(qp, wr, &bad) && f->sends == 5);
	CHECK(sent[0].imm == 1 && sent[0].remote_addr == 2 && sent[0].rkey == 3 && sent[0].flags == 6);
	CHECK(sent[1].remote_addr == 2 && sent[1].compare_add == 4 && sent[1].swap == 5 && sent[1].rkey == 3);
	CHECK(sent[2].imm == 6);
	CHECK(sent[3].mw == mw->handle && sent[3].new_rkey == 7 && sent[3].mr == mr->handle && sent[3].bind_addr == 8 && sent[3].bind_length == 9 && sent[3].bind_access == 10);
	CHECK(sent[4].atomic_write == eight && sent[4].remote_addr == 2 && sent[4].num_sge == 0);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
}

static void datagrams(void)
{
	struct ibv_qp *ud = make_qp(pd, cq, IBV_QPT_UD);
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1, .grh = {.flow_label = UINT32_MAX, .hop_limit = 5}};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .wr.ud = {ah, 1, 2}}, *bad;

	CHECK(ud && ah && f->ah.flow_label == 0xfffff && f->ah.hop_limit == 5);
	reset();
	CHECK(!ibv_post_send(ud, &wr, &bad) && f->sent[0].ah == ah->handle && f->sent[0].remote_qpn == 1 && f->sent[0].remote_qkey == 2);
	wr.wr.ud.ah = NULL;
	CHECK(ibv_post_send(ud, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(ud));
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	f = fake();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	srq = ibv_create_srq(pd, &init);
	qp = make_qp(pd, cq, IBV_QPT_RC);
	CHECK(pd && cq && srq && qp);
	long_lists(qp);
	bad_requests(qp);
	loops(qp, srq);
	every_form(qp);
	datagrams();
	return 0;
}
