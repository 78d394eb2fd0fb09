/* calls.c: calls on existing objects. */
#include "fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

static void *any(struct thread *t, enum kind k)
{
	struct object *o = one_in(t, 15) ? NULL : pick(t, k);

	return o ? o->p : wrong(t, k);
}

static void fill(struct thread *t, void *p, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = one_in(t, 3) ? rnd(t) : 0;

		memcpy((char *)p + i, &v, 8);
	}
}

static void destroy_random(struct thread *t)
{
	enum kind k = rnd(t) % KINDS;
	struct object *o = pick(t, k);

	if (one_in(t, 12) && k != TD && k != MW && k != DM && k != XRCD) {
		void *p = wrong(t, k);
		int r = call_destroy(t, k, p);

		MUST(t, k == CM_CHANNEL || r || in_child); /* a child closes a context of its parent */
		return;
	}
	if (!o || (k == CONTEXT && !one_in(t, 10)) || (k == PD && !one_in(t, 3)))
		return;
	if (!destroy(t, k, o))
		return;
}

static void query(struct thread *t)
{
	union {
		struct ibv_device_attr device;
		struct ibv_port_attr port;
		struct ibv_device_attr_ex ex;
		union ibv_gid gid;
		struct ibv_gid_entry entry;
		struct ibv_gid_entry table[300];
		struct ibv_srq_attr srq;
		uint64_t room[16384];
	} u;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t number;
	void *c = any(t, CONTEXT);
	struct object *live;

	switch (rnd(t) % 11) {
	case 0: CALL(t, "ibv_query_device", c, 0, 0, 0, ibv_query_device(c, &u.device)); break;
	case 1:
		live = pick(t, CONTEXT);
		if (live)
			CALL(t, "ibv_query_device_ex", live->p, 0, 0, 0, ibv_query_device_ex(live->p, NULL, &u.ex));
		break;
	case 2: {
		uint8_t port = (uint8_t)(one_in(t, 4) ? rnd(t) : 1);

		live = pick(t, CONTEXT);
		if (live)
			CALL(t, "ibv_query_port", live->p, port, 0, 0, ibv_query_port(live->p, port, &u.port));
		break;
	}
	case 3: {
		int index = (int)(one_in(t, 4) ? rnd(t) : rnd(t) % 4);

		CALL(t, "ibv_query_gid", c, 1, index, 0, ibv_query_gid(c, 1, index, &u.gid));
		break;
	}
	case 4: {
		uint32_t index = (uint32_t)(one_in(t, 4) ? rnd(t) : rnd(t) % 4), flags = one_in(t, 5) ? (uint32_t)rnd(t) : 0;

		CALL(t, "ibv_query_gid_ex", c, 1, index, flags, ibv_query_gid_ex(c, 1, index, &u.entry, flags));
		break;
	}
	case 5: {
		size_t n = rnd(t) % 300;

		CALL(t, "ibv_query_gid_table", c, n, 0, 0, ibv_query_gid_table(c, u.table, n, 0));
		break;
	}
	case 6: {
		__be16 key;
		int index = (int)(one_in(t, 4) ? rnd(t) : 0);

		CALL(t, "ibv_query_pkey", c, 1, index, 0, ibv_query_pkey(c, 1, index, &key));
		break;
	}
	case 7: {
		void *qp = any(t, QP);
		int mask = (int)rnd(t);

		CALL(t, "ibv_query_qp", qp, mask, 0, 0, ibv_query_qp(qp, &attr, mask, &init));
		break;
	}
	case 8: {
		void *srq = any(t, SRQ);

		CALL(t, "ibv_query_srq", srq, 0, 0, 0, ibv_query_srq(srq, &u.srq));
		break;
	}
	case 9:
		live = pick(t, SRQ);
		if (live)
			CALL(t, "ibv_get_srq_num", live->p, 0, 0, 0, ibv_get_srq_num(live->p, &number));
		break;
	case 10: {
		struct object *qp = pick(t, QP);

		if (qp)
			CALL(t, "ibv_query_qp_data_in_order", qp->p, 0, 0, 0, ibv_query_qp_data_in_order(qp->p, (enum ibv_wr_opcode)rnd(t), (uint32_t)rnd(t)));
		break;
	}
	}
}

