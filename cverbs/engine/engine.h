/* engine.h: the calls of the Go engine for the C libraries.
 *
 * libibverbs.so.1 and librdmacm.so.1 are thin: they have the structures that programs see, and enforce the
  * rules that need no device. libroce-engine.so has the devices. The libraries load it when a program first
  * asks for devices, and look up roce_engine(), which returns the table of calls below. After a fork the child
  * loads another copy, because a Go runtime does not survive fork. struct roce_host describes the process to
  * the engine.
 *
 * Rules:
 *  - Calls return 0, or a negative errno. Those that create return the object in *out.
 *  - An object is a handle: the number of a slot and how often the slot was used. 0 is none. A handle
  *    that was never given out, was closed, or is of another kind gives -EINVAL, never a crash.
 *  - Numbers are in the byte order of the host unless said otherwise. Structures have no size member:
  *    both sides are built from this file, and ROCE_ENGINE_ABI proves it.
 *  - Values of enumerations (states, opcodes, statuses, events, access flags, types of queue pairs)
 *    are those of <infiniband/verbs.h> and <rdma/rdma_cma.h>.
 *  - The engine uses a program's memory in place. Inaccessible memory gives an error completion
  *    (LOC_PROT_ERR) or a NAK, not a signal.
 *  - Any thread may make any call.
 */
#ifndef ROCE_ENGINE_H
#define ROCE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define ROCE_ENGINE_ABI 3

typedef uint32_t roce_handle;

/* Tells the library whether it may collect work requests: see post_send. It lives as long as the process. */
struct roce_collecting {
	uint32_t on;      /* 1: it may */
	uint32_t reserved;
	int64_t until;    /* but not begin after this time, on the clock of collecting() */
	uint64_t front_end; /* for the library; 0 at first */
};

/* Describes the process to an engine when it is loaded. */
struct roce_host {
	uint32_t abi;      /* ROCE_ENGINE_ABI of the library that loads it */
	uint32_t instance; /* 0: the first of this process tree, 1 and so on: after a fork */
	/* Posts the work requests that were collected for the queue pairs of a shard; NULL: of all shards. The engine calls it when the
	 * program polls no more. It does not wait: what another thread is posting, that thread posts. */
	void (*hand_over)(struct roce_collecting *shard);
};

struct roce_gid {
	uint8_t raw[16];
	uint32_t type;    /* 2: RoCE v2; 0xffffffff: the entry is empty */
	uint32_t ifindex;
};

struct roce_device_info {
	char name[64];   /* roce0 */
	char netdev[16]; /* of which interface, "" if of none */
	uint64_t guid;   /* host order; struct ibv_device and queries have it in network order */
};

/* struct ibv_device_attr and the additions of ibv_query_device_ex. 0: the device does not support it. */
struct roce_device_attr {
	uint64_t node_guid, max_mr_size, page_size_cap, device_cap_flags, device_cap_flags_ex;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
		max_res_rd_atom, max_qp_init_rd_atom, max_mw, max_mcast_grp, max_mcast_qp_attach,
		max_total_mcast_qp_attach, max_ah, max_srq, max_srq_wr, max_srq_sge, max_inline_data,
		max_xrcd, comp_vectors;
	uint32_t atomic_cap; /* enum ibv_atomic_cap */
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
	uint64_t max_dm_size;
	char fw_ver[64];
};

struct roce_port_attr {
	uint32_t state, phys_state, max_mtu, active_mtu, max_msg_sz, port_cap_flags, gid_tbl_len;
	uint32_t active_speed, active_width;
	uint16_t pkey_tbl_len;
	uint8_t link_layer;
};

struct roce_sge { /* struct ibv_sge */
	uint64_t addr;
	uint32_t length, lkey;
};

/* Work requests. The elements point to inline data; their keys are ignored. */
struct roce_send_wr {
	uint64_t wr_id;
	const struct roce_sge *sg;
	int32_t num_sge;
	uint32_t opcode; /* enum ibv_wr_opcode; 14 FLUSH and 15 ATOMIC_WRITE are in newer headers only */
	uint32_t flags;  /* enum ibv_send_flags */
	uint32_t imm;    /* immediate in network order, as in struct ibv_send_wr; key to invalidate in host order */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t srqn;        /* XRC */
	uint64_t compare_add, swap;
	uint64_t atomic_write; /* the 8 bytes of ATOMIC_WRITE as they lie in memory */
	roce_handle ah;       /* UD */
	uint32_t remote_qpn, remote_qkey;
	roce_handle mw, mr;   /* BIND_MW */
	uint32_t new_rkey;    /* BIND_MW of type 2 */
	uint32_t bind_access;
	uint64_t bind_addr, bind_length;
	uint32_t flush_type, flush_level; /* FLUSH: enum ibv_flush_type bits, enum ibv_selectivity_level */
	uint64_t flush_length;            /* FLUSH: its range is remote_addr, rkey and this */
};

