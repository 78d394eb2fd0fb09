/* kern.c: conversions from structures of the kernel's interface to those of programs. librdmacm and some
 * programs call them. */
#include "front.h"

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *out, struct ib_uverbs_ah_attr *in)
{
	memcpy(out->grh.dgid.raw, in->grh.dgid, sizeof out->grh.dgid.raw);
	out->grh.flow_label = in->grh.flow_label;
	out->grh.sgid_index = in->grh.sgid_index;
	out->grh.hop_limit = in->grh.hop_limit;
	out->grh.traffic_class = in->grh.traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->port_num;
}

EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *out, struct ib_uverbs_qp_attr *in)
{
	out->cur_qp_state = in->cur_qp_state;
	out->qp_state = in->qp_state;
	out->path_mtu = in->path_mtu;
	out->path_mig_state = in->path_mig_state;
	out->qkey = in->qkey;
	out->rq_psn = in->rq_psn;
	out->sq_psn = in->sq_psn;
	out->dest_qp_num = in->dest_qp_num;
	out->qp_access_flags = in->qp_access_flags;
	out->cap.max_send_wr = in->max_send_wr;
	out->cap.max_recv_wr = in->max_recv_wr;
	out->cap.max_send_sge = in->max_send_sge;
	out->cap.max_recv_sge = in->max_recv_sge;
	out->cap.max_inline_data = in->max_inline_data;
	ibv_copy_ah_attr_from_kern(&out->ah_attr, &in->ah_attr);
	ibv_copy_ah_attr_from_kern(&out->alt_ah_attr, &in->alt_ah_attr);
	out->pkey_index = in->pkey_index;
	out->alt_pkey_index = in->alt_pkey_index;
	out->en_sqd_async_notify = in->en_sqd_async_notify;
	out->sq_draining = in->sq_draining;
	out->max_rd_atomic = in->max_rd_atomic;
	out->max_dest_rd_atomic = in->max_dest_rd_atomic;
	out->min_rnr_timer = in->min_rnr_timer;
	out->port_num = in->port_num;
	out->timeout = in->timeout;
	out->retry_cnt = in->retry_cnt;
	out->rnr_retry = in->rnr_retry;
	out->alt_port_num = in->alt_port_num;
	out->alt_timeout = in->alt_timeout;
}

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *out, struct ib_user_path_rec *in)
{
	memcpy(out->dgid.raw, in->dgid, sizeof out->dgid.raw);
	memcpy(out->sgid.raw, in->sgid, sizeof out->sgid.raw);
	out->dlid = in->dlid;
	out->slid = in->slid;
	out->raw_traffic = (int)in->raw_traffic;
	out->flow_label = in->flow_label;
	out->hop_limit = (uint8_t)in->hop_limit;
	out->traffic_class = in->traffic_class;
	out->reversible = (int)in->reversible;
	out->numb_path = in->numb_path;
	out->pkey = in->pkey;
	out->sl = in->sl;
	out->mtu_selector = in->mtu_selector;
	out->mtu = (uint8_t)in->mtu;
	out->rate_selector = in->rate_selector;
	out->rate = in->rate;
	out->packet_life_time_selector = in->packet_life_time_selector;
	out->packet_life_time = in->packet_life_time;
	out->preference = in->preference;
}

EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *out, struct ibv_sa_path_rec *in)
{
	memcpy(out->dgid, in->dgid.raw, sizeof out->dgid);
	memcpy(out->sgid, in->sgid.raw, sizeof out->sgid);
	out->dlid = in->dlid;
	out->slid = in->slid;
	out->raw_traffic = (uint32_t)in->raw_traffic;
	out->flow_label = in->flow_label;
	out->hop_limit = in->hop_limit;
	out->traffic_class = in->traffic_class;
	out->reversible = (uint32_t)in->reversible;
	out->numb_path = in->numb_path;
	out->pkey = in->pkey;
	out->sl = in->sl;
	out->mtu_selector = in->mtu_selector;
	out->mtu = in->mtu;
	out->rate_selector = in->rate_selector;
	out->rate = in->rate;
	out->packet_life_time_selector = in->packet_life_time_selector;
	out->packet_life_time = in->packet_life_time;
	out->preference = in->preference;
}