static void modify(struct thread *t)
{
	struct ibv_qp_attr attr;
	struct ibv_srq_attr srq = {(uint32_t)rnd(t) % 100, 1, (uint32_t)rnd(t) % 100};
	void *p = any(t, QP);

	switch (rnd(t) % 8) {
	case 0: case 1: case 2: {
		int mask = one_in(t, 2) ? IBV_QP_STATE : IBV_QP_STATE | (int)(rnd(t) & ((1 << 26) - 1));

		fill(t, &attr, sizeof attr);
		attr.qp_state = (enum ibv_qp_state)(rnd(t) % (one_in(t, 5) ? 1000 : 7));
		CALL(t, "ibv_modify_qp", p, attr.qp_state, mask, 0, ibv_modify_qp(p, &attr, mask));
		break;
	}
	case 3: {
		int mask = (int)rnd(t);

		fill(t, &attr, sizeof attr);
		CALL(t, "ibv_modify_qp", p, attr.qp_state, mask, 0, ibv_modify_qp(p, &attr, mask));
		break;
	}
	case 4:
		p = any(t, SRQ);
		CALL(t, "ibv_modify_srq", p, srq.max_wr, srq.srq_limit, 0, ibv_modify_srq(p, &srq, one_in(t, 4) ? (int)rnd(t) : IBV_SRQ_LIMIT));
		break;
	case 5: {
		int cqe = (int)(one_in(t, 6) ? rnd(t) : rnd(t) % 300);

		p = any(t, CQ);
		CALL(t, "ibv_resize_cq", p, cqe, 0, 0, ibv_resize_cq(p, cqe));
		break;
	}
	case 6: {
		union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [14] = 1, [15] = (uint8_t)rnd(t) % 4}};

		if (one_in(t, 5))
			fill(t, &gid, sizeof gid);
		if (one_in(t, 2))
			CALL(t, "ibv_attach_mcast", p, gid.raw[15], 0, 0, ibv_attach_mcast(p, &gid, 0));
		else
			CALL(t, "ibv_detach_mcast", p, gid.raw[15], 0, 0, ibv_detach_mcast(p, &gid, 0));
		break;
	}
	case 7: {
		struct object *mr = pick(t, MR), *pd = pick(t, PD);
		int flags = (int)(one_in(t, 4) ? rnd(t) : rnd(t) % 8), r;

		/* The fuzzer does not record the new domain as needed by the region. */
		flags &= ~IBV_REREG_MR_CHANGE_PD;
		if (!mr || !mr->buf)
			break;
		r = (int)CALL(t, "ibv_rereg_mr", mr->p, flags, 0, 0, ibv_rereg_mr(mr->p, flags, pd ? pd->p : NULL, mr->buf, mr->length / 2, IBV_ACCESS_LOCAL_WRITE));
		(void)r;
		break;
	}
	}
}

/* Makes the memory of a region inaccessible, or accessible again. It does not unmap it, since another mapping might
 * then get the address, and peers would write into it. */
static void remap(struct thread *t)
{
	struct object *mr = pick(t, MR);

	if (!mr || !mr->mapped || !mr->buf)
		return;
	switch (rnd(t) % 3) {
	case 0: CALL(t, "mprotect", mr->buf, mr->length, 0, 0, mprotect(mr->buf, mr->length, PROT_NONE)); return;
	case 1: CALL(t, "mprotect", mr->buf, mr->length, 1, 0, mprotect(mr->buf, mr->length, PROT_READ)); return;
	default:
		CALL(t, "mmap", mr->buf, mr->length, 0, 0, mmap(mr->buf, mr->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	}
}

static void poll_queue(struct thread *t)
{
	struct object *cq = pick(t, CQ);
	struct ibv_wc wc[40];
	int n = one_in(t, 15) ? (int)rnd(t) % 3 - 2 : 1 + (int)(rnd(t) % 40);

	if (!cq)
		return;
	if (cq->extended && one_in(t, 2)) {
		struct ibv_cq_ex *ex = cq->p;
		struct ibv_poll_cq_attr attr = {.comp_mask = one_in(t, 20) ? 1 : 0};

		if (CALL(t, "ibv_start_poll", ex, 0, 0, 0, ibv_start_poll(ex, &attr)))
			return;
		do {
			ibv_wc_read_opcode(ex);
			ibv_wc_read_byte_len(ex);
			ibv_wc_read_imm_data(ex);
			ibv_wc_read_wc_flags(ex);
			ibv_wc_read_completion_ts(ex);
		} while (!CALL(t, "ibv_next_poll", ex, 0, 0, 0, ibv_next_poll(ex)));
		CALL(t, "ibv_end_poll", ex, 0, 0, 0, (ibv_end_poll(ex), 0));
		return;
	}
	n = n > 40 ? 40 : n;
	n = (int)CALL(t, "ibv_poll_cq", cq->p, n, 0, 0, ibv_poll_cq(cq->p, n, one_in(t, 50) ? NULL : wc));
	MUST(t, n <= 40);
}

static void events(struct thread *t)
{
	struct object *channel = pick(t, CHANNEL), *context = pick(t, CONTEXT), *cq = pick(t, CQ);
	struct ibv_async_event e;
	struct ibv_cq *about;
	void *cookie;

	if (cq)
		CALL(t, "ibv_req_notify_cq", cq->p, 0, 0, 0, ibv_req_notify_cq(cq->p, (int)rnd(t) % 2));
	if (channel && !CALL(t, "ibv_get_cq_event", channel->p, 0, 0, 0, ibv_get_cq_event(channel->p, &about, &cookie)))
		CALL(t, "ibv_ack_cq_events", about, 1, 0, 0, (ibv_ack_cq_events(about, 1), 0));
	if (!context)
		return;
	fcntl(((struct ibv_context *)context->p)->async_fd, F_SETFL, O_NONBLOCK);
	if (!CALL(t, "ibv_get_async_event", context->p, 0, 0, 0, ibv_get_async_event(context->p, &e)))
		CALL(t, "ibv_ack_async_event", e.event_type, 0, 0, 0, (ibv_ack_async_event(&e), 0));
}

void step(struct thread *t)
{
	unsigned n = (unsigned)(rnd(t) % 100);

	if (n < 25)
		make(t, t->count[CONTEXT] < 2 ? CONTEXT : rnd(t) % CM_CHANNEL);
	else if (n < 33)
		destroy_random(t);
	else if (n < 38)
		query(t);
	else if (n < 43)
		modify(t);
	else if (n < 50)
		connect_pair(t);
	else if (n < 75)
		post(t);
	else if (n < 87)
		poll_queue(t);
	else if (n < 92)
		events(t);
	else if (n < 94)
		remap(t);
	else if (!t->stale)
		cm_step(t);
}