struct roce_recv_wr {
	uint64_t wr_id;
	const struct roce_sge *sg;
	int32_t num_sge;
	uint32_t reserved;
};

struct roce_wc { /* the layout of struct ibv_wc */
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len;
	uint32_t imm; /* network order; with IBV_WC_WITH_INV: the key, host order */
	uint32_t qp_num, src_qp, wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct roce_caps { /* struct ibv_qp_cap */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct roce_ah_attr { /* struct ibv_ah_attr */
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class, is_global, sl, src_path_bits, static_rate, port_num;
	uint16_t dlid;
};

struct roce_qp_attr { /* struct ibv_qp_attr */
	uint32_t qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, access;
	struct roce_caps cap;
	struct roce_ah_attr ah, alt_ah;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num,
		timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

/* Receives of a queue pair that the program posts without a call, in memory that the library shares with the engine. While the
 * ring is open, and `added` is less than recv_slots more than `taken` and less than max_recv_wr more than `done`, the library may put a
 * receive into slot `added`, and add 1 to `added`. Then it looks again whether the ring is open. If it is
 * not, the library calls post_recv with n = 0. The engine takes the receives in order, and those that are posted by post_recv after those
 * of the ring. The library adds none during post_recv. The engine does not use the ring after destroy_qp. */
struct roce_recv_slot {
	uint64_t wr_id;
	struct roce_sge sge;
	uint32_t num_sge; /* 0 or 1 */
	uint32_t reserved;
};

struct roce_recv_ring {
	_Alignas(64) uint32_t open; /* 1: the queue pair is not in RESET or ERR. The engine writes it */
	uint32_t taken;             /* how many receives the engine has taken */
	uint32_t done;              /* how many receives have ended, less those that were posted by post_recv */
	uint32_t engines[13];
	uint32_t added;             /* how many the library has added */
	uint32_t librarys[15];
	struct roce_recv_slot slots[];
};

struct roce_qp_init { /* struct ibv_qp_init_attr(_ex) */
	roce_handle pd, send_cq, recv_cq, srq, xrcd;
	struct roce_caps cap;
	uint32_t type; /* enum ibv_qp_type */
	uint32_t sq_sig_all;
	uint32_t create_flags;   /* enum ibv_qp_create_flags */
	uint32_t max_send_opaque; /* 0 */
	uint64_t cookie;         /* comes back in events */
	struct roce_recv_ring *recv_ring; /* of RC and UC without srq; NULL: none */
	uint64_t recv_slots;              /* a power of two */
};

struct roce_srq_init {
	roce_handle pd, xrcd, cq;  /* xrcd and cq: of XRC queues */
	uint32_t type;             /* enum ibv_srq_type: BASIC or XRC */
	uint32_t max_wr, max_sge, limit;
	uint64_t cookie;
};

struct roce_mr_info {
	uint64_t addr;
	uint64_t length;
	uint32_t lkey, rkey;
};

/* An asynchronous event. The type says which kind of object it is about; cookie is the object's. */
struct roce_event {
	uint32_t type; /* enum ibv_event_type */
	uint32_t port;
	uint64_t cookie;
};

struct roce_rereg {
	uint32_t flags; /* enum ibv_rereg_mr_flags */
	roce_handle pd;
	uint64_t addr, length, iova; /* iova: addr for ibv_rereg_mr */
	uint32_t access;
};

struct roce_cm_engine; /* cm.h: connections, for librdmacm */
struct roce_rs_engine; /* rs.h: rsockets, for librdmacm */

struct roce_engine {
	uint32_t abi, size;

	/* Devices. devices fills up to n entries and returns how many there are; it opens none. Opening the
	 * same one again gives another context of the same device. notify_fd is an eventfd of EFD_SEMAPHORE: the
	  * engine adds 1 for each asynchronous event, and takes 1 away for each event that it drops with its
	  * object. -1: the program takes no events. */
	int (*devices)(struct roce_device_info *list, int n);
	int (*open)(const char *name, int notify_fd, roce_handle *ctx);
	int (*close)(roce_handle ctx);
	/* exiting is called when the process exits: it disconnects from the peers of connections, waits a moment for
	 * their answers, and finishes captures. From then on calls of other threads fail. */
	void (*exiting)(void);
	int (*query_device)(roce_handle ctx, struct roce_device_attr *out);
	int (*query_port)(roce_handle ctx, uint32_t port, struct roce_port_attr *out);
	int (*query_gid)(roce_handle ctx, uint32_t port, uint32_t index, struct roce_gid *out);
	int (*query_pkey)(roce_handle ctx, uint32_t port, uint32_t index, uint16_t *pkey); /* host order */
	int (*next_event)(roce_handle ctx, struct roce_event *out); /* -EAGAIN: there is none */

	/* Domains and memory. A memory region is n bytes from addr on; peers and work requests address
	 * its first byte as iova. */
	int (*alloc_pd)(roce_handle ctx, roce_handle *out);
	int (*dealloc_pd)(roce_handle pd);
	int (*reg_mr)(roce_handle pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, roce_handle *out, struct roce_mr_info *info);
	int (*reg_null_mr)(roce_handle pd, roce_handle *out, struct roce_mr_info *info); /* reads zeros, writes go nowhere */
	int (*rereg_mr)(roce_handle mr, const struct roce_rereg *how, struct roce_mr_info *info);
	int (*dereg_mr)(roce_handle mr);
	int (*alloc_mw)(roce_handle pd, uint32_t type, roce_handle *out, uint32_t *rkey);
	int (*dealloc_mw)(roce_handle mw);
	int (*mw_rkey)(roce_handle mw, uint32_t *rkey); /* the key of the last posted bind */
	/* bind_mw is ibv_bind_mw: of type 1, by a work request of the queue pair. */
	int (*bind_mw)(roce_handle qp, const struct roce_send_wr *wr, uint32_t *rkey);

	/* Completions. notify_fd of a channel is an eventfd: 1 for each event. channel_event returns the
	 * cookie of the queue that raised the oldest event, -EAGAIN if there is none. */
	int (*create_channel)(roce_handle ctx, int notify_fd, roce_handle *out);
	int (*destroy_channel)(roce_handle channel);
	int (*channel_event)(roce_handle channel, uint64_t *cookie);
	int (*create_cq)(roce_handle ctx, uint32_t cqe, roce_handle channel, uint32_t vector, uint64_t cookie, roce_handle *out, uint32_t *got);
	int (*resize_cq)(roce_handle cq, uint32_t cqe, uint32_t *got);
	int (*destroy_cq)(roce_handle cq);
	int (*poll_cq)(roce_handle cq, struct roce_wc *wcs, int n); /* how many, or a negative errno */
	int (*req_notify_cq)(roce_handle cq, int solicited_only);
	/* The structure for the queue pairs of a completion queue, and the present time in ns; NULL: no work requests may be collected. */
	struct roce_collecting *(*collecting)(roce_handle cq, int64_t *now);

	/* Shared receive queues and XRC domains. */
	int (*create_srq)(roce_handle ctx, struct roce_srq_init *init, roce_handle *out, uint32_t *srqn);
	int (*modify_srq)(roce_handle srq, uint32_t mask, uint32_t max_wr, uint32_t limit); /* enum ibv_srq_attr_mask */
	int (*query_srq)(roce_handle srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit);
	int (*destroy_srq)(roce_handle srq);
	int (*post_srq_recv)(roce_handle srq, const struct roce_recv_wr *wrs, int n, int *posted);
	int (*open_xrcd)(roce_handle ctx, int fd, int oflags, roce_handle *out); /* fd -1: of this process alone */
	int (*close_xrcd)(roce_handle xrcd);

	/* Queue pairs. create_qp writes the granted sizes to init->cap. */
	int (*create_qp)(roce_handle ctx, struct roce_qp_init *init, roce_handle *out, uint32_t *qpn);
	int (*open_qp)(roce_handle xrcd, uint32_t qpn, uint64_t cookie, roce_handle *out);
	int (*modify_qp)(roce_handle qp, const struct roce_qp_attr *attr, uint32_t mask); /* enum ibv_qp_attr_mask */
	int (*query_qp)(roce_handle qp, struct roce_qp_attr *attr, struct roce_caps *caps);
	int (*destroy_qp)(roce_handle qp);
	/* A call of post_send costs more than a short SEND. So the library may collect work requests of a program that polls, and post
	 * them later: up to *room after the last call, which are sure to be accepted, and as long as collecting of its completion
	 * queues allows it. It posts them before the next poll_cq of such a queue, before other work requests of the queue pair, and
	 * when hand_over is called. After it has added one to those it has, it reads `on` again, and posts them if it is 0. calls is
	 * how many calls of the program the list stands for: 1, or how many were collected. */
	int (*post_send)(roce_handle qp, const struct roce_send_wr *wrs, int n, int calls, int *posted, int *room);
	int (*post_recv)(roce_handle qp, const struct roce_recv_wr *wrs, int n, int *posted); /* n = 0: see struct roce_recv_ring */
	int (*attach_mcast)(roce_handle qp, const uint8_t gid[16]);
	int (*detach_mcast)(roce_handle qp, const uint8_t gid[16]);
	int (*create_ah)(roce_handle pd, const struct roce_ah_attr *attr, roce_handle *out); /* may wait for a neighbour */
	int (*destroy_ah)(roce_handle ah);

	const struct roce_cm_engine *cm;
	const struct roce_rs_engine *rs; /* streams */
	const struct roce_rs_engine *ds; /* datagrams */
};

/* The only symbol of libroce-engine.so. NULL: the engine and host have different ABIs. */
const struct roce_engine *roce_engine(const struct roce_host *host);

#endif
