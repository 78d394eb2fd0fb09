/* qp.c: the queue pair of an identifier, its queues, and its transitions between states. */
#include "cma.h"

#include <fcntl.h>

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct cma_id *p = cma_id_of(id);
	struct roce_qp_attr a = {0};
	uint32_t set = 0;

	if (!p)
		return -1;
	if (!attr || !mask)
		return fail(EINVAL);
	a.qp_state = attr->qp_state;
	if (result(p->cm->init_qp_attr(p->handle, &a, &set)))
		return -1;
	memset(attr, 0, sizeof *attr);
	attr->qp_state = a.qp_state;
	attr->cur_qp_state = a.cur_qp_state;
	attr->path_mtu = a.path_mtu;
	attr->path_mig_state = a.path_mig_state;
	attr->qkey = a.qkey;
	attr->rq_psn = a.rq_psn;
	attr->sq_psn = a.sq_psn;
	attr->dest_qp_num = a.dest_qp_num;
	attr->qp_access_flags = a.access;
	cma_to_ah_attr(&attr->ah_attr, &a.ah);
	cma_to_ah_attr(&attr->alt_ah_attr, &a.alt_ah);
	attr->pkey_index = a.pkey_index;
	attr->alt_pkey_index = a.alt_pkey_index;
	attr->max_rd_atomic = a.max_rd_atomic;
	attr->max_dest_rd_atomic = a.max_dest_rd_atomic;
	attr->min_rnr_timer = a.min_rnr_timer;
	attr->port_num = a.port_num;
	attr->timeout = a.timeout;
	attr->retry_cnt = a.retry_cnt;
	attr->rnr_retry = a.rnr_retry;
	attr->alt_port_num = a.alt_port_num;
	attr->alt_timeout = a.alt_timeout;
	*mask = (int)set;
	return 0;
}

/* Moves a queue pair to a state, with the attributes of the connection. */
static int move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, uint8_t responder_resources, uint8_t initiator_depth)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return -1;
	if (responder_resources != CMA_AS_AGREED)
		attr.max_dest_rd_atomic = responder_resources;
	if (initiator_depth != CMA_AS_AGREED)
		attr.max_rd_atomic = initiator_depth;
	return verb_result(ibv_modify_qp(qp, &attr, mask));
}

void cma_qp_to_error(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (id->qp && id->qp_type != IBV_QPT_UD)
		ibv_modify_qp(id->qp, &attr, IBV_QP_STATE);
}

int cma_ready_qp(struct rdma_cm_id *id, uint8_t responder_resources, uint8_t initiator_depth)
{
	struct ibv_qp *qp = id->qp;

	/* To INIT once more: only the connection says which accesses the peer may have. */
	if (move(id, qp, IBV_QPS_INIT, CMA_AS_AGREED, CMA_AS_AGREED) || move(id, qp, IBV_QPS_RTR, responder_resources, CMA_AS_AGREED) ||
	    move(id, qp, IBV_QPS_RTS, CMA_AS_AGREED, initiator_depth)) {
		int e = errno;

		cma_qp_to_error(id);
		return fail(e);
	}
	return 0;
}

int cma_connected_qp(struct cma_id *p)
{
	int ret;

	if (cma_ready_qp(&p->id, CMA_AS_AGREED, CMA_AS_AGREED))
		return errno;
	ret = -p->cm->establish(p->handle);
	if (ret)
		cma_qp_to_error(&p->id);
	return ret;
}

/* Moves a new queue pair to the state in which a program can post receives, and with UD also sends. */
static int init_qp(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	size_t n = id->qp_type == IBV_QPT_UD ? 3 : 1;

	for (size_t i = 0; i < n; i++)
		if (move(id, qp, states[i], CMA_AS_AGREED, CMA_AS_AGREED))
			return -1;
	return 0;
}

/* Makes a completion queue with a channel, for rdma_get_send_comp and rdma_get_recv_comp. */
static struct ibv_cq *create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **channel)
{
	struct ibv_cq *cq;

	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return NULL;
	cq = ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	if (!cq) {
		int e = errno;

		ibv_destroy_comp_channel(*channel);
		*channel = NULL;
		errno = e;
	}
	return cq;
}

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

/* Destroys the queues that the identifier made, not those that the program gave. */
static void destroy_cqs(struct rdma_cm_id *id)
{
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
	destroy_cq(&id->send_cq, &id->send_cq_channel);
}

