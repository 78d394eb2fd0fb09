/* memory.c: protection domains, thread domains, and memory regions. */
#include "front.h"

/* ---- protection domains ---- */

static struct ibv_pd *enter_pd(struct roce_pd *pd, struct ibv_context *context)
{
	pd->pd.context = context;
	pd->generation = roce_generation;
	return roce_enter(&pd->pd, ROCE_PD, context) ? &pd->pd : NULL;
}

void roce_use_pd(struct ibv_pd *pd)
{
	if (pd)
		to_pd(pd)->users++;
}

void roce_leave_pd(struct ibv_pd *pd)
{
	if (pd)
		to_pd(pd)->users--;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct roce_pd *pd;
	int r = roce_check(context, ROCE_CONTEXT);

	if (r)
		return roce_null(r);
	pd = calloc(1, sizeof *pd);
	if (!pd)
		return roce_null(ENOMEM);
	r = -roce_engine_table->alloc_pd(handle_of(context), &pd->pd.handle);
	if (!r && !enter_pd(pd, context)) {
		roce_engine_table->dealloc_pd(pd->pd.handle);
		r = ENOMEM;
	}
	if (r) {
		free(pd);
		return roce_null(r);
	}
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct roce_pd *pd = to_pd(ibpd);
	int r = roce_check(ibpd, ROCE_PD);

	if (!r && pd->users)
		r = EBUSY;
	if (!r && !pd->parent)
		r = -roce_engine_table->dealloc_pd(ibpd->handle);
	if (r)
		return roce_err(r);
	if (pd->parent)
		roce_leave_pd(&pd->parent->pd);
	if (pd->td)
		pd->td->users--;
	roce_remove(ibpd);
	free(pd);
	return 0;
}

/* A thread domain promises that only one thread uses its objects. The engine gains nothing from this, so a parent
 * domain is another name of its protection domain. Its allocators are never called: they are for queues in
 * the program's memory, and the engine's queues are not there. */
struct ibv_td *roce_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct roce_td *td;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask))
		r = EINVAL;
	if (r)
		return roce_null(r);
	td = calloc(1, sizeof *td);
	if (!td || !roce_enter(&td->td, ROCE_TD, context)) {
		free(td);
		return roce_null(ENOMEM);
	}
	td->td.context = context;
	return &td->td;
}

int roce_dealloc_td(struct ibv_td *td)
{
	int r = roce_check(td, ROCE_TD);

	if (!r && to_td(td)->users)
		r = EBUSY;
	if (r)
		return roce_err(r);
	roce_remove(td);
	free(to_td(td));
	return 0;
}

struct ibv_pd *roce_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t all = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct roce_pd *pd;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask & ~all))
		r = EINVAL;
	if (!r)
		r = roce_check_in(context, attr->pd, ROCE_PD);
	if (!r && attr->td)
		r = roce_check_in(context, attr->td, ROCE_TD);
	if (r)
		return roce_null(r);
	pd = calloc(1, sizeof *pd);
	if (!pd)
		return roce_null(ENOMEM);
	pd->pd.handle = attr->pd->handle;
	if (!enter_pd(pd, context)) {
		free(pd);
		return roce_null(ENOMEM);
	}
	pd->parent = to_pd(attr->pd);
	roce_use_pd(attr->pd);
	if (attr->td) {
		pd->td = to_td(attr->td);
		pd->td->users++;
	}
	return &pd->pd;
}

/* ---- memory regions ---- */

static struct ibv_mr *enter_mr(struct roce_mr *mr, struct ibv_pd *pd, const struct roce_mr_info *info, void *addr, size_t length)
{
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;
	mr->mr.lkey = info->lkey;
	mr->mr.rkey = info->rkey;
	if (roce_enter(&mr->mr, ROCE_MR, pd->context)) {
		roce_use_pd(pd);
		return &mr->mr;
	}
	roce_engine_table->dereg_mr(mr->mr.handle);
	free(mr);
	return roce_null(ENOMEM);
}

