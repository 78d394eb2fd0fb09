/* Device, port, GID and P_Key queries; asynchronous events. */
#include <arpa/inet.h>
#include <fcntl.h>

#include "agent.h"

static int query_device(struct call *c)
{
	struct ibv_device_attr_ex x = { 0 };
	const struct ibv_device_attr *a = &x.orig_attr;
	int rc = ibv_query_device_ex(ctx, NULL, &x);

	if (rc)
		return result(rc);
	put(c, "node_guid", be64toh(a->node_guid));
	put(c, "sys_image_guid", be64toh(a->sys_image_guid));
	put(c, "max_mr_size", a->max_mr_size);
	put(c, "page_size_cap", a->page_size_cap);
	put(c, "vendor_id", a->vendor_id);
	put(c, "max_qp", (uint64_t)a->max_qp);
	put(c, "max_qp_wr", (uint64_t)a->max_qp_wr);
	put(c, "cap_flags", x.device_cap_flags_ex ? x.device_cap_flags_ex : a->device_cap_flags);
	put(c, "max_sge", (uint64_t)a->max_sge);
	put(c, "max_sge_rd", (uint64_t)a->max_sge_rd);
	put(c, "max_cq", (uint64_t)a->max_cq);
	put(c, "max_cqe", (uint64_t)a->max_cqe);
	put(c, "max_mr", (uint64_t)a->max_mr);
	put(c, "max_mw", (uint64_t)a->max_mw);
	put(c, "max_pd", (uint64_t)a->max_pd);
	put(c, "max_qp_rd_atom", (uint64_t)a->max_qp_rd_atom);
	put(c, "max_qp_init_rd_atom", (uint64_t)a->max_qp_init_rd_atom);
	put(c, "atomic_cap", (uint64_t)a->atomic_cap);
	put(c, "max_ah", (uint64_t)a->max_ah);
	put(c, "max_srq", (uint64_t)a->max_srq);
	put(c, "max_srq_wr", (uint64_t)a->max_srq_wr);
	put(c, "max_srq_sge", (uint64_t)a->max_srq_sge);
	put(c, "max_mcast_grp", (uint64_t)a->max_mcast_grp);
	put(c, "max_mcast_qp_attach", (uint64_t)a->max_mcast_qp_attach);
	put(c, "max_pkeys", a->max_pkeys);
	put(c, "local_ca_ack_delay", a->local_ca_ack_delay);
	put(c, "phys_port_cnt", a->phys_port_cnt);
	put(c, "num_comp_vectors", (uint64_t)ctx->num_comp_vectors);
	put(c, "max_dm_size", x.max_dm_size);
	put(c, "odp", x.odp_caps.general_caps);
	return 0;
}

static int query_port(struct call *c)
{
	struct ibv_port_attr a;
	int rc = ibv_query_port(ctx, (uint8_t)num(c, "port"), &a);

	if (rc)
		return result(rc);
	put(c, "state", a.state);
	put(c, "max_mtu", a.max_mtu);
	put(c, "active_mtu", a.active_mtu);
	put(c, "gid_tbl_len", (uint64_t)a.gid_tbl_len);
	put(c, "pkey_tbl_len", a.pkey_tbl_len);
	put(c, "cap_flags", a.port_cap_flags);
	put(c, "max_msg_sz", a.max_msg_sz);
	put(c, "lid", a.lid);
	put(c, "phys_state", a.phys_state);
	put(c, "link_layer", a.link_layer);
	put(c, "active_width", a.active_width);
	put(c, "active_speed", a.active_speed);
	put(c, "flags", a.flags);
	return 0;
}

static int query_gid(struct call *c)
{
	union ibv_gid gid;
	int rc = ibv_query_gid(ctx, (uint8_t)num(c, "port"), (int)num(c, "index"), &gid);

	if (rc)
		return result(rc);
	put_hex(c, "gid", gid.raw, sizeof(gid.raw));
	return 0;
}

static int query_gid_ex(struct call *c)
{
	struct ibv_gid_entry e = { 0 };
	int rc = ibv_query_gid_ex(ctx, (uint32_t)num(c, "port"), (uint32_t)num(c, "index"), &e, 0);

	if (rc)
		return result(rc);
	put_hex(c, "gid", e.gid.raw, sizeof(e.gid.raw));
	put(c, "type", e.gid_type);
	put(c, "index", e.gid_index);
	return 0;
}

static int query_gid_table(struct call *c)
{
	size_t max = num(c, "max");
	struct ibv_gid_entry *e = calloc(max + 1, sizeof(*e));
	ssize_t n = ibv_query_gid_table(ctx, e, max, 0);

	for (ssize_t i = 0; i < n; i++) {
		put(c, "index", e[i].gid_index);
		put_hex(c, "gid", e[i].gid.raw, sizeof(e[i].gid.raw));
		put(c, "type", e[i].gid_type);
	}
	free(e);
	return n < 0 ? (int)-n : 0;
}

static int query_pkey(struct call *c)
{
	__be16 key;
	int rc = ibv_query_pkey(ctx, (uint8_t)num(c, "port"), (int)num(c, "index"), &key);

	if (rc)
		return result(rc);
	put(c, "pkey", ntohs(key));
	return 0;
}

static int get_pkey_index(struct call *c)
{
	int i = ibv_get_pkey_index(ctx, (uint8_t)num(c, "port"), htons((uint16_t)num(c, "pkey")));

	if (i < 0)
		return errno ? errno : ENOENT;
	put(c, "index", (uint64_t)i);
	return 0;
}

static int get_event(struct call *c)
{
	struct ibv_async_event e;
	int rc;

	fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK);
	rc = await(ctx->async_fd, num(c, "ms"));
	if (rc)
		return rc;
	if (ibv_get_async_event(ctx, &e))
		return errno;
	put(c, "type", e.event_type);
	switch (e.event_type) {
	case IBV_EVENT_CQ_ERR:
		put(c, "object", object_handle(K_CQ, e.element.cq));
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		put(c, "object", object_handle(K_SRQ, e.element.srq));
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		put(c, "object", object_handle(K_QP, e.element.qp));
		break;
	default:
		put(c, "port", (uint64_t)e.element.port_num);
	}
	ibv_ack_async_event(&e);
	return 0;
}

/* counter reads one of the device's hw_counters. */
static int counter(struct call *c)
{
	const char *name = text(c, "name");
	unsigned long long v;
	char path[256];
	FILE *f;
	int n;

	if (!name || strchr(name, '/'))
		return fail(c, "no name of a counter");
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", ibv_get_device_name(ctx->device), name);
	f = fopen(path, "r");
	if (!f)
		return errno;
	n = fscanf(f, "%llu", &v);
	fclose(f);
	if (n != 1)
		return EIO;
	put(c, "value", v);
	return 0;
}

const struct command device_commands[] = {
	{ "query_device", query_device, "", "the fields of ibv_device_attr" },
	{ "query_port", query_port, "port", "the fields of ibv_port_attr" },
	{ "query_gid", query_gid, "port index", "gid" },
	{ "query_gid_ex", query_gid_ex, "port index", "gid type index" },
	{ "query_gid_table", query_gid_table, "max", "index gid type, once for each entry" },
	{ "query_pkey", query_pkey, "port index", "pkey" },
	{ "get_pkey_index", get_pkey_index, "port pkey", "index" },
	{ "get_event", get_event, "ms", "type object|port; EAGAIN when none came" },
	{ "counter", counter, "name", "value" },
	{ 0 },
};
