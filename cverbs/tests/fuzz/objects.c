/* objects.c: making and destroying objects, with good and bad arguments. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>

struct object *pick(struct thread *t, enum kind k)
{
	int n = t->count[k] ? (int)(rnd(t) % (uint64_t)t->count[k]) : -1;

	for (int i = 0; n >= 0 && i < PER_KIND; i++)
		if (t->objects[k][i].p && n-- == 0)
			return &t->objects[k][i];
	return NULL;
}

void *wrong(struct thread *t, enum kind k)
{
	static uint64_t zeros[1024];
	struct object *o;

	switch (rnd(t) % 5) {
	case 0:
		return (char *)zeros + 2048;
	case 1: /* of another kind */
		o = pick(t, (k + 1 + rnd(t) % (KINDS - 1)) % KINDS);
		/* librdmacm reads the memory of its arguments. */
		if (o && k < CM_CHANNEL && o < t->objects[CM_CHANNEL])
			return o->p;
		break;
	case 2:
		if (t->stale && t->n_dead && k < CM_CHANNEL)
			return t->dead[rnd(t) % (uint64_t)t->n_dead];
		break;
	case 3: /* a pointer into the middle of an object */
		o = pick(t, k);
		if (o && k < CM_CHANNEL)
			return (char *)o->p + 8;
		break;
	}
	return NULL;
}

bool full(struct thread *t, enum kind k) { return t->count[k] == PER_KIND; }

struct object *keep(struct thread *t, enum kind k, void *p)
{
	for (int i = 0; i < PER_KIND; i++)
		if (!t->objects[k][i].p) {
			t->objects[k][i] = (struct object){.p = p};
			t->count[k]++;
			for (int d = 0; d < t->n_dead; d++) /* its address was used before */
				if (t->dead[d] == p)
					t->dead[d--] = t->dead[--t->n_dead];
			return &t->objects[k][i];
		}
	return NULL;
}

void needs(struct object *o, struct object *what)
{
	if (!what)
		return;
	for (int i = 0; i < 4; i++)
		if (!o->needs[i]) {
			o->needs[i] = what;
			what->users++;
			return;
		}
}

static void forget(struct thread *t, enum kind k, struct object *o)
{
	MUST(t, !o->users); /* an object in use is EBUSY */
	for (int i = 0; i < 4; i++)
		if (o->needs[i])
			o->needs[i]->users--;
	if (o->mapped && o->buf)
		munmap(o->buf, o->length);
	if (k < CM_CHANNEL)
		t->dead[t->n_dead < DEAD ? t->n_dead++ : (int)(rnd(t) % DEAD)] = o->p;
	memset(o, 0, sizeof *o);
	t->count[k]--;
}

int call_destroy(struct thread *t, enum kind k, void *p)
{
	switch (k) {
	case CONTEXT: return (int)CALL(t, "ibv_close_device", p, 0, 0, 0, ibv_close_device(p));
	case PD: return (int)CALL(t, "ibv_dealloc_pd", p, 0, 0, 0, ibv_dealloc_pd(p));
	case TD: return (int)CALL(t, "ibv_dealloc_td", p, 0, 0, 0, ibv_dealloc_td(p));
	case MR: return (int)CALL(t, "ibv_dereg_mr", p, 0, 0, 0, ibv_dereg_mr(p));
	case MW: return (int)CALL(t, "ibv_dealloc_mw", p, 0, 0, 0, ibv_dealloc_mw(p));
	case DM: return (int)CALL(t, "ibv_free_dm", p, 0, 0, 0, ibv_free_dm(p));
	case CHANNEL: return (int)CALL(t, "ibv_destroy_comp_channel", p, 0, 0, 0, ibv_destroy_comp_channel(p));
	case CQ: return (int)CALL(t, "ibv_destroy_cq", p, 0, 0, 0, ibv_destroy_cq(p));
	case SRQ: return (int)CALL(t, "ibv_destroy_srq", p, 0, 0, 0, ibv_destroy_srq(p));
	case XRCD: return (int)CALL(t, "ibv_close_xrcd", p, 0, 0, 0, ibv_close_xrcd(p));
	case QP: return (int)CALL(t, "ibv_destroy_qp", p, 0, 0, 0, ibv_destroy_qp(p));
	case AH: return (int)CALL(t, "ibv_destroy_ah", p, 0, 0, 0, ibv_destroy_ah(p));
	case CM_CHANNEL:
		CALL(t, "rdma_destroy_event_channel", p, 0, 0, 0, (rdma_destroy_event_channel(p), 0));
		return 0;
	case CM_ID: {
		struct rdma_cm_id *id = p;

		if (id && id->qp)
			CALL(t, "rdma_destroy_qp", p, 0, 0, 0, (rdma_destroy_qp(p), 0));
		return (int)CALL(t, "rdma_destroy_id", p, 0, 0, 0, rdma_destroy_id(p));
	}
	default: return -1;
	}
}

