/* post.c: connected queue pairs, and valid and invalid work requests. */
#include "fuzz.h"

#include <sys/mman.h>

static int to_init(struct thread *t, struct object *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (qp->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);

	ibv_modify_qp(qp->p, &attr, IBV_QP_STATE);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	return (int)CALL(t, "ibv_modify_qp", qp->p, IBV_QPS_INIT, mask, 0, ibv_modify_qp(qp->p, &attr, mask));
}

static void to_rts(struct thread *t, struct object *qp, struct object *peer)
{
	struct ibv_qp *p = qp->p, *q = peer->p;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256 + rnd(t) % 4, .dest_qp_num = q->qp_num, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}, .timeout = 8, .retry_cnt = (uint8_t)(rnd(t) % 8), .rnr_retry = (uint8_t)(rnd(t) % 7), .max_rd_atomic = 4};
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	ibv_query_gid(q->context, 1, 0, &attr.ah_attr.grh.dgid);
	if (qp->type == IBV_QPT_UD) {
		rtr = IBV_QP_STATE;
	} else if (qp->type == IBV_QPT_UC) {
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	} else {
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (qp->type != IBV_QPT_XRC_SEND)
			rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		if (qp->type == IBV_QPT_XRC_RECV)
			rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
	}
	CALL(t, "ibv_modify_qp", p, IBV_QPS_RTR, rtr, q, ibv_modify_qp(p, &attr, rtr));
	attr.qp_state = IBV_QPS_RTS;
	CALL(t, "ibv_modify_qp", p, IBV_QPS_RTS, rts, q, ibv_modify_qp(p, &attr, rts));
}

void connect_pair(struct thread *t)
{
	struct object *a = pick(t, QP), *b = pick(t, QP);

	if (!a || !b)
		return;
	if (to_init(t, a) || to_init(t, b))
		return;
	to_rts(t, a, b);
	to_rts(t, b, a);
}

static void element(struct thread *t, struct ibv_sge *sge)
{
	struct object *o = pick(t, MR);
	struct ibv_mr *mr = o ? o->p : NULL;

	if (!mr || one_in(t, 20)) {
		*sge = (struct ibv_sge){rnd(t), (uint32_t)rnd(t), (uint32_t)rnd(t)};
		return;
	}
	sge->addr = (uintptr_t)mr->addr + rnd(t) % (mr->length / 2 + 1);
	sge->length = (uint32_t)(rnd(t) % (mr->length / 2 + 1));
	sge->lkey = mr->lkey;
	switch (rnd(t) % 30) {
	case 0: sge->length = (uint32_t)rnd(t); break;
	case 1: sge->addr = rnd(t); break;
	case 2: sge->lkey ^= 1U << rnd(t) % 32; break;
	case 3: sge->addr = 0; break;
	case 4: sge->length = 0; break;
	}
}

/* Chooses the target of a READ or WRITE: mostly a region of either device. */
static void remote(struct thread *t, uint64_t *addr, uint32_t *rkey, struct object *mw)
{
	struct object *o = pick(t, MR);
	struct ibv_mr *mr = o ? o->p : NULL;

	*addr = mr && !one_in(t, 15) ? (uintptr_t)mr->addr + (rnd(t) % (mr->length / 2 + 1) & ~7ULL) : rnd(t);
	*rkey = mr && !one_in(t, 15) ? mr->rkey : (uint32_t)rnd(t);
	if (mw && one_in(t, 4))
		*rkey = ((struct ibv_mw *)mw->p)->rkey;
}

enum { MAX_WRS = 40 };

