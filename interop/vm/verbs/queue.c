/* Completion channels and queues, shared receive queues, XRC domains. */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

enum { MAX_POLL = 64, NAP_US = 200 };

static int create_channel(struct call *c)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);

	if (ch)
		fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
	return made(c, K_CHANNEL, ch);
}

static int destroy_channel(struct call *c)
{
	struct ibv_comp_channel *ch = object(c, "channel", K_CHANNEL);

	return ch ? ended(c, "channel", ibv_destroy_comp_channel(ch)) : fail(c, "no channel");
}

static int create_cq(struct call *c)
{
	struct ibv_comp_channel *ch = object(c, "channel", K_CHANNEL);
	struct ibv_cq *cq = ibv_create_cq(ctx, (int)num(c, "n"), NULL, ch, (int)num(c, "vector"));
	int rc = made(c, K_CQ, cq);

	if (!rc)
		put(c, "cap", (uint64_t)cq->cqe);
	return rc;
}

static int resize_cq(struct call *c)
{
	struct ibv_cq *cq = object(c, "cq", K_CQ);
	int rc;

	if (!cq)
		return fail(c, "no cq");
	rc = ibv_resize_cq(cq, (int)num(c, "n"));
	if (rc)
		return result(rc);
	put(c, "cap", (uint64_t)cq->cqe);
	return 0;
}

static int destroy_cq(struct call *c)
{
	struct ibv_cq *cq = object(c, "cq", K_CQ);

	return cq ? ended(c, "cq", ibv_destroy_cq(cq)) : fail(c, "no cq");
}

static int req_notify(struct call *c)
{
	struct ibv_cq *cq = object(c, "cq", K_CQ);

	return cq ? result(ibv_req_notify_cq(cq, (int)num(c, "solicited"))) : fail(c, "no cq");
}

static int get_cq_event(struct call *c)
{
	struct ibv_comp_channel *ch = object(c, "channel", K_CHANNEL);
	struct ibv_cq *cq;
	void *unused;
	int rc;

	if (!ch)
		return fail(c, "no channel");
	rc = await(ch->fd, num(c, "ms"));
	if (rc)
		return rc;
	if (ibv_get_cq_event(ch, &cq, &unused))
		return errno;
	put(c, "cq", object_handle(K_CQ, cq));
	ibv_ack_cq_events(cq, 1);
	return 0;
}

static void put_wc(struct call *c, const struct ibv_wc *w)
{
	put_raw(c, " wc=%llu:%u:%u:%u:%u:%u:%u:%u:%u:%u:%u", (unsigned long long)w->wr_id, w->status, w->opcode, w->vendor_err,
		w->byte_len, w->wc_flags & IBV_WC_WITH_INV ? w->invalidated_rkey : be32toh(w->imm_data), w->qp_num, w->src_qp,
		w->wc_flags, w->pkey_index, w->slid);
}

/* poll_cq waits until it has n completions, or ms milliseconds have passed. */
static int poll_cq(struct call *c)
{
	struct ibv_cq *cq = object(c, "cq", K_CQ);
	int want = (int)num(c, "n"), n = 0;
	uint64_t ms = num(c, "ms");
	struct timespec start, now;

	if (!cq || want > MAX_POLL)
		return fail(c, "no cq, or too many completions");
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		struct ibv_wc w[MAX_POLL];
		int got = ibv_poll_cq(cq, want - n, w);

		if (got < 0)
			return result(got);
		for (int i = 0; i < got; i++)
			put_wc(c, &w[i]);
		n += got;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (n >= want || (uint64_t)(now.tv_sec - start.tv_sec) * 1000 + (uint64_t)(now.tv_nsec / 1000000) >=
				 ms + (uint64_t)(start.tv_nsec / 1000000))
			return 0;
		usleep(NAP_US);
	}
}

static int open_xrcd(struct call *c)
{
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return made(c, K_XRCD, ibv_open_xrcd(ctx, &a));
}

static int create_srq(struct call *c)
{
	struct ibv_pd *pd = object(c, "pd", K_PD);
	struct ibv_srq_init_attr a = {
		.attr = { .max_wr = (uint32_t)num(c, "wr"), .max_sge = (uint32_t)num(c, "sge"), .srq_limit = (uint32_t)num(c, "limit") },
	};
	int rc;

	if (!pd)
		return fail(c, "no pd");
	rc = made(c, K_SRQ, ibv_create_srq(pd, &a));
	if (!rc) {
		put(c, "wr", a.attr.max_wr);
		put(c, "sge", a.attr.max_sge);
	}
	return rc;
}

static int modify_srq(struct call *c)
{
	struct ibv_srq *srq = object(c, "srq", K_SRQ);
	struct ibv_srq_attr a = { .max_wr = (uint32_t)num(c, "wr"), .srq_limit = (uint32_t)num(c, "limit") };

	return srq ? result(ibv_modify_srq(srq, &a, (int)num(c, "mask"))) : fail(c, "no srq");
}

static int query_srq(struct call *c)
{
	struct ibv_srq *srq = object(c, "srq", K_SRQ);
	struct ibv_srq_attr a;
	int rc;

	if (!srq)
		return fail(c, "no srq");
	rc = ibv_query_srq(srq, &a);
	if (rc)
		return result(rc);
	put(c, "wr", a.max_wr);
	put(c, "sge", a.max_sge);
	put(c, "limit", a.srq_limit);
	return 0;
}

static int destroy_srq(struct call *c)
{
	struct ibv_srq *srq = object(c, "srq", K_SRQ);

	return srq ? ended(c, "srq", ibv_destroy_srq(srq)) : fail(c, "no srq");
}

const struct command queue_commands[] = {
	{ "create_channel", create_channel, "", "handle" },
	{ "destroy_channel", destroy_channel, "channel", "" },
	{ "create_cq", create_cq, "n channel vector", "handle cap" },
	{ "resize_cq", resize_cq, "cq n", "cap" },
	{ "destroy_cq", destroy_cq, "cq", "" },
	{ "req_notify", req_notify, "cq solicited", "" },
	{ "get_cq_event", get_cq_event, "channel ms", "cq; EAGAIN when none came" },
	{ "poll_cq", poll_cq, "cq n ms", "wc, once for each; id:status:opcode:vendor:len:imm:qpn:src:flags:pkey:slid" },
	{ "open_xrcd", open_xrcd, "", "handle" },
	{ "create_srq", create_srq, "pd wr sge limit", "handle wr sge" },
	{ "modify_srq", modify_srq, "srq mask wr limit", "" },
	{ "query_srq", query_srq, "srq", "wr sge limit" },
	{ "destroy_srq", destroy_srq, "srq", "" },
	{ 0 },
};