int destroy(struct thread *t, enum kind k, struct object *o)
{
	int r;

	if (k == CM_CHANNEL && o->users)
		return EBUSY; /* rdma-core forbids it: its identifiers would point to freed memory */
	if (k == CONTEXT && o->users)
		return EBUSY;
	r = call_destroy(t, k, o->p);
	if (!r)
		forget(t, k, o);
	return r;
}

void destroy_all(struct thread *t)
{
	static const enum kind order[] = {CM_ID, CM_CHANNEL, QP, AH, MW, SRQ, CQ, CHANNEL, MR, DM, XRCD, PD, TD, CONTEXT};

	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		for (int left = PER_KIND; left; left--) /* a domain may be another's parent */
			for (int j = 0; j < PER_KIND; j++) {
				struct object *o = &t->objects[order[i]][j];

				if (o->p && !(order[i] == PD && o->users))
					MUST(t, !destroy(t, order[i], o));
			}
	for (int k = 0; k < KINDS; k++)
		MUST(t, !t->count[k]);
}

static int some(struct thread *t, int usual)
{
	switch (rnd(t) % 12) {
	case 0: return 0;
	case 1: return -1;
	case 2: return INT32_MAX;
	case 3: return (int)rnd(t);
	case 4: return (int)(rnd(t) % 70000);
	default: return usual;
	}
}

static int usual_access(struct thread *t)
{
	switch (rnd(t) % 6) {
	case 0: return (int)rnd(t);
	case 1: return 1 << rnd(t) % 32;
	case 2: return 0;
	default: return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	}
}

static void *maybe_wrong(struct thread *t, enum kind k, struct object **from)
{
	*from = pick(t, k);
	if (*from && !one_in(t, 20))
		return (*from)->p;
	*from = NULL;
	return wrong(t, k);
}

