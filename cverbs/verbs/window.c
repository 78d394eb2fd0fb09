/* window.c: memory windows. */
#include "front.h"

struct ibv_mw *roce_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct roce_mw *mw;
	int r = roce_check(pd, ROCE_PD);

	if (r)
		return roce_null(r);
	mw = calloc(1, sizeof *mw);
	if (!mw)
		return roce_null(ENOMEM);
	r = -roce_engine_table->alloc_mw(pd->handle, type, &mw->mw.handle, &mw->mw.rkey);
	if (!r && !roce_enter(&mw->mw, ROCE_MW, pd->context)) {
		roce_engine_table->dealloc_mw(mw->mw.handle);
		r = ENOMEM;
	}
	if (r) {
		free(mw);
		return roce_null(r);
	}
	mw->generation = roce_generation;
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.type = type;
	roce_use_pd(pd);
	return &mw->mw;
}

int roce_dealloc_mw(struct ibv_mw *mw)
{
	int r = roce_check(mw, ROCE_MW);

	if (!r)
		r = -roce_engine_table->dealloc_mw(mw->handle);
	if (r)
		return roce_err(r);
	roce_leave_pd(mw->pd);
	roce_remove(mw);
	free(to_mw(mw));
	return 0;
}

/* Binds a window of type 1. The window has its new key at once, before the request has completed. */
int roce_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct roce_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	uint32_t rkey;
	int r = roce_check(qp, ROCE_QP);

	if (!r)
		r = roce_check(mw, ROCE_MW);
	if (!r && !bind)
		r = EINVAL;
	if (!r && bind->bind_info.mr)
		r = roce_check(bind->bind_info.mr, ROCE_MR);
	if (r)
		return roce_err(r);
	wr.wr_id = bind->wr_id;
	wr.flags = bind->send_flags;
	wr.mw = mw->handle;
	wr.mr = bind->bind_info.mr ? bind->bind_info.mr->handle : 0;
	wr.bind_addr = bind->bind_info.addr;
	wr.bind_length = bind->bind_info.length;
	wr.bind_access = bind->bind_info.mw_access_flags;
	r = roce_post_bind(to_qp(qp), &wr, &rkey);
	if (!r)
		mw->rkey = rkey;
	return roce_err(r);
}
