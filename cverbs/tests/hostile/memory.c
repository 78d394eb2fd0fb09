/* memory.c: memory of regions goes away while data moves.
 *
 *	memory target	the target of WRITEs is unmapped, and mapped again
 *	memory source	the source is unmapped behind what was posted
 *	memory file	the target is a file that gets shorter: SIGBUS, not SIGSEGV */

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
		if (s == IBV_WC_SUCCESS) { /* all had passed before */
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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {{"target", target}, {"source", source}, {"file", file}};

	CHECK(argc == 2);
	both(&a, &b);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (!strcmp(argv[1], ways[i].name)) {
			ways[i].run();
			return 0;
		}
	return 2;
}