static int create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!attr->recv_cq && attr->cap.max_recv_wr && !id->recv_cq) {
		id->recv_cq = create_cq(id, attr->cap.max_recv_wr, &id->recv_cq_channel);
		if (!id->recv_cq)
			return -1;
	}
	if (!attr->send_cq && attr->cap.max_send_wr && !id->send_cq) {
		id->send_cq = create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel);
		if (!id->send_cq)
			return -1;
	}
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq ? id->recv_cq : attr->send_cq ? attr->send_cq : id->send_cq;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq ? id->send_cq : attr->recv_cq;
	return 0;
}

/* The XRC domain that the identifiers of a device share. */
static struct ibv_xrcd *xrcd_of(struct cma_device *d)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	if (!d->xrcd)
		d->xrcd = ibv_open_xrcd(d->verbs, &attr);
	return d->xrcd;
}

/* Completes the domains of a queue pair. It returns false and sets errno on failure. */
static bool complete_domains(struct cma_id *p, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *id = &p->id;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->pd && attr->pd->context != id->verbs) {
		errno = EINVAL;
		return false;
	}
	if (attr->qp_type == IBV_QPT_XRC_RECV && !(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
		attr->xrcd = xrcd_of(p->device);
		return attr->xrcd != NULL;
	}
	return true;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct cma_id *p = cma_id_of(id);
	struct ibv_qp *qp = NULL;
	bool ours;
	int e;

	if (!p)
		return -1;
	if (!attr || id->qp || !p->device)
		return fail(EINVAL);
	if (!complete_domains(p, attr))
		return -1;
	ours = !id->recv_cq && !id->send_cq;
	if (create_cqs(id, attr))
		goto fail;
	if (!attr->srq)
		attr->srq = id->srq;
	qp = ibv_create_qp_ex(id->verbs, attr);
	if (!qp || init_qp(id, qp))
		goto fail;
	if (attr->pd)
		id->pd = attr->pd;
	id->qp = qp;
	return 0;
fail:
	e = errno;
	if (qp)
		ibv_destroy_qp(qp);
	if (ours)
		destroy_cqs(id);
	return fail(e);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {0};
	int ret;

	if (!cma_id_of(id))
		return -1;
	if (!attr)
		return fail(EINVAL);
	memcpy(&ex, attr, sizeof *attr); /* both structures begin with the same members */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd ? pd : id->pd;
	ret = rdma_create_qp_ex(id, &ex);
	if (!ret)
		memcpy(attr, &ex, sizeof *attr); /* the granted sizes */
	return ret;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct cma_id *p = cma_id_of(id);

	if (!p || !id->qp)
		return;
	cma_detach_groups(p);
	if (ibv_destroy_qp(id->qp))
		return;
	id->qp = NULL;
	if (!id->srq)
		destroy_cqs(id);
}

/* Completes the domain and completion queue of an XRC shared receive queue. */
static int complete_xrc(struct cma_id *p, struct ibv_srq_init_attr_ex *attr)
{
	struct rdma_cm_id *id = &p->id;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
		attr->xrcd = xrcd_of(p->device);
		if (!attr->xrcd)
			return -1;
	}
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		return 0;
	if (!id->recv_cq)
		id->recv_cq = create_cq(id, attr->attr.max_wr, &id->recv_cq_channel);
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	attr->cq = id->recv_cq;
	return attr->cq ? 0 : -1;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct cma_id *p = cma_id_of(id);
	struct ibv_srq *srq;
	bool had_cq;

	if (!p)
		return -1;
	if (!attr || id->srq || !p->device)
		return fail(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	had_cq = id->recv_cq != NULL;
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_XRC && complete_xrc(p, attr))
		return -1;
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq) {
		int e = errno;

		if (!had_cq)
			destroy_cq(&id->recv_cq, &id->recv_cq_channel);
		return fail(e);
	}
	id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {0};
	int ret;

	if (!cma_id_of(id))
		return -1;
	if (!attr)
		return fail(EINVAL);
	memcpy(&ex, attr, sizeof *attr); /* both structures begin with the same members */
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	ex.pd = pd ? pd : id->pd;
	ret = rdma_create_srq_ex(id, &ex);
	if (!ret)
		memcpy(attr, &ex, sizeof *attr);
	return ret;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	struct cma_id *p = cma_id_of(id);

	if (!p || !id->srq || ibv_destroy_srq(id->srq))
		return;
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id);
}
