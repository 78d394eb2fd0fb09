/* Every control call returns an errno for pointers to objects of another kind, and for pointers that are no objects. */
#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

/* All calls that take an object, with a wrong one. */
static void all_with(void *wrong)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init = {0};
	struct ibv_srq_attr srq_attr = {0};
	struct ibv_srq_init_attr srq_init = {0};
	struct ibv_ah_attr ah = {.port_num = 1};
	struct ibv_async_event event;
	struct ibv_wc wc = {0};
	union ibv_gid gid;
	__be16 pkey;
	struct ibv_cq *out;
	void *out_context;
	char buf[8];

	CHECK(ibv_query_device(wrong, &device) == EINVAL);
	CHECK((ibv_query_port)(wrong, 1, (void *)&port) == EINVAL);
	CHECK(ibv_query_gid(wrong, 1, 0, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_pkey(wrong, 1, 0, &pkey) == -1 && errno == EINVAL);
	CHECK(ibv_close_device(wrong) == -1 && errno == EINVAL);
	CHECK(ibv_get_async_event(wrong, &event) == -1 && errno == EINVAL);
	CHECK(ibv_init_ah_from_wc(wrong, 1, &wc, NULL, &ah) == EINVAL);
	FAILS(EINVAL, ibv_open_device(wrong));
	FAILS(EINVAL, ibv_get_device_name(wrong));
	FAILS(EINVAL, ibv_alloc_pd(wrong));
	FAILS(EINVAL, ibv_create_comp_channel(wrong));
	FAILS(EINVAL, ibv_create_cq(wrong, 1, NULL, NULL, 0));
	FAILS(EINVAL, (ibv_reg_mr)(wrong, buf, sizeof buf, 0));
	FAILS(EINVAL, ibv_reg_mr_iova2(wrong, buf, sizeof buf, 0, 0));
	FAILS(EINVAL, ibv_reg_dmabuf_mr(wrong, 0, 1, 0, 0, 0));
	FAILS(EINVAL, ibv_create_qp(wrong, &init));
	FAILS(EINVAL, ibv_create_srq(wrong, &srq_init));
	FAILS(EINVAL, ibv_create_ah(wrong, &ah));
	FAILS(EINVAL, ibv_create_ah_from_wc(wrong, &wc, NULL, 1));
	CHECK(ibv_dealloc_pd(wrong) == EINVAL);
	CHECK(ibv_dereg_mr(wrong) == EINVAL);
	CHECK(ibv_rereg_mr(wrong, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_destroy_comp_channel(wrong) == EINVAL);
	CHECK(ibv_get_cq_event(wrong, &out, &out_context) == -1 && errno == EINVAL);
	CHECK(ibv_resize_cq(wrong, 1) == EINVAL);
	CHECK(ibv_destroy_cq(wrong) == EINVAL);
	CHECK(ibv_modify_srq(wrong, &srq_attr, 0) == EINVAL);
	CHECK(ibv_query_srq(wrong, &srq_attr) == EINVAL);
	CHECK(ibv_destroy_srq(wrong) == EINVAL);
	CHECK(ibv_modify_qp(wrong, &attr, 0) == EINVAL);
	CHECK(ibv_query_qp(wrong, &attr, 0, &init) == EINVAL);
	CHECK(ibv_destroy_qp(wrong) == EINVAL);
	CHECK(ibv_attach_mcast(wrong, &gid, 0) == EINVAL);
	CHECK(ibv_detach_mcast(wrong, &gid, 0) == EINVAL);
	CHECK(ibv_destroy_ah(wrong) == EINVAL);
	CHECK(ibv_set_ece(wrong, NULL) == EINVAL);
	CHECK(ibv_qp_to_qp_ex(wrong) == NULL);
	ibv_ack_cq_events(wrong, 1);
}

static void wrong_members(void)
{
	struct ibv_qp_init_attr init = {.send_cq = (void *)pd, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	struct ibv_context *other = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(other);

	FAILS(EINVAL, ibv_create_qp(pd, &init));
	init.send_cq = cq;
	init.srq = (void *)cq;
	FAILS(EINVAL, ibv_create_qp(pd, &init));
	init.srq = NULL;
	init.recv_cq = ibv_create_cq(other, 1, NULL, NULL, 0);
	CHECK(channel && init.recv_cq);
	FAILS(EINVAL, ibv_create_qp(pd, &init)); /* of another context */
	CHECK(!ibv_destroy_cq(init.recv_cq));
	FAILS(EINVAL, ibv_create_cq(context, 1, NULL, channel, 0)); /* of another context */
	FAILS(EINVAL, ibv_create_cq(context, 1, NULL, NULL, 2));
	FAILS(EINVAL, ibv_create_cq(context, 1, NULL, NULL, -1));
	FAILS(EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_close_device(other));
}

/* If the device refuses to destroy an object, the object stays valid. */
static void busy(void)
{
	fake()->busy = EBUSY;
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == EBUSY);
	fake()->busy = 0;
	CHECK(ibv_resize_cq(cq, 7) == 0 && cq->cqe == 7);
}

static void parent_domains(void)
{
	struct ibv_td_init_attr td_init = {0};
	struct ibv_td *td = ibv_alloc_td(context, &td_init);
	struct ibv_parent_domain_init_attr init = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &init);
	struct ibv_qp *in_it;
	struct ibv_mr *memory;
	char buf[8];

	CHECK(td && parent && parent->handle == pd->handle);
	CHECK(ibv_dealloc_td(td) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	in_it = make_qp(parent, cq, IBV_QPT_RC);
	CHECK(in_it && in_it->pd == parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY); /* the queue pair uses it */
	memory = ibv_reg_mr_iova2(parent, buf, sizeof buf, 0, 0);
	CHECK(memory && !ibv_destroy_qp(in_it) && ibv_dealloc_pd(parent) == EBUSY && !ibv_dereg_mr(memory));
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td));
}

