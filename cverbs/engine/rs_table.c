/* rs_table.c: the tables of the calls of rsockets. */
#include "_cgo_export.h"
#include "rs_cgo.h"

/* cgo has no pointers to const void. */
static int64_t send_bytes(roce_handle rs, const void *buf, uint64_t length)
{
	return roceRSSend(rs, (void *)buf, length);
}

static int64_t write_at(roce_handle rs, const void *buf, uint64_t length, int64_t offset)
{
	return roceRSWriteAt(rs, (void *)buf, length, offset);
}

/* cgo cannot export a structure as const and non-const pointer: bind takes the const pointer. */
static int name(roce_handle rs, struct roce_cm_addr *out)
{
	return roceRSName(rs, out);
}

static int peer(roce_handle rs, struct roce_cm_addr *out)
{
	return roceRSPeer(rs, out);
}

static int create(uint32_t family, int in, int out, int udp, roce_handle *rs)
{
	(void)udp;
	return roceRSCreate(family, in, out, rs);
}

static int64_t send_to(roce_handle rs, const void *buf, uint64_t length, const struct roce_cm_addr *to)
{
	return roceDSSendTo(rs, (void *)buf, length, to);
}

static int64_t recv_from(roce_handle rs, void *buf, uint64_t length, int peek, struct roce_cm_addr *from)
{
	return roceDSRecvFrom(rs, buf, length, peek, from);
}

const struct roce_rs_engine roce_ds_table = {
	.size = sizeof(struct roce_rs_engine),

	.create = roceDSCreate,
	.connect = roceDSConnect,
	.shutdown = roceDSShutdown,
	.close = roceDSClose,
	.ready = roceDSReady,
	.set_option = roceDSSetOption,
	.get_option = roceDSGetOption,
	.send_to = send_to,
	.recv_from = recv_from,
};

const struct roce_rs_engine roce_rs_table = {
	.size = sizeof(struct roce_rs_engine),

	.create = create,
	.bind = roceRSBind,
	.listen = roceRSListen,
	.accept = roceRSAccept,
	.connect = roceRSConnect,
	.shutdown = roceRSShutdown,
	.close = roceRSClose,

	.recv = roceRSRecv,
	.send = send_bytes,
	.write_at = write_at,
	.ready = roceRSReady,

	.name = name,
	.peer = peer,
	.set_option = roceRSSetOption,
	.get_option = roceRSGetOption,

	.map = roceRSMap,
	.unmap = roceRSUnmap,
};
