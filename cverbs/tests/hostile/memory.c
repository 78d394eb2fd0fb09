/* memory.c: memory of regions is unmapped during transfers.
 *
 *	memory target	the target of WRITEs is unmapped, and mapped again
 *	memory source	the source is unmapped while posted work requests still use it
 *	memory file	the target is a file that gets shorter: SIGBUS, not SIGSEGV
 *	memory reuse	the target is unmapped, and the engine needs more memory: it maps none at the target's addresses */

#include "rig.h"

static struct end a, b;

static void again(void)
{
	static const struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct end *ends[] = {&a, &b};
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = reset;

		CHECK(!ibv_modify_qp(ends[i]->qp, &attr, IBV_QP_STATE));
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
		CHECK(!ibv_modify_qp(ends[i]->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		while (ibv_poll_cq(ends[i]->cq, 1, &wc) > 0)
			;
	}
	join(&a, &b);
	join(&b, &a);
}

static void map(struct end *e)
{
	CHECK(mmap(e->buf, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == e->buf);
}

static void target(void)
{
	for (int i = 0; i < 20; i++) {
		enum ibv_wc_status s = IBV_WC_SUCCESS;

		for (int n = 0; n < DEPTH; n++)
			CHECK(!transfer(&a, &b, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, SIZE));
		munmap(b.buf + SIZE / 2, SIZE / 2);
		for (int n = 0; n < DEPTH; n++)
			if (s == IBV_WC_SUCCESS)
				s = outcome(&a);
			else
				outcome(&a);
		if (s == IBV_WC_SUCCESS) { /* all data were transferred before */
			CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE));
			s = outcome(&a);
		}
		if (s != IBV_WC_REM_ACCESS_ERR && s != IBV_WC_REM_OP_ERR)
			fprintf(stderr, "status %s\n", ibv_wc_status_str(s));
		CHECK(s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_REM_OP_ERR);
		map(&b);
		again();
		memset(a.buf, i, SIZE);
		CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS && b.buf[SIZE - 1] == (char)i);
	}
}

static void source(void)
{
	for (int i = 0; i < 20; i++) {
		enum ibv_wc_status s = IBV_WC_SUCCESS;

		for (int n = 0; n < DEPTH; n++)
			CHECK(!transfer(&a, &b, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, SIZE));
		munmap(a.buf + SIZE / 2, SIZE / 2);
		for (int n = 0; n < DEPTH; n++)
			if (s == IBV_WC_SUCCESS)
				s = outcome(&a);
			else
				outcome(&a);
		if (s == IBV_WC_SUCCESS) {
			CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE));
			s = outcome(&a);
		}
		if (s != IBV_WC_LOC_PROT_ERR)
			fprintf(stderr, "status %s\n", ibv_wc_status_str(s));
		CHECK(s == IBV_WC_LOC_PROT_ERR);
		map(&a);
		again();
		CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS);
	}
}

static void file(void)
{
	int fd = memfd_create("target", MFD_CLOEXEC);
	enum ibv_wc_status s;

	CHECK(fd >= 0 && !ftruncate(fd, SIZE));
	CHECK(mmap(b.buf, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == b.buf);
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS);
	CHECK(!ftruncate(fd, 4096));
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE));
	s = outcome(&a);
	CHECK(s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_REM_OP_ERR);
	CHECK(!ftruncate(fd, SIZE));
	again();
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS);
}

/* Fails if anything is mapped in [at, at+size). */
static void check_free(const char *at, size_t size)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		char *from, *to;

		CHECK(sscanf(line, "%p-%p", (void **)&from, (void **)&to) == 2);
		if (from < at + size && to > at) {
			fprintf(stderr, "the place of %zu unmapped bytes at %p has %s", size, (const void *)at, line);
			_exit(1);
		}
	}
	fclose(maps);
}

/* Makes the engine allocate: bookkeeping of its heap, and threads. */
static void make_engine_grow(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	static char page[4096];

	for (int i = 0; i < 8; i++) {
		struct ibv_context *c = ibv_open_device(list[i % 2]);
		struct ibv_pd *pd = ibv_alloc_pd(c);

		CHECK(c && pd);
		for (int n = 0; n < 100; n++) {
			struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {256, 256, 4, 4, 256}};

			CHECK((init.send_cq = init.recv_cq = ibv_create_cq(c, 4096, NULL, NULL, 0)) && ibv_create_qp(pd, &init));
			CHECK(ibv_reg_mr(pd, page, sizeof page, IBV_ACCESS_LOCAL_WRITE));
		}
	}
	ibv_free_device_list(list);
}

/* The pages around each region stay mapped: otherwise an arena of malloc, which takes 64 MiB, would fit into the
 * free space. */
static void reuse(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	static const size_t sizes[] = {4 << 10, 64 << 10, 256 << 10, 1 << 20, 9 << 20, 16 << 20, 48 << 20};
	enum { KINDS = sizeof sizes / sizeof *sizes, EACH = 4 };
	struct ibv_mr *regions[KINDS * EACH];

	for (int i = 0; i < KINDS * EACH; i++) {
		size_t size = sizes[i % KINDS];
		char *m = mmap(NULL, size + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		CHECK(m != MAP_FAILED);
		CHECK((regions[i] = ibv_reg_mr(b.pd, m + page, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	}
	for (int i = 0; i < KINDS * EACH; i++)
		munmap(regions[i]->addr, regions[i]->length);
	make_engine_grow();
	for (int i = 0; i < KINDS * EACH; i++) {
		struct end target = {.mr = regions[i]};
		enum ibv_wc_status s;

		check_free(regions[i]->addr, regions[i]->length);
		CHECK(!transfer(&a, &target, IBV_WR_RDMA_WRITE, 4096));
		s = outcome(&a);
		CHECK(s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_REM_OP_ERR);
		again();
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {{"target", target}, {"source", source}, {"file", file}, {"reuse", reuse}};

	CHECK(argc == 2);
	both(&a, &b);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (!strcmp(argv[1], ways[i].name)) {
			ways[i].run();
			return 0;
		}
	return 2;
}