static void make_mr(struct thread *t)
{
	struct object *pd, *o;
	void *p = maybe_wrong(t, PD, &pd), *made;
	size_t length = 1 + rnd(t) % 20000;
	int access = usual_access(t), prot = one_in(t, 10) ? PROT_NONE : one_in(t, 10) ? PROT_READ : PROT_READ | PROT_WRITE;
	char *buf = mmap(NULL, length, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	switch (rnd(t) % 10) {
	case 0: /* unmapped memory */
		munmap(buf, length);
		made = (void *)CALL(t, "ibv_reg_mr", p, buf, length, access, ibv_reg_mr(p, buf, length, access));
		if (made)
			call_destroy(t, MR, made);
		return;
	case 1:
		made = (void *)CALL(t, "ibv_reg_mr_iova2", p, buf, length, access, ibv_reg_mr_iova2(p, buf, length, rnd(t), (unsigned)access));
		break;
	case 2: {
		void *addr = (void *)rnd(t);
		size_t n = rnd(t);

		made = (void *)CALL(t, "ibv_reg_mr", p, addr, n, access, ibv_reg_mr(p, addr, n, access));
		break;
	}
	case 3:
		made = (void *)CALL(t, "ibv_reg_mr", p, 0, UINT64_MAX, access, ibv_reg_mr(p, NULL, SIZE_MAX, access));
		break;
	case 4:
		made = pd ? (void *)CALL(t, "ibv_alloc_null_mr", p, 0, 0, 0, ibv_alloc_null_mr(p)) : NULL;
		break;
	case 5:
		made = (void *)CALL(t, "ibv_reg_dmabuf_mr", p, 0, length, access, ibv_reg_dmabuf_mr(p, 0, length, 0, (int)rnd(t) % 100, access));
		break;
	default:
		made = (void *)CALL(t, "ibv_reg_mr", p, buf, length, access, ibv_reg_mr(p, buf, length, access));
	}
	MUST(t, !made || pd);
	if (!made) {
		munmap(buf, length);
		return;
	}
	o = keep(t, MR, made);
	o->buf = buf, o->length = length, o->mapped = 1;
	needs(o, pd);
}

/* Notes what a queue pair of its type uses. */
static void keep_qp(struct thread *t, void *made, enum ibv_qp_type type, struct object *const from[5])
{
	struct object *o = keep(t, QP, made);

	o->type = type;
	if (type == IBV_QPT_XRC_RECV) {
		needs(o, from[4]);
		return;
	}
	needs(o, from[0]);
	needs(o, from[1]);
	if (type == IBV_QPT_XRC_SEND)
		return;
	needs(o, from[2]);
	needs(o, from[3]);
}

static void make_qp(struct thread *t)
{
	struct object *pd, *cq, *rcq, *srq = NULL, *xrcd = NULL;
	enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET, (enum ibv_qp_type)rnd(t)};
	struct ibv_qp_init_attr init = {.qp_type = types[rnd(t) % 8], .sq_sig_all = one_in(t, 3)};
	void *p = maybe_wrong(t, PD, &pd), *made;

	init.send_cq = maybe_wrong(t, CQ, &cq);
	init.recv_cq = maybe_wrong(t, CQ, &rcq);
	if (one_in(t, 3))
		init.srq = maybe_wrong(t, SRQ, &srq);
	init.cap = (struct ibv_qp_cap){(uint32_t)some(t, 16), (uint32_t)some(t, 16), (uint32_t)some(t, 2), (uint32_t)some(t, 2), (uint32_t)some(t, 64)};
	if (one_in(t, 3) && pd) {
		struct ibv_qp_init_attr_ex ex = {.qp_type = init.qp_type, .send_cq = init.send_cq, .recv_cq = init.recv_cq, .srq = init.srq, .cap = init.cap, .pd = p,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = one_in(t, 3) ? rnd(t) : IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
		struct ibv_context *context = ((struct ibv_pd *)p)->context;

		xrcd = pick(t, XRCD);
		if (one_in(t, 10))
			ex.comp_mask = (uint32_t)rnd(t);
		if (xrcd && one_in(t, 2)) {
			ex.qp_type = IBV_QPT_XRC_RECV;
			ex.comp_mask = IBV_QP_INIT_ATTR_XRCD;
			ex.xrcd = xrcd->p;
		} else {
			ex.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_XRCD;
		}
		made = (void *)CALL(t, "ibv_create_qp_ex", context, ex.qp_type, ex.comp_mask, ex.cap.max_send_wr, ibv_create_qp_ex(context, &ex));
		if (made)
			keep_qp(t, made, ex.qp_type, (struct object *[]){pd, cq, rcq, srq, xrcd});
		return;
	}
	made = (void *)CALL(t, "ibv_create_qp", p, init.qp_type, init.cap.max_send_wr, init.cap.max_recv_wr, ibv_create_qp(p, one_in(t, 50) ? NULL : &init));
	if (!made)
		return;
	MUST(t, pd);
	keep_qp(t, made, init.qp_type, (struct object *[]){pd, cq, rcq, srq, NULL});
}

static void make_cq(struct thread *t)
{
	struct object *context, *channel = NULL, *o;
	struct ibv_context *c = maybe_wrong(t, CONTEXT, &context);
	struct ibv_comp_channel *ch = one_in(t, 2) ? maybe_wrong(t, CHANNEL, &channel) : NULL;
	int cqe = some(t, 64);
	void *made;
	bool extended = context && one_in(t, 3);

	if (extended) {
		struct ibv_cq_init_attr_ex attr = {.cqe = (uint32_t)cqe, .channel = ch, .wc_flags = one_in(t, 4) ? rnd(t) : IBV_WC_STANDARD_FLAGS, .comp_mask = one_in(t, 6) ? (uint32_t)rnd(t) & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_PD : 0, .flags = (uint32_t)rnd(t) % 4};

		made = (void *)CALL(t, "ibv_create_cq_ex", c, attr.cqe, ch, attr.wc_flags, ibv_create_cq_ex(c, &attr));
	} else {
		made = (void *)CALL(t, "ibv_create_cq", c, cqe, ch, 0, ibv_create_cq(c, cqe, t, ch, some(t, 0)));
	}
	if (!made)
		return;
	MUST(t, context);
	o = keep(t, CQ, made);
	o->extended = extended;
	needs(o, context);
	needs(o, channel);
}

static void make_srq(struct thread *t)
{
	struct object *pd, *o, *xrcd = pick(t, XRCD), *cq = pick(t, CQ);
	void *p = maybe_wrong(t, PD, &pd), *made;
	bool xrc = false;
	struct ibv_srq_init_attr attr = {.attr = {(uint32_t)some(t, 32), (uint32_t)some(t, 2), (uint32_t)some(t, 0)}};

	if (pd && xrcd && cq && one_in(t, 2)) {
		struct ibv_srq_init_attr_ex ex = {.attr = attr.attr, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
			.srq_type = one_in(t, 4) ? (enum ibv_srq_type)(rnd(t) % 5) : IBV_SRQT_XRC, .pd = p, .xrcd = xrcd->p, .cq = cq->p};

		xrc = ex.srq_type == IBV_SRQT_XRC;
		made = (void *)CALL(t, "ibv_create_srq_ex", p, ex.srq_type, attr.attr.max_wr, attr.attr.max_sge, ibv_create_srq_ex(((struct ibv_pd *)p)->context, &ex));
	} else {
		made = (void *)CALL(t, "ibv_create_srq", p, attr.attr.max_wr, attr.attr.max_sge, 0, ibv_create_srq(p, &attr));
	}
	if (!made)
		return;
	MUST(t, pd);
	o = keep(t, SRQ, made);
	needs(o, pd);
	if (!xrc)
		return;
	needs(o, xrcd);
	needs(o, cq);
}

static void make_ah(struct thread *t)
{
	struct object *pd, *o;
	void *p = maybe_wrong(t, PD, &pd), *made;
	struct ibv_ah_attr attr = {.is_global = !one_in(t, 10), .port_num = (uint8_t)some(t, 1), .grh = {.hop_limit = 64, .sgid_index = (uint8_t)some(t, 0)}};

	if (pd && !one_in(t, 4))
		ibv_query_gid(((struct ibv_pd *)p)->context, 1, 0, &attr.grh.dgid);
	else if (one_in(t, 2))
		inet_pton(AF_INET6, "::ffff:239.1.2.3", &attr.grh.dgid);
	made = (void *)CALL(t, "ibv_create_ah", p, attr.port_num, attr.grh.sgid_index, 0, ibv_create_ah(p, &attr));
	if (!made)
		return;
	o = keep(t, AH, made);
	needs(o, pd);
}

void make(struct thread *t, enum kind k)
{
	struct object *from = NULL, *o;
	struct ibv_context *c;
	void *made = NULL;

	if (full(t, k))
		return;
	switch (k) {
	case CONTEXT: {
		int n = (int)(rnd(t) % (uint64_t)device_count);
		struct ibv_device *d = one_in(t, 40) ? NULL : devices[n];

		if (t->count[CONTEXT] >= 6)
			return;
		made = (void *)CALL(t, "ibv_open_device", d, 0, 0, 0, ibv_open_device(d));
		if (made) {
			o = keep(t, CONTEXT, made);
			o->device = n;
		}
		return;
	}
	case PD:
		c = maybe_wrong(t, CONTEXT, &from);
		if (from && t->count[TD] && one_in(t, 4)) {
			struct object *td = pick(t, TD), *pd = pick(t, PD);
			struct ibv_parent_domain_init_attr attr = {.pd = pd ? pd->p : NULL, .td = one_in(t, 2) ? td->p : NULL, .comp_mask = one_in(t, 9) ? (uint32_t)rnd(t) & 1 : 0};

			made = (void *)CALL(t, "ibv_alloc_parent_domain", c, attr.pd, attr.td, attr.comp_mask, ibv_alloc_parent_domain(c, &attr));
			if (made) {
				o = keep(t, PD, made);
				needs(o, from);
				needs(o, pd);
				if (attr.td)
					needs(o, td);
			}
			return;
		}
		made = (void *)CALL(t, "ibv_alloc_pd", c, 0, 0, 0, ibv_alloc_pd(c));
		break;
	case TD: {
		struct ibv_td_init_attr attr = {.comp_mask = one_in(t, 8) ? (uint32_t)rnd(t) : 0};

		from = pick(t, CONTEXT);
		made = from ? (void *)CALL(t, "ibv_alloc_td", from->p, 0, 0, 0, ibv_alloc_td(from->p, &attr)) : NULL;
		break;
	}
	case MR: make_mr(t); return;
	case MW:
		from = pick(t, PD);
		made = from ? (void *)CALL(t, "ibv_alloc_mw", from->p, 0, 0, 0, ibv_alloc_mw(from->p, (enum ibv_mw_type)(rnd(t) % 4))) : NULL;
		break;
	case DM: {
		struct ibv_alloc_dm_attr attr = {.length = (size_t)(one_in(t, 5) ? rnd(t) : rnd(t) % 9000), .log_align_req = (uint32_t)(one_in(t, 5) ? rnd(t) : 0)};

		from = pick(t, CONTEXT);
		made = from ? (void *)CALL(t, "ibv_alloc_dm", from->p, attr.length, 0, 0, ibv_alloc_dm(from->p, &attr)) : NULL;
		break;
	}
	case CHANNEL:
		c = maybe_wrong(t, CONTEXT, &from);
		made = (void *)CALL(t, "ibv_create_comp_channel", c, 0, 0, 0, ibv_create_comp_channel(c));
		if (made)
			fcntl(((struct ibv_comp_channel *)made)->fd, F_SETFL, O_NONBLOCK);
		break;
	case CQ: make_cq(t); return;
	case SRQ: make_srq(t); return;
	case XRCD: {
		struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = one_in(t, 4) ? (int)rnd(t) % 50 : -1, .oflags = one_in(t, 6) ? (int)rnd(t) : O_CREAT};

		from = pick(t, CONTEXT);
		made = from ? (void *)CALL(t, "ibv_open_xrcd", from->p, attr.fd, attr.oflags, 0, ibv_open_xrcd(from->p, &attr)) : NULL;
		break;
	}
	case QP: make_qp(t); return;
	case AH: make_ah(t); return;
	default: return;
	}
	if (!made)
		return;
	MUST(t, from);
	o = keep(t, k, made);
	needs(o, from);
}
