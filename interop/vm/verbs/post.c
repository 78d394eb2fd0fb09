/* Posting. A work request with more=1 is kept, and posted in one list with
* the next work requests up to the first without more. */
#include <arpa/inet.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "agent.h"

enum { MAX_LIST = 64, MAX_INLINE = 4096 };

struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sg[MAX_SG];
	uint8_t data[MAX_INLINE];
	size_t flush_len;
	uint8_t flush_type, flush_level;
};

struct recv {
	struct ibv_recv_wr wr;
	struct ibv_sge sg[MAX_SG];
};

static struct send sends[MAX_LIST];
static struct recv recvs[MAX_LIST];
static int nsends, nrecvs;

/* build reads a send work request. */
static void build(struct call *c, struct send *s)
{
	struct ibv_send_wr *w = &s->wr;
	struct ibv_ah *ah = object(c, "ah", K_AH);
	struct ibv_mw *mw = object(c, "mw", K_MW);

	*w = (struct ibv_send_wr){
		.wr_id = num(c, "id"),
		.sg_list = s->sg,
		.opcode = (enum ibv_wr_opcode)num(c, "op"),
		.send_flags = (unsigned int)num(c, "flags"),
	};
	w->num_sge = sg_args(c, s->sg);
	s->flush_len = num(c, "flushlen");
	s->flush_type = (uint8_t)num(c, "flushtype");
	s->flush_level = (uint8_t)num(c, "flushlevel");
	if (text(c, "data")) {
		uint32_t n = (uint32_t)hex_arg(c, "data", s->data, MAX_INLINE);

		s->sg[0] = (struct ibv_sge){ .addr = (uintptr_t)s->data, .length = n };
		w->num_sge = n ? 1 : 0;
		w->send_flags |= IBV_SEND_INLINE;
	}
	if (text(c, "inv"))
		w->invalidate_rkey = (uint32_t)num(c, "inv");
	else
		w->imm_data = htonl((uint32_t)num(c, "imm"));
	w->qp_type.xrc.remote_srqn = (uint32_t)num(c, "srqn");
	if (ah) {
		w->wr.ud.ah = ah;
		w->wr.ud.remote_qpn = (uint32_t)num(c, "qpn");
		w->wr.ud.remote_qkey = (uint32_t)num(c, "qkey");
	} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->wr.atomic.remote_addr = num(c, "raddr");
		w->wr.atomic.rkey = (uint32_t)num(c, "rkey");
		w->wr.atomic.compare_add = num(c, "cmp");
		w->wr.atomic.swap = num(c, "swap");
	} else {
		w->wr.rdma.remote_addr = num(c, "raddr");
		w->wr.rdma.rkey = (uint32_t)num(c, "rkey");
	}
	if (mw) {
		w->bind_mw.mw = mw;
		w->bind_mw.rkey = (uint32_t)num(c, "newkey");
		w->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = object(c, "mr", K_MR),
			.addr = num(c, "maddr"),
			.length = num(c, "mlen"),
			.mw_access_flags = (unsigned int)num(c, "maccess"),
		};
	}
}

