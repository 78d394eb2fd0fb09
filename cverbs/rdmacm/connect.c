/* connect.c: connections. */
#include "cma.h"

enum { REJECT_CONSUMER = 28, REJECT_VENDOR_OPTION = 35 }; /* reasons of REJ messages */

enum { MOST_RETRIES = 7 };

/* Returns how many READs and atomics a queue pair gets: as many as the program asks for, or as many as the
 * connection or the device has. */
static uint8_t granted(uint8_t asked, uint8_t known)
{
	return asked == RDMA_MAX_RESP_RES ? known : asked;
}

static uint8_t lesser(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* Fills in the parameters of a call. conn_param may be NULL. */
static void fill(struct roce_cm_param *out, const struct cma_id *p, const struct rdma_conn_param *conn_param)
{
	const struct ibv_qp *qp = p->id.qp;

	memset(out, 0, sizeof *out);
	out->responder_resources = p->responder_resources;
	out->initiator_depth = p->initiator_depth;
	out->flow_control = 1;
	out->retry_count = out->rnr_retry_count = MOST_RETRIES;
	if (conn_param) {
		out->flow_control = conn_param->flow_control;
		out->retry_count = lesser(conn_param->retry_count, MOST_RETRIES);
		out->rnr_retry_count = lesser(conn_param->rnr_retry_count, MOST_RETRIES);
		out->private_data = conn_param->private_data;
		out->private_data_len = conn_param->private_data ? conn_param->private_data_len : 0;
		out->qp_num = conn_param->qp_num;
		out->srq = conn_param->srq;
	}
	if (qp) {
		out->qp_num = qp->qp_num;
		out->srq = qp->srq != NULL;
	}
}

/* Reports whether the queue pair can have the parameters of a call. */
static bool valid(const struct cma_id *p, const struct rdma_conn_param *c)
{
	if (p->id.ps != RDMA_PS_TCP || (!c && p->id.qp))
		return true;
	if (!c || !p->device)
		return false;
	return (c->responder_resources == RDMA_MAX_RESP_RES || c->responder_resources <= p->device->max_responder_resources) &&
	       (c->initiator_depth == RDMA_MAX_INIT_DEPTH || c->initiator_depth <= p->device->max_initiator_depth);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cma_id *p = cma_id_of(id);
	struct roce_cm_param param;
	unsigned char all[255];

	if (!p)
		return -1;
	if (!valid(p, conn_param))
		return fail(EINVAL);
	p->responder_resources = granted(conn_param ? conn_param->responder_resources : RDMA_MAX_RESP_RES,
					 p->device ? p->device->max_responder_resources : 0);
	p->initiator_depth = granted(conn_param ? conn_param->initiator_depth : RDMA_MAX_INIT_DEPTH,
				     p->device ? p->device->max_initiator_depth : 0);
	fill(&param, p, conn_param);
	if (p->ep_private_len) { /* private data of the address information precede the program's */
		if (p->ep_private_len + param.private_data_len > sizeof all)
			return fail(EINVAL);
		memcpy(all, p->ep_private, p->ep_private_len);
		if (param.private_data)
			memcpy(all + p->ep_private_len, param.private_data, param.private_data_len);
		param.private_data = all;
		param.private_data_len += (uint8_t)p->ep_private_len;
	}
	if (result(p->cm->connect(p->handle, &param)))
		return -1;
	return cma_complete(p);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cma_id *p = cma_id_of(id);
	struct roce_cm_param param;
	bool ud;

	if (!p)
		return -1;
	if (!valid(p, conn_param))
		return fail(EINVAL);
	ud = id->qp_type == IBV_QPT_UD;
	p->responder_resources = granted(conn_param ? conn_param->responder_resources : RDMA_MAX_RESP_RES, p->responder_resources);
	p->initiator_depth = granted(conn_param ? conn_param->initiator_depth : RDMA_MAX_INIT_DEPTH, p->initiator_depth);
	if (!ud && id->qp && cma_ready_qp(id, p->responder_resources, p->initiator_depth))
		return -1;
	fill(&param, p, conn_param);
	if (result(p->cm->accept(p->handle, &param))) {
		if (!ud)
			cma_qp_to_error(id);
		return -1;
	}
	return ud ? 0 : cma_complete(p); /* a datagram service has no connection to end, so no event comes */
}

static int reject(struct rdma_cm_id *id, uint32_t reason, const void *private_data, uint8_t length)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	return result(p->cm->reject(p->handle, reason, private_data, private_data ? length : 0));
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, REJECT_CONSUMER, private_data, private_data_len);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, REJECT_VENDOR_OPTION, private_data, private_data_len);
}

int rdma_establish(struct rdma_cm_id *id)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	if (id->qp) /* rdma_get_cm_event has done it */
		return fail(EINVAL);
	return result(p->cm->establish(p->handle));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	struct cma_id *p = cma_id_of(id);

	return p ? result(p->cm->notify(p->handle, event)) : -1;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	cma_qp_to_error(id);
	if (result(p->cm->disconnect(p->handle)))
		return -1;
	return cma_complete(p);
}

/* Enhanced connection establishment negotiates options of vendors. This stack has none and announces none to
 * peers. */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	if (id->qp || !ece)
		return fail(EINVAL);
	return ece->vendor_id ? fail(EOPNOTSUPP) : 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	if (id->qp || !ece)
		return fail(EINVAL);
	memset(ece, 0, sizeof *ece);
	return 0;
}
