/* newer.h: declarations of headers of rdma-core later than 44 under names of this library, so that every
 * header gives the same library. */
#ifndef ROCE_NEWER_H
#define ROCE_NEWER_H

#include <stddef.h>
#include <stdint.h>

enum {
	ROCE_WR_FLUSH = 14,
	ROCE_WR_ATOMIC_WRITE = 15,

	ROCE_QP_EX_WITH_FLUSH = 1 << 11,
	ROCE_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,

	ROCE_EVENT_DEVICE_SPEED_CHANGE = 20,
};

/* struct ibv_mr_init_attr */
struct roce_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	void *buf;
};

enum { /* enum ibv_mr_init_attr_mask */
	ROCE_REG_MR_IOVA = 1 << 0,
	ROCE_REG_MR_ADDR = 1 << 1,
	ROCE_REG_MR_FD = 1 << 2,
	ROCE_REG_MR_FD_OFFSET = 1 << 3,
	ROCE_REG_MR_DMAH = 1 << 4,
	ROCE_REG_MR_BUF = 1 << 5,
	ROCE_REG_MR_ALL = (1 << 6) - 1,
};

/* The member after the last of struct ibv_qp_ex in rdma-core 44. */
typedef void (*roce_wr_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type, uint8_t level);

#endif