/* post_ex posts a list through the ibv_wr_* calls. */
static int post_ex(struct call *c, struct ibv_qp *qp, int n)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);

	if (!x)
		return EOPNOTSUPP;
	ibv_wr_start(x);
	for (int i = 0; i < n; i++) {
		const struct send *s = &sends[i];
		const struct ibv_send_wr *w = &s->wr;

		x->wr_id = w->wr_id;
		x->wr_flags = w->send_flags & ~(unsigned int)IBV_SEND_INLINE;
		switch (w->opcode) {
		case IBV_WR_RDMA_WRITE:
			ibv_wr_rdma_write(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
			break;
		case IBV_WR_RDMA_WRITE_WITH_IMM:
			ibv_wr_rdma_write_imm(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr, w->imm_data);
			break;
		case IBV_WR_SEND:
			ibv_wr_send(x);
			break;
		case IBV_WR_SEND_WITH_IMM:
			ibv_wr_send_imm(x, w->imm_data);
			break;
		case IBV_WR_SEND_WITH_INV:
			ibv_wr_send_inv(x, w->invalidate_rkey);
			break;
		case IBV_WR_LOCAL_INV:
			ibv_wr_local_inv(x, w->invalidate_rkey);
			break;
		case IBV_WR_BIND_MW:
			ibv_wr_bind_mw(x, w->bind_mw.mw, w->bind_mw.rkey, &w->bind_mw.bind_info);
			break;
		case IBV_WR_RDMA_READ:
			ibv_wr_rdma_read(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
			break;
		case IBV_WR_ATOMIC_CMP_AND_SWP:
			ibv_wr_atomic_cmp_swp(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add, w->wr.atomic.swap);
			break;
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			ibv_wr_atomic_fetch_add(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add);
			break;
		case IBV_WR_ATOMIC_WRITE:
			if (!x->wr_atomic_write) {
				ibv_wr_abort(x);
				return EOPNOTSUPP;
			}
			ibv_wr_atomic_write(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr, s->data);
			continue; /* the data is in the work request */
#ifdef HAVE_FLUSH
		case IBV_WR_FLUSH:
			if (!x->wr_flush) {
				ibv_wr_abort(x);
				return EOPNOTSUPP;
			}
			ibv_wr_flush(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr, s->flush_len, s->flush_type, s->flush_level);
			continue;
#endif
		default:
			ibv_wr_abort(x);
			return fail(c, "the agent has no ibv_wr_* call for this operation");
		}
		if (w->wr.ud.ah && qp->qp_type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(x, w->wr.ud.ah, w->wr.ud.remote_qpn, w->wr.ud.remote_qkey);
		if (w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW)
			continue;
		if (w->send_flags & IBV_SEND_INLINE)
			ibv_wr_set_inline_data(x, (void *)(uintptr_t)s->sg[0].addr, s->sg[0].length);
		else
			ibv_wr_set_sge_list(x, (size_t)w->num_sge, s->sg);
	}
	return result(ibv_wr_complete(x));
}

static int post_send(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ibv_send_wr *bad = NULL;
	int n, rc;

	if (!qp || nsends == MAX_LIST)
		return fail(c, "no qp, or too many work requests");
	build(c, &sends[nsends++]);
	if (num(c, "more"))
		return 0;
	n = nsends;
	nsends = 0;
	if (c->bad)
		return EBADMSG;
	if (num(c, "ex"))
		return post_ex(c, qp, n);
	for (int i = 1; i < n; i++)
		sends[i - 1].wr.next = &sends[i].wr;
	rc = ibv_post_send(qp, &sends[0].wr, &bad);
	for (int i = 0; rc && i < n; i++)
		if (bad == &sends[i].wr)
			put(c, "posted", (uint64_t)i);
	return result(rc);
}

/* doorbell makes the kernel process a send queue, as librxe does after every post. Verbs have
* no separate call for that. */
static int doorbell(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send body;
	} cmd = {
		.hdr = { .command = IB_USER_VERBS_CMD_POST_SEND, .in_words = sizeof(cmd) / 4, .out_words = sizeof(resp) / 4 },
		.body = { .response = (uintptr_t)&resp, .wqe_size = sizeof(struct ib_uverbs_send_wr) },
	};

	if (!qp)
		return fail(c, "no qp");
	cmd.body.qp_handle = qp->handle;
	return write(ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? 0 : errno;
}

static int build_recv(struct call *c)
{
	struct recv *r = &recvs[nrecvs];

	if (nrecvs == MAX_LIST)
		return fail(c, "too many work requests");
	nrecvs++;
	r->wr = (struct ibv_recv_wr){ .wr_id = num(c, "id"), .sg_list = r->sg };
	r->wr.num_sge = sg_args(c, r->sg);
	return 0;
}

/* post_recv posts to a queue pair or a shared receive queue. */
static int post_recv(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ibv_srq *srq = object(c, "srq", K_SRQ);
	struct ibv_recv_wr *bad = NULL;
	int n, rc = build_recv(c);

	if (rc || (!qp && !srq))
		return fail(c, "neither qp nor srq");
	if (num(c, "more"))
		return 0;
	n = nrecvs;
	nrecvs = 0;
	if (c->bad)
		return EBADMSG;
	for (int i = 1; i < n; i++)
		recvs[i - 1].wr.next = &recvs[i].wr;
	rc = srq ? ibv_post_srq_recv(srq, &recvs[0].wr, &bad) : ibv_post_recv(qp, &recvs[0].wr, &bad);
	for (int i = 0; rc && i < n; i++)
		if (bad == &recvs[i].wr)
			put(c, "posted", (uint64_t)i);
	return result(rc);
}

const struct command post_commands[] = {
	{ "post_send", post_send,
	  "qp id op flags sg data(inline) raddr rkey imm inv cmp swap ah qpn qkey srqn mw newkey mr maddr mlen maccess "
	  "flushlen flushtype flushlevel more ex",
	  "posted: how many were, on failure" },
	{ "doorbell", doorbell, "qp", "" },
	{ "post_recv", post_recv, "qp|srq id sg more", "posted: how many were, on failure" },
	{ 0 },
};
