/* table.c: the table of the calls. */
#include "_cgo_export.h"
#include "cgo.h"
#include "cm_cgo.h"
#include "exit.h"
#include "rs_cgo.h"
#include "threads.h"

static int poll_cq(roce_handle cq, struct roce_wc *wcs, int n)
{
	roce_thread_polls();
	return rocePollCQ(cq, wcs, n);
}

/* cgo cannot export a structure as const and non-const pointer: query_qp takes the non-const pointer. */
static int modify_qp(roce_handle qp, const struct roce_qp_attr *attr, uint32_t mask)
{
	return roceModifyQP(qp, (struct roce_qp_attr *)attr, mask);
}

static const struct roce_engine engine = {
	.abi = ROCE_ENGINE_ABI,
	.size = sizeof(struct roce_engine),

	.devices = roceDevices,
	.open = roceOpen,
	.close = roceClose,
	.exiting = roce_exiting,
	.query_device = roceQueryDevice,
	.query_port = roceQueryPort,
	.query_gid = roceQueryGID,
	.query_pkey = roceQueryPKey,
	.next_event = roceNextEvent,

	.alloc_pd = roceAllocPD,
	.dealloc_pd = roceDeallocPD,
	.reg_mr = roceRegMR,
	.reg_null_mr = roceRegNullMR,
	.rereg_mr = roceReregMR,
	.dereg_mr = roceDeregMR,
	.alloc_mw = roceAllocMW,
	.dealloc_mw = roceDeallocMW,
	.mw_rkey = roceMWRKey,
	.bind_mw = roceBindMW,

	.create_channel = roceCreateChannel,
	.destroy_channel = roceDestroyChannel,
	.channel_event = roceChannelEvent,
	.create_cq = roceCreateCQ,
	.resize_cq = roceResizeCQ,
	.destroy_cq = roceDestroyCQ,
	.poll_cq = poll_cq,
	.req_notify_cq = roceReqNotifyCQ,
	.collecting = roceCollecting,

	.create_srq = roceCreateSRQ,
	.modify_srq = roceModifySRQ,
	.query_srq = roceQuerySRQ,
	.destroy_srq = roceDestroySRQ,
	.post_srq_recv = rocePostSRQRecv,
	.open_xrcd = roceOpenXRCD,
	.close_xrcd = roceCloseXRCD,

	.create_qp = roceCreateQP,
	.open_qp = roceOpenQP,
	.modify_qp = modify_qp,
	.query_qp = roceQueryQP,
	.destroy_qp = roceDestroyQP,
	.post_send = rocePostSend,
	.post_recv = rocePostRecv,
	.attach_mcast = roceAttachMcast,
	.detach_mcast = roceDetachMcast,
	.create_ah = roceCreateAH,
	.destroy_ah = roceDestroyAH,

	.cm = &roce_cm_table,
	.rs = &roce_rs_table,
	.ds = &roce_ds_table,
};

void (*roce_hand_over)(struct roce_collecting *); /* for collect.go */

const struct roce_engine *roce_engine(const struct roce_host *host)
{
	if (host->abi != ROCE_ENGINE_ABI)
		return NULL;
	roce_hand_over = host->hand_over;
	roce_watch_exit();
	return &engine;
}
