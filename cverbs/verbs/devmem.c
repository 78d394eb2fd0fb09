/* devmem.c: device memory. This device is software, so device memory is memory of the process. This file has
 * the interface: copies in and out, and regions that begin at address 0. */
#include "front.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
	LOG_PAGE = 12,
	WORD = 4, /* copies are of whole words, as on adapters; test programs ask for the errno */
};

static size_t whole_pages(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) & ~(page - 1);
}

static bool inside(const struct roce_dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->length && length <= dm->length - offset;
}

static bool can_copy(struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return roce_known(dm, ROCE_DM) && !(offset % WORD) && !(length % WORD) && inside(to_dm(dm), offset, length);
}

static int memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	if (!can_copy(dm, offset, length))
		return roce_err(EINVAL);
	memcpy(to_dm(dm)->memory + offset, from, length);
	return 0;
}

static int memcpy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	if (!can_copy(dm, offset, length))
		return roce_err(EINVAL);
	memcpy(to, to_dm(dm)->memory + offset, length);
	return 0;
}

/* Charges the context's limit, which stands for the limited memory of an adapter. */
static bool take(struct roce_context *c, size_t length)
{
	size_t left = c->dm_left;

	do {
		if (length > left)
			return false;
	} while (!atomic_compare_exchange_weak(&c->dm_left, &left, left - length));
	return true;
}

static void give_back(struct roce_context *c, size_t length)
{
	c->dm_left += length;
}

struct ibv_dm *roce_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct roce_dm *dm;
	/* No engine is needed, so a child of a fork can use a context from before the fork. */
	int r = roce_known(context, ROCE_CONTEXT) ? 0 : EINVAL;

	if (!r && (!attr || attr->comp_mask || !attr->length))
		r = EINVAL;
	if (!r && (attr->log_align_req > LOG_PAGE || !take(to_context(context), attr->length)))
		r = ENOMEM;
	if (r)
		return roce_null(r);
	dm = calloc(1, sizeof *dm);
	if (!dm)
		goto no_memory;
	dm->length = attr->length;
	dm->memory = mmap(NULL, whole_pages(dm->length), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (dm->memory == MAP_FAILED)
		goto no_memory;
	if (!roce_enter(&dm->dm, ROCE_DM, context)) {
		munmap(dm->memory, whole_pages(dm->length));
		goto no_memory;
	}
	dm->dm.context = context;
	dm->dm.memcpy_to_dm = memcpy_to_dm;
	dm->dm.memcpy_from_dm = memcpy_from_dm;
	return &dm->dm;
no_memory:
	free(dm);
	give_back(to_context(context), attr->length);
	return roce_null(ENOMEM);
}

int roce_free_dm(struct ibv_dm *ibdm)
{
	struct roce_dm *dm = to_dm(ibdm);
	int r = roce_known(ibdm, ROCE_DM) ? 0 : EINVAL;

	if (!r && dm->users)
		r = EBUSY;
	if (r)
		return roce_err(r);
	roce_remove(ibdm);
	munmap(dm->memory, whole_pages(dm->length));
	give_back(to_context(ibdm->context), dm->length);
	free(dm);
	return 0;
}

struct ibv_mr *roce_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm, uint64_t offset, size_t length, unsigned int access)
{
	struct roce_dm *dm = to_dm(ibdm);
	int r = roce_check(ibdm, ROCE_DM);

	if (!r)
		r = roce_check_in(ibdm->context, pd, ROCE_PD);
	/* Addresses always count from the start of the region. */
	if (!r && (!inside(dm, offset, length) || !(access & IBV_ACCESS_ZERO_BASED)))
		r = EINVAL;
	if (r)
		return roce_null(r);
	return roce_reg_mr(pd, (uintptr_t)(dm->memory + offset), length, 0, access, dm);
}