static void send_list(struct thread *t, struct object *qp)
{
	static const unsigned usual[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, 14, 15};
	struct ibv_send_wr wrs[MAX_WRS], *bad = NULL;
	struct ibv_sge sges[MAX_WRS][4];
	int n = 1 + (int)(rnd(t) % (one_in(t, 4) ? MAX_WRS : 3)), r;

	memset(wrs, 0, sizeof wrs);
	for (int i = 0; i < n; i++) {
		struct ibv_send_wr *wr = &wrs[i];
		struct object *ah = pick(t, AH), *mw = pick(t, MW), *mr = pick(t, MR);

		wr->next = i + 1 < n ? &wrs[i + 1] : NULL;
		wr->wr_id = rnd(t);
		wr->sg_list = sges[i];
		wr->num_sge = (int)(rnd(t) % 3);
		wr->opcode = usual[rnd(t) % (sizeof usual / sizeof *usual)];
		wr->send_flags = one_in(t, 30) ? (unsigned)rnd(t) : (unsigned)(rnd(t) % 16) & ~(one_in(t, 4) ? 0U : (unsigned)IBV_SEND_INLINE);
		wr->imm_data = (uint32_t)rnd(t);
		for (int j = 0; j < 4; j++)
			element(t, &sges[i][j]);
		switch (wr->opcode) {
		case IBV_WR_ATOMIC_CMP_AND_SWP:
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			remote(t, &wr->wr.atomic.remote_addr, &wr->wr.atomic.rkey, mw);
			if (!one_in(t, 4)) {
				wr->num_sge = 1;
				sges[i][0].length = 8;
			}
			break;
		case IBV_WR_BIND_MW:
			/* rdma-core's libraries read both */
			wr->bind_mw.mw = mw ? mw->p : NULL;
			wr->bind_mw.rkey = mw ? ibv_inc_rkey(((struct ibv_mw *)mw->p)->rkey) : 0;
			wr->bind_mw.bind_info = (struct ibv_mw_bind_info){mr ? mr->p : NULL, mr ? (uintptr_t)((struct ibv_mr *)mr->p)->addr : 0, rnd(t) % 5000, (unsigned)(one_in(t, 4) ? rnd(t) : IBV_ACCESS_REMOTE_WRITE)};
			break;
		default:
			remote(t, &wr->wr.rdma.remote_addr, &wr->wr.rdma.rkey, mw);
		}
		if (wr->opcode == 15) { /* ATOMIC_WRITE is inline: the library reads its memory as a program would */
			static uint64_t eight;

			wr->num_sge = 1;
			sges[i][0] = (struct ibv_sge){(uintptr_t)&eight, one_in(t, 4) ? 7 : 8, 0};
		}
		if (qp->type == IBV_QPT_UD && wr->opcode != IBV_WR_BIND_MW) {
			struct object *peer = pick(t, QP);

			wr->wr.ud.ah = ah && !one_in(t, 20) ? ah->p : NULL;
			wr->wr.ud.remote_qpn = ((struct ibv_qp *)peer->p)->qp_num;
			wr->wr.ud.remote_qkey = 0x11;
		}
		if (one_in(t, 40))
			wr->num_sge = (int)rnd(t) % 5000 - 2500;
		if (wr->num_sge > 4 && !one_in(t, 2))
			wr->num_sge = 4;
		if (one_in(t, 60))
			wr->sg_list = NULL;
		if (one_in(t, 60))
			wr->opcode = (enum ibv_wr_opcode)rnd(t);
	}
	if (one_in(t, 60))
		wrs[n - 1].next = &wrs[rnd(t) % (uint64_t)n]; /* a loop */
	r = (int)CALL(t, "ibv_post_send", qp->p, n, wrs[0].opcode, wrs[0].send_flags, ibv_post_send(qp->p, wrs, &bad));
	MUST(t, !r || bad);
}

static void recv_list(struct thread *t, struct object *to, bool srq)
{
	struct ibv_recv_wr wrs[MAX_WRS], *bad = NULL;
	struct ibv_sge sges[MAX_WRS][4];
	int n = 1 + (int)(rnd(t) % (one_in(t, 3) ? MAX_WRS : 3)), r;

	for (int i = 0; i < n; i++) {
		wrs[i] = (struct ibv_recv_wr){.wr_id = rnd(t), .next = i + 1 < n ? &wrs[i + 1] : NULL, .sg_list = sges[i], .num_sge = (int)(rnd(t) % 3)};
		for (int j = 0; j < 4; j++)
			element(t, &sges[i][j]);
		if (one_in(t, 40))
			wrs[i].num_sge = (int)rnd(t) % 5000 - 2500;
		if (wrs[i].num_sge > 4 && !one_in(t, 2))
			wrs[i].num_sge = 4;
		if (one_in(t, 60))
			wrs[i].sg_list = NULL;
	}
	if (one_in(t, 60))
		wrs[n - 1].next = &wrs[rnd(t) % (uint64_t)n];
	if (srq)
		r = (int)CALL(t, "ibv_post_srq_recv", to->p, n, 0, 0, ibv_post_srq_recv(to->p, wrs, &bad));
	else
		r = (int)CALL(t, "ibv_post_recv", to->p, n, 0, 0, ibv_post_recv(to->p, wrs, &bad));
	MUST(t, !r || bad);
}