/* Registers n bytes at addr that peers address from iova on. dm is the device memory of addr, or NULL. */
struct ibv_mr *roce_reg_mr(struct ibv_pd *pd, uint64_t addr, size_t length, uint64_t iova, unsigned int access, struct roce_dm *dm)
{
	struct roce_mr_info info;
	struct roce_mr *mr;
	int r = roce_check(pd, ROCE_PD);

	if (r)
		return roce_null(r);
	mr = calloc(1, sizeof *mr);
	if (!mr)
		return roce_null(ENOMEM);
	roce_faults_check();
	/* Bits of the optional range are hints, which a device may ignore. */
	if (length || !dm)
		r = -roce_engine_table->reg_mr(pd->handle, addr, length, iova, access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE, &mr->mr.handle, &info);
	else /* programs register 0 bytes of device memory; key 0 grants no access */
		info = (struct roce_mr_info){0};
	if (r) {
		free(mr);
		return roce_null(r);
	}
	mr->dm = dm;
	if (!enter_mr(mr, pd, &info, dm ? NULL : (void *)(uintptr_t)addr, length))
		return NULL;
	if (dm)
		dm->users++;
	return &mr->mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return roce_reg_mr(pd, (uintptr_t)addr, length, (uintptr_t)addr, (unsigned int)access, NULL);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return roce_reg_mr(pd, (uintptr_t)addr, length, iova, (unsigned int)access, NULL);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return roce_reg_mr(pd, (uintptr_t)addr, length, iova, access, NULL);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)offset, (void)length, (void)iova, (void)fd, (void)access;
	return roce_null(roce_known(pd, ROCE_PD) ? EOPNOTSUPP : EINVAL);
}

struct ibv_mr *roce_alloc_null_mr(struct ibv_pd *pd)
{
	struct roce_mr_info info;
	struct roce_mr *mr;
	int r = roce_check(pd, ROCE_PD);

	if (r)
		return roce_null(r);
	mr = calloc(1, sizeof *mr);
	if (!mr)
		return roce_null(ENOMEM);
	r = -roce_engine_table->reg_null_mr(pd->handle, &mr->mr.handle, &info);
	if (r) {
		free(mr);
		return roce_null(r);
	}
	return enter_mr(mr, pd, &info, NULL, SIZE_MAX);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct roce_rereg how = {.flags = (uint32_t)flags, .addr = (uintptr_t)addr, .iova = (uintptr_t)addr, .length = length, .access = (uint32_t)access & ~(uint32_t)IBV_ACCESS_OPTIONAL_RANGE};
	struct roce_mr_info info;
	int r = roce_check(mr, ROCE_MR);

	if (!r && (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		r = EINVAL;
	if (!r && flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !length || to_mr(mr)->dm))
		r = EINVAL;
	if (!r && access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		r = EINVAL;
	if (!r && flags & IBV_REREG_MR_CHANGE_PD)
		r = roce_check_in(mr->context, pd, ROCE_PD);
	if (r) {
		errno = r;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		how.pd = pd->handle;
	roce_faults_check();
	r = -roce_engine_table->rereg_mr(mr->handle, &how, &info);
	if (r) {
		errno = r;
		return IBV_REREG_MR_ERR_CMD;
	}
	mr->lkey = info.lkey;
	mr->rkey = info.rkey;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		roce_use_pd(pd);
		roce_leave_pd(mr->pd);
		mr->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int r = roce_check(mr, ROCE_MR);

	if (!r && mr->handle)
		r = -roce_engine_table->dereg_mr(mr->handle);
	if (r)
		return roce_err(r);
	if (to_mr(mr)->dm)
		to_mr(mr)->dm->users--;
	roce_leave_pd(mr->pd);
	roce_remove(mr);
	free(to_mr(mr));
	return 0;
}

/* Advice concerns memory that is paged on demand. The stack has none. */
int roce_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg, uint32_t n)
{
	(void)advice, (void)flags, (void)sg, (void)n;
	return roce_err(roce_known(pd, ROCE_PD) ? EOPNOTSUPP : EINVAL);
}

/* ---- fork ---- */

/* The kernel copies a page when parent or child writes to it, and the parent's device uses the parent's address
 * space: nothing needs to be done. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
