/* cm.h: the calls of the engine's connection manager for librdmacm.so.1.
 *
 * The calls replace the kernel's rdma_ucm: they know addresses, routes and connections, and no queue pair.
  * libibverbs makes the program's queue pair; connect and accept name its number, and librdmacm moves it
  * through its states with the attributes of init_qp_attr. All calls are asynchronous: the outcome is an
  * event of a channel.
 *
 * The rules of engine.h apply. Structures named like one of <rdma/rdma_cma.h> have its meaning, as have
  * addresses and ports.
 */
#ifndef ROCE_CM_H
#define ROCE_CM_H

#include "engine.h"

struct roce_cm_addr {
	uint8_t addr[16];  /* network order; of IPv4 the first 4 bytes */
	uint32_t scope_id; /* of a link-local address, 0: none */
	uint16_t port;     /* host order */
	uint16_t family;   /* 4 or 6; 0: no address */
};

/* The device and addresses of an identifier. Before a route is known, dgid and the members after it are 0. */
struct roce_cm_info {
	char device[64]; /* "": none */
	struct roce_cm_addr src, dst;
	uint8_t sgid[16], dgid[16];
	uint32_t flow_label;
	uint32_t qp_type;
	uint16_t pkey; /* host order */
	uint8_t traffic_class, hop_limit;
	uint8_t mtu;              /* enum ibv_mtu */
	uint8_t packet_life_time; /* as in a path record: 4.096 us * 2^n */
};

/* struct rdma_conn_param */
struct roce_cm_param {
	const void *private_data;
	uint32_t qp_num;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
};

/* struct rdma_cm_event, with the data that its parameters point to. */
struct roce_cm_event {
	uint64_t cookie;    /* of the identifier; of a CONNECT_REQUEST, of the listener */
	uint64_t group;     /* of MULTICAST_JOIN and MULTICAST_ERROR: the cookie of join */
	roce_handle child;  /* of CONNECT_REQUEST: the new identifier. Its events have cookie 0 until set_cookie */
	uint32_t type;      /* enum rdma_cm_event_type */
	int32_t status;
	uint32_t is_ud;     /* 1: qp_num, qkey and ah are valid, for param.ud */
	uint32_t qp_num, qkey;
	struct roce_ah_attr ah;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint8_t private_data_len;
	uint8_t private_data[255];
};

/* Options of set_option: RDMA_OPTION_ID_*. */
enum roce_cm_option { ROCE_CM_TOS, ROCE_CM_REUSEADDR, ROCE_CM_AFONLY, ROCE_CM_ACK_TIMEOUT };

struct roce_cm_engine {
	uint32_t size;

	/* Event channels. notify_fd is an eventfd of EFD_SEMAPHORE: the engine adds 1 for an event, and takes 1 away
	 * when it drops an event. next_event returns -EAGAIN if there is no event. */
	int (*create_channel)(int notify_fd, roce_handle *out);
	int (*destroy_channel)(roce_handle channel);
	int (*next_event)(roce_handle channel, struct roce_cm_event *out);

	/* Identifiers. destroy_id drops the events that were not taken: next_event returns no more events of the
	 * identifier. */
	int (*create_id)(roce_handle channel, uint64_t cookie, uint32_t ps, uint32_t qp_type, roce_handle *out);
	int (*set_cookie)(roce_handle id, uint64_t cookie);
	int (*migrate_id)(roce_handle id, roce_handle channel);
	int (*destroy_id)(roce_handle id);
	int (*query_id)(roce_handle id, struct roce_cm_info *out);
	int (*set_option)(roce_handle id, uint32_t option, uint32_t value);

	/* Addresses. src may be NULL. */
	int (*bind_addr)(roce_handle id, const struct roce_cm_addr *addr);
	int (*resolve_addr)(roce_handle id, const struct roce_cm_addr *src, const struct roce_cm_addr *dst, int timeout_ms);
	int (*resolve_route)(roce_handle id, int timeout_ms);

	/* Connections. A NULL param of connect and accept is not allowed. reason is one of REJ messages.
	 * init_qp_attr fills in the attributes for state attr->qp_state: INIT, RTR or RTS. */
	int (*listen)(roce_handle id, int backlog);
	int (*connect)(roce_handle id, const struct roce_cm_param *param);
	int (*accept)(roce_handle id, const struct roce_cm_param *param);
	int (*reject)(roce_handle id, uint32_t reason, const void *private_data, uint32_t length);
	int (*establish)(roce_handle id);
	int (*notify)(roce_handle id, uint32_t event); /* enum ibv_event_type */
	int (*disconnect)(roce_handle id);
	int (*init_qp_attr)(roce_handle id, struct roce_qp_attr *attr, uint32_t *mask);

	/* Multicast groups: librdmacm attaches the queue pair when the event comes. */
	int (*join)(roce_handle id, const struct roce_cm_addr *group, uint32_t send_only, uint64_t cookie);
	int (*leave)(roce_handle id, const struct roce_cm_addr *group);
};

#endif