/* ibv_wr_*: calls in random order. */
static void builder(struct thread *t, struct object *o)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(o->p);
	struct ibv_sge sge[2];
	struct ibv_data_buf bufs[2] = {{t->arena, rnd(t) % 100}, {t->arena + 1000, one_in(t, 8) ? rnd(t) % 3000 : 20}};
	uint64_t addr;
	uint32_t rkey;
	int n = 1 + (int)(rnd(t) % 8);

	if (!qp)
		return;
	element(t, &sge[0]);
	element(t, &sge[1]);
	CALL(t, "ibv_wr_start", qp, 0, 0, 0, (ibv_wr_start(qp), 0));
	while (n--) {
		unsigned what = (unsigned)(rnd(t) % 10);

		remote(t, &addr, &rkey, NULL);
		qp->wr_id = rnd(t);
		qp->wr_flags = (unsigned)(one_in(t, 20) ? rnd(t) : rnd(t) % 8);
		begin(t, "ibv_wr_*", (uint64_t)what, 0, 0, 0);
		switch (what) {
		case 0: ibv_wr_send(qp); break;
		case 1: ibv_wr_rdma_write(qp, rkey, addr); break;
		case 2: ibv_wr_rdma_read(qp, rkey, addr); break;
		case 3: ibv_wr_send_imm(qp, 1); break;
		case 4: ibv_wr_atomic_fetch_add(qp, rkey, addr, 1); break;
		case 5: ibv_wr_set_sge_list(qp, 2, sge); break;
		case 6: ibv_wr_set_inline_data(qp, t->arena, rnd(t) % 600); break;
		case 7: ibv_wr_set_inline_data_list(qp, 2, bufs); break;
		case 8: ibv_wr_local_inv(qp, rkey); break;
		default: ibv_wr_set_sge(qp, sge[0].lkey, sge[0].addr, sge[0].length);
		}
		end(t, 0);
		if (what < 5)
			ibv_wr_set_sge(qp, sge[0].lkey, sge[0].addr, sge[0].length);
	}
	if (one_in(t, 6))
		CALL(t, "ibv_wr_abort", qp, 0, 0, 0, (ibv_wr_abort(qp), 0));
	else
		CALL(t, "ibv_wr_complete", qp, 0, 0, 0, ibv_wr_complete(qp));
}

static void bind_window(struct thread *t, struct object *qp)
{
	struct object *mw = pick(t, MW), *mr = pick(t, MR);
	struct ibv_mw_bind bind = {.wr_id = 7, .send_flags = (unsigned)rnd(t) % 4};

	if (!mw || !mr)
		return;
	bind.bind_info = (struct ibv_mw_bind_info){mr->p, (uintptr_t)((struct ibv_mr *)mr->p)->addr, rnd(t) % 5000, IBV_ACCESS_REMOTE_WRITE};
	CALL(t, "ibv_bind_mw", qp->p, mw->p, mr->p, 0, ibv_bind_mw(qp->p, mw->p, &bind));
}

void post(struct thread *t)
{
	struct object *qp = pick(t, QP), *srq = pick(t, SRQ);

	switch (rnd(t) % 10) {
	case 0: case 1: case 2:
		if (srq && one_in(t, 3))
			recv_list(t, srq, true);
		else if (qp)
			recv_list(t, qp, false);
		return;
	case 3:
		if (qp)
			builder(t, qp);
		return;
	case 4:
		if (qp)
			bind_window(t, qp);
		return;
	default:
		if (qp)
			send_list(t, qp);
	}
}