static void device_memory(void)
{
	struct ibv_alloc_dm_attr init = {.length = 100};
	struct ibv_device_attr_ex attr;
	struct ibv_dm *dm = ibv_alloc_dm(context, &init);
	struct ibv_mr *mr;
	char out[4];

	CHECK(!ibv_query_device_ex(context, NULL, &attr) && attr.max_dm_size && attr.orig_attr.max_qp == 7);
	CHECK(dm && !ibv_memcpy_to_dm(dm, 96, "abc", 4) && !ibv_memcpy_from_dm(out, dm, 96, 4) && !strcmp(out, "abc"));
	CHECK(ibv_memcpy_to_dm(dm, 97, "abc", 4) == EINVAL && ibv_memcpy_to_dm(dm, 0, "abc", 3) == EINVAL && ibv_memcpy_to_dm(dm, 100, "abc", 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, UINT64_MAX, "abc", 4) == EINVAL);
	FAILS(EINVAL, ibv_reg_dm_mr(pd, dm, 0, 100, IBV_ACCESS_LOCAL_WRITE));
	FAILS(EINVAL, ibv_reg_dm_mr(pd, dm, 1, 100, IBV_ACCESS_ZERO_BASED));
	mr = ibv_reg_dm_mr(pd, dm, 0, 100, IBV_ACCESS_ZERO_BASED);
	CHECK(mr && ibv_free_dm(dm) == EBUSY && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	dm = ibv_alloc_dm(context, &init);
	mr = ibv_reg_dm_mr(pd, dm, 100, 0, IBV_ACCESS_ZERO_BASED);
	CHECK(dm && mr && !mr->lkey && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	init.length = attr.max_dm_size + 1;
	FAILS(ENOMEM, ibv_alloc_dm(context, &init));
	init.length = attr.max_dm_size;
	dm = ibv_alloc_dm(context, &init);
	CHECK(dm && !ibv_free_dm(dm));
}

/* Objects that a program has not destroyed when it closes the device. */
static void forgotten(void)
{
	struct ibv_context *c = open_first();
	struct ibv_pd *left = ibv_alloc_pd(c);

	CHECK(left && !ibv_close_device(c));
	CHECK(ibv_dealloc_pd(left) == EINVAL);
	CHECK(ibv_close_device(c) == -1);
}

int main(void)
{
	static char foreign[4096];

	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	qp = make_qp(pd, cq, IBV_QPT_RC);
	CHECK(qp && qp->qp_num == 0x11 && qp->state == IBV_QPS_RESET);
	all_with(NULL);
	all_with(foreign + 8);
	all_with((void *)1);
	all_with((char *)qp + 8);
	wrong_members();
	busy();
	parent_domains();
	device_memory();
	forgotten();
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	all_with(qp); /* freed, as are the others */
	all_with(context);
	return 0;
}
