/* post.c: lists of work requests become arrays, which the engine takes in one call.
 *
 * By a mistake of the program a list may be a loop. It would be posted as long as the queue has room: for
  * ever, if requests complete fast enough. So the walk compares each request with an earlier one, which moves
  * forward at powers of two (Brent's algorithm), and ends with EINVAL. */
#include "front.h"

enum { BATCH = 32 };

_Static_assert(sizeof(struct ibv_sge) == sizeof(struct roce_sge), "struct ibv_sge");
_Static_assert(offsetof(struct ibv_sge, length) == offsetof(struct roce_sge, length), "struct ibv_sge");
_Static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct roce_sge, lkey), "struct ibv_sge");

struct loop_check {
	const void *mark;
	uint32_t steps, limit;
};

static inline bool is_loop(struct loop_check *c, const void *at)
{
	if (at == c->mark)
		return true;
	if (c->steps++ == c->limit) {
		c->mark = at;
		c->steps = 0;
		c->limit = 2 * c->limit + 1;
	}
	return false;
}

/* ---- sending ---- */

/* The members of struct ibv_send_wr that an opcode uses. */
enum form { NONE, SEND, RDMA, ATOMIC, LOCAL, BIND, ATOMIC_WRITE };

static const uint8_t forms[] = {
	[IBV_WR_RDMA_WRITE] = RDMA,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = RDMA,
	[IBV_WR_SEND] = SEND,
	[IBV_WR_SEND_WITH_IMM] = SEND,
	[IBV_WR_RDMA_READ] = RDMA,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = ATOMIC,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = ATOMIC,
	[IBV_WR_LOCAL_INV] = LOCAL,
	[IBV_WR_BIND_MW] = BIND,
	[IBV_WR_SEND_WITH_INV] = SEND,
	[ROCE_WR_ATOMIC_WRITE] = ATOMIC_WRITE,
};

static int convert_send(struct roce_send_wr *out, const struct ibv_send_wr *in, enum ibv_qp_type type)
{
	unsigned int opcode = in->opcode;
	enum form form = opcode < sizeof forms ? forms[opcode] : NONE;

	if (unlikely(in->num_sge < 0 || (in->num_sge && !in->sg_list)))
		return EINVAL;
	*out = (struct roce_send_wr){
		.wr_id = in->wr_id,
		.sg = (const struct roce_sge *)in->sg_list,
		.num_sge = in->num_sge,
		.opcode = opcode,
		.flags = in->send_flags,
		.imm = in->imm_data,
	};
	switch (form) {
	case NONE:
		return EINVAL;
	case SEND:
		if (type == IBV_QPT_UD) {
			if (!in->wr.ud.ah)
				return EINVAL;
			out->ah = in->wr.ud.ah->handle;
			out->remote_qpn = in->wr.ud.remote_qpn;
			out->remote_qkey = in->wr.ud.remote_qkey;
		}
		break;
	case RDMA:
		out->remote_addr = in->wr.rdma.remote_addr;
		out->rkey = in->wr.rdma.rkey;
		break;
	case ATOMIC:
		out->remote_addr = in->wr.atomic.remote_addr;
		out->rkey = in->wr.atomic.rkey;
		out->compare_add = in->wr.atomic.compare_add;
		out->swap = in->wr.atomic.swap;
		break;
	case LOCAL:
		break;
	case BIND:
		if (!in->bind_mw.mw)
			return EINVAL;
		out->mw = in->bind_mw.mw->handle;
		out->mr = in->bind_mw.bind_info.mr ? in->bind_mw.bind_info.mr->handle : 0;
		out->new_rkey = in->bind_mw.rkey;
		out->bind_addr = in->bind_mw.bind_info.addr;
		out->bind_length = in->bind_mw.bind_info.length;
		out->bind_access = in->bind_mw.bind_info.mw_access_flags;
		break;
	case ATOMIC_WRITE: /* the 8 bytes are taken now, like inline data */
		if (in->num_sge != 1 || in->sg_list->length != sizeof out->atomic_write)
			return EINVAL;
		memcpy(&out->atomic_write, (const void *)(uintptr_t)in->sg_list->addr, sizeof out->atomic_write);
		out->remote_addr = in->wr.rdma.remote_addr;
		out->rkey = in->wr.rdma.rkey;
		out->sg = NULL;
		out->num_sge = 0;
		break;
	}
	if (type == IBV_QPT_XRC_SEND)
		out->srqn = in->qp_type.xrc.remote_srqn;
	return 0;
}

int roce_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct roce_send_wr batch[BATCH];
	struct loop_check loop = {0};
	int r = 0;

	if (unlikely(to_qp(qp)->generation != roce_generation))
		r = EIO;
	else if (wr && roce_collect(to_qp(qp), wr))
		return 0;
	while (wr && !r) {
		struct ibv_send_wr *first = wr;
		int n = 0, posted = 0, refused;

		for (; wr && n < BATCH; wr = wr->next, n++) {
			r = is_loop(&loop, wr) ? EINVAL : convert_send(&batch[n], wr, qp->qp_type);
			if (unlikely(r))
				break;
		}
		if (!n)
			break;
		refused = roce_post(to_qp(qp), batch, n, &posted);
		if (unlikely(refused)) {
			for (wr = first; posted > 0; posted--)
				wr = wr->next;
			r = refused;
		}
	}
	if (unlikely(r && bad))
		*bad = wr;
	return roce_err(r);
}

/* ---- receiving ---- */

/* The engine posts to the shared receive queue or, if there is none, to the queue pair. */
static int post_recvs(struct roce_qp *qp, struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct roce_recv_wr batch[BATCH];
	struct loop_check loop = {0};
	int r = 0;

	while (wr && !r) {
		struct ibv_recv_wr *first = wr;
		int n = 0, posted = 0, took;

		for (; wr && n < BATCH; wr = wr->next, n++) {
			if (unlikely(is_loop(&loop, wr) || wr->num_sge < 0 || (wr->num_sge && !wr->sg_list))) {
				r = EINVAL;
				break;
			}
			batch[n] = (struct roce_recv_wr){
				.wr_id = wr->wr_id,
				.sg = (const struct roce_sge *)wr->sg_list,
				.num_sge = wr->num_sge,
			};
		}
		if (!n)
			break;
		took = srq ? roce_engine_table->post_srq_recv(srq->handle, batch, n, &posted) : roce_recv_ring_call(qp, batch, n, &posted);
		if (unlikely(took)) {
			for (wr = first; posted > 0; posted--)
				wr = wr->next;
			r = -took;
		}
	}
	if (unlikely(r && bad))
		*bad = wr;
	return roce_err(r);
}

int roce_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (unlikely(to_qp(qp)->generation != roce_generation)) {
		if (bad)
			*bad = wr;
		return roce_err(EIO);
	}
	for (int n = 0; wr && n < BATCH && roce_recv_ring_add(to_qp(qp), wr); n++) /* the list may be a loop */
		wr = wr->next;
	return wr ? post_recvs(to_qp(qp), NULL, wr, bad) : 0;
}

int roce_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (unlikely(to_srq(srq)->generation != roce_generation)) {
		if (bad)
			*bad = wr;
		return roce_err(EIO);
	}
	return post_recvs(NULL, srq, wr, bad);
}
