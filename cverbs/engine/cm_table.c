/* cm_table.c: the table of the connection manager's calls. */
#include "_cgo_export.h"
#include "cm_cgo.h"

/* cgo has no pointers to const void. */
static int reject(roce_handle id, uint32_t reason, const void *private_data, uint32_t length)
{
	return roceCMReject(id, reason, (void *)private_data, length);
}

const struct roce_cm_engine roce_cm_table = {
	.size = sizeof(struct roce_cm_engine),

	.create_channel = roceCMCreateChannel,
	.destroy_channel = roceCMDestroyChannel,
	.next_event = roceCMNextEvent,

	.create_id = roceCMCreateID,
	.set_cookie = roceCMSetCookie,
	.migrate_id = roceCMMigrateID,
	.destroy_id = roceCMDestroyID,
	.query_id = roceCMQueryID,
	.set_option = roceCMSetOption,

	.bind_addr = roceCMBindAddr,
	.resolve_addr = roceCMResolveAddr,
	.resolve_route = roceCMResolveRoute,

	.listen = roceCMListen,
	.connect = roceCMConnect,
	.accept = roceCMAccept,
	.reject = reject,
	.establish = roceCMEstablish,
	.notify = roceCMNotify,
	.disconnect = roceCMDisconnect,
	.init_qp_attr = roceCMInitQPAttr,

	.join = roceCMJoin,
	.leave = roceCMLeave,
};
