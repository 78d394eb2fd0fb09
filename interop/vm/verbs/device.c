/* Device and GID queries; asynchronous events. */
#include <fcntl.h>

#include "agent.h"

static int query_device(struct call *c)
{
	struct ibv_device_attr_ex x = { 0 };
	int rc = ibv_query_device_ex(ctx, NULL, &x);

	if (rc)
		return result(rc);
	put(c, "cap_flags", x.device_cap_flags_ex ? x.device_cap_flags_ex : x.orig_attr.device_cap_flags);
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
	{ "query_device", query_device, "", "cap_flags" },
	{ "query_gid_table", query_gid_table, "max", "index gid type, once for each entry" },
	{ "get_event", get_event, "ms", "type object|port; EAGAIN when none came" },
	{ "counter", counter, "name", "value" },
	{ 0 },
};
