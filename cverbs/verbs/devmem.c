/* devmem.c: device memory. This device is a program, so its memory is the program's. What remains
 * is the interface: copies in and out, and regions that begin at address 0. */
#include "front.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t whole_pages(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) & ~(page - 1);
}

static bool inside(const struct roce_dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->length && length <= dm->length - offset;
}

static int memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	if (!roce_known(dm, ROCE_DM) || !inside(to_dm(dm), offset, length))
		return roce_err(EINVAL);
	memcpy(to_dm(dm)->memory + offset, from, length);
	return 0;
}

static int memcpy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	if (!roce_known(dm, ROCE_DM) || !inside(to_dm(dm), offset, length))
		return roce_err(EINVAL);
	memcpy(to, to_dm(dm)->memory + offset, length);
	return 0;
}

struct ibv_dm *roce_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct roce_device_attr limits;
	struct roce_dm *dm;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || attr->comp_mask || !attr->length))
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_device(handle_of(context), &limits);
	if (!r && !limits.max_dm_size)
		r = EOPNOTSUPP;
	if (!r && (attr->length > limits.max_dm_size || (attr->log_align_req && attr->log_align_req > 12)))
		r = ENOMEM;
	if (r)
		return roce_null(r);
	dm = calloc(1, sizeof *dm);
	if (!dm)
		return roce_null(ENOMEM);
	dm->length = attr->length;
	dm->memory = mmap(NULL, whole_pages(dm->length), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (dm->memory == MAP_FAILED) {
		free(dm);
		return roce_null(ENOMEM);
	}
	if (!roce_enter(&dm->dm, ROCE_DM, context)) {
		munmap(dm->memory, whole_pages(dm->length));
		free(dm);
		return roce_null(ENOMEM);
	}
	dm->dm.context = context;
	dm->dm.memcpy_to_dm = memcpy_to_dm;
	dm->dm.memcpy_from_dm = memcpy_from_dm;
	return &dm->dm;
}

int roce_free_dm(struct ibv_dm *ibdm)
{
	struct roce_dm *dm = to_dm(ibdm);
	int r = roce_check(ibdm, ROCE_DM);

	if (!r && dm->users)
		r = EBUSY;
	if (r)
		return roce_err(r);
	roce_remove(ibdm);
	munmap(dm->memory, whole_pages(dm->length));
	free(dm);
	return 0;
}

struct ibv_mr *roce_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm, uint64_t offset, size_t length, unsigned int access)
{
	struct roce_dm *dm = to_dm(ibdm);
	int r = roce_check(ibdm, ROCE_DM);

	/* There is no other address than from the start of the region on. */
	if (!r && (!inside(dm, offset, length) || !(access & IBV_ACCESS_ZERO_BASED)))
		r = EINVAL;
	if (r)
		return roce_null(r);
	return roce_reg_mr(pd, (uintptr_t)(dm->memory + offset), length, 0, access & ~(unsigned int)IBV_ACCESS_ZERO_BASED, dm);
}
