/* Protection domains, memory, memory regions and windows, address handles. */
#include <sys/mman.h>

#include "agent.h"

static int alloc_pd(struct call *c) { return made(c, K_PD, ibv_alloc_pd(ctx)); }

static int dealloc_pd(struct call *c)
{
	struct ibv_pd *pd = object(c, "pd", K_PD);

	return pd ? ended(c, "pd", ibv_dealloc_pd(pd)) : fail(c, "no pd");
}

/* alloc allocates whole pages of zeros; with readonly they are read-only. */
static int alloc(struct call *c)
{
	int prot = num(c, "readonly") ? PROT_READ : PROT_READ | PROT_WRITE;
	void *p = mmap(NULL, num(c, "len"), prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return errno;
	put(c, "addr", (uintptr_t)p);
	return 0;
}

static int mem_read(struct call *c)
{
	put_hex(c, "data", (const void *)(uintptr_t)num(c, "addr"), num(c, "len"));
	return 0;
}

static int mem_write(struct call *c)
{
	hex_arg(c, "data", (uint8_t *)(uintptr_t)num(c, "addr"), SIZE_MAX);
	return 0;
}

static void put_mr(struct call *c, const struct ibv_mr *mr)
{
	put(c, "lkey", mr->lkey);
	put(c, "rkey", mr->rkey);
}

static int reg_mr(struct call *c)
{
	struct ibv_pd *pd = object(c, "pd", K_PD);
	void *addr = (void *)(uintptr_t)num(c, "addr");
	size_t len = num(c, "len");
	unsigned int access = (unsigned int)num(c, "access");
	struct ibv_mr *mr;
	int rc;

	if (!pd)
		return fail(c, "no pd");
	if (text(c, "iova"))
		mr = ibv_reg_mr_iova2(pd, addr, len, num(c, "iova"), access);
	else
		mr = (ibv_reg_mr)(pd, addr, len, (int)access);
	rc = made(c, K_MR, mr);
	if (!rc)
		put_mr(c, mr);
	return rc;
}

static int dereg_mr(struct call *c)
{
	struct ibv_mr *mr = object(c, "mr", K_MR);

	return mr ? ended(c, "mr", ibv_dereg_mr(mr)) : fail(c, "no mr");
}

/* rereg_mr also returns the code of a failed call, which tells whether the region is still valid. */
static int rereg_mr(struct call *c)
{
	struct ibv_mr *mr = object(c, "mr", K_MR);
	int rc;

	if (!mr)
		return fail(c, "no mr");
	rc = ibv_rereg_mr(mr, (int)num(c, "flags"), object(c, "pd", K_PD), (void *)(uintptr_t)num(c, "addr"), num(c, "len"),
			  (int)num(c, "access"));
	if (rc) {
		put(c, "code", (uint64_t)-rc);
		return errno ? errno : EIO;
	}
	put_mr(c, mr);
	return 0;
}

static int alloc_mw(struct call *c)
{
	struct ibv_pd *pd = object(c, "pd", K_PD);
	struct ibv_mw *mw;
	int rc;

	if (!pd)
		return fail(c, "no pd");
	mw = ibv_alloc_mw(pd, (enum ibv_mw_type)num(c, "type"));
	rc = made(c, K_MW, mw);
	if (!rc)
		put(c, "rkey", mw->rkey);
	return rc;
}

static int dealloc_mw(struct call *c)
{
	struct ibv_mw *mw = object(c, "mw", K_MW);

	return mw ? ended(c, "mw", ibv_dealloc_mw(mw)) : fail(c, "no mw");
}

/* bind_mw is ibv_bind_mw, for windows of type 1; those of type 2 are bound by
 * post_send. */
static int bind_mw(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ibv_mw *mw = object(c, "mw", K_MW);
	struct ibv_mw_bind b = {
		.wr_id = num(c, "id"),
		.send_flags = (unsigned int)num(c, "flags"),
		.bind_info = {
			.mr = object(c, "mr", K_MR),
			.addr = num(c, "addr"),
			.length = num(c, "len"),
			.mw_access_flags = (unsigned int)num(c, "access"),
		},
	};
	int rc;

	if (!qp || !mw)
		return fail(c, "no qp or mw");
	rc = ibv_bind_mw(qp, mw, &b);
	if (rc)
		return result(rc);
	put(c, "rkey", mw->rkey);
	return 0;
}

static int create_ah(struct call *c)
{
	struct ibv_pd *pd = object(c, "pd", K_PD);
	struct ibv_ah_attr a = {
		.is_global = (uint8_t)num(c, "grh"),
		.port_num = (uint8_t)num(c, "port"),
		.grh = {
			.sgid_index = (uint8_t)num(c, "sgid"),
			.flow_label = (uint32_t)num(c, "fl"),
			.traffic_class = (uint8_t)num(c, "tc"),
			.hop_limit = (uint8_t)num(c, "hop"),
		},
	};

	if (!pd)
		return fail(c, "no pd");
	if (text(c, "dgid"))
		gid_arg(c, "dgid", &a.grh.dgid);
	return made(c, K_AH, ibv_create_ah(pd, &a));
}

static int destroy_ah(struct call *c)
{
	struct ibv_ah *ah = object(c, "ah", K_AH);

	return ah ? ended(c, "ah", ibv_destroy_ah(ah)) : fail(c, "no ah");
}

const struct command memory_commands[] = {
	{ "alloc_pd", alloc_pd, "", "handle" },
	{ "dealloc_pd", dealloc_pd, "pd", "" },
	{ "alloc", alloc, "len readonly", "addr" },
	{ "mem_read", mem_read, "addr len", "data" },
	{ "mem_write", mem_write, "addr data", "" },
	{ "reg_mr", reg_mr, "pd addr len access [iova]", "handle lkey rkey" },
	{ "dereg_mr", dereg_mr, "mr", "" },
	{ "rereg_mr", rereg_mr, "mr flags pd addr len access", "lkey rkey; code on failure" },
	{ "alloc_mw", alloc_mw, "pd type", "handle rkey" },
	{ "dealloc_mw", dealloc_mw, "mw", "" },
	{ "bind_mw", bind_mw, "qp mw mr addr len access id flags", "rkey" },
	{ "create_ah", create_ah, "pd port grh dgid sgid fl tc hop", "handle" },
	{ "destroy_ah", destroy_ah, "ah", "" },
	{ 0 },
};
