/* context.c: queries of a device, its port, and its tables. */
#include "front.h"
#include "../symbols/generated/private.h"

#include <endian.h>

static void convert_attr(struct ibv_device_attr *out, const struct roce_device_attr *in)
{
	*out = (struct ibv_device_attr){
		.node_guid = htobe64(in->node_guid),
		.sys_image_guid = htobe64(in->node_guid),
		.max_mr_size = in->max_mr_size,
		.page_size_cap = in->page_size_cap,
		.vendor_id = in->vendor_id,
		.vendor_part_id = in->vendor_part_id,
		.hw_ver = in->hw_ver,
		.max_qp = in->max_qp,
		.max_qp_wr = in->max_qp_wr,
		.device_cap_flags = (unsigned int)in->device_cap_flags,
		.max_sge = in->max_sge,
		.max_sge_rd = in->max_sge_rd,
		.max_cq = in->max_cq,
		.max_cqe = in->max_cqe,
		.max_mr = in->max_mr,
		.max_pd = in->max_pd,
		.max_qp_rd_atom = in->max_qp_rd_atom,
		.max_res_rd_atom = in->max_res_rd_atom,
		.max_qp_init_rd_atom = in->max_qp_init_rd_atom,
		.atomic_cap = in->atomic_cap,
		.max_mw = in->max_mw,
		.max_mcast_grp = in->max_mcast_grp,
		.max_mcast_qp_attach = in->max_mcast_qp_attach,
		.max_total_mcast_qp_attach = in->max_total_mcast_qp_attach,
		.max_ah = in->max_ah,
		.max_srq = in->max_srq,
		.max_srq_wr = in->max_srq_wr,
		.max_srq_sge = in->max_srq_sge,
		.max_pkeys = in->max_pkeys,
		.local_ca_ack_delay = in->local_ca_ack_delay,
		.phys_port_cnt = in->phys_port_cnt,
	};
	memcpy(out->fw_ver, in->fw_ver, sizeof out->fw_ver);
	out->fw_ver[sizeof out->fw_ver - 1] = 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!roce_known(context, ROCE_CONTEXT) || !attr)
		return roce_err(EINVAL);
	convert_attr(attr, &to_context(context)->attr);
	return 0;
}

/* Capabilities that the stack lacks are 0: paging on demand, segmentation and hashing by the device, rate
 * limits, tag matching, moderation, time stamps. */
int roce_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex full = {0};
	const struct roce_device_attr *a;

	if (!roce_known(context, ROCE_CONTEXT) || !attr || (input && input->comp_mask) || size < sizeof attr->orig_attr)
		return roce_err(EINVAL);
	a = &to_context(context)->attr;
	convert_attr(&full.orig_attr, a);
	full.device_cap_flags_ex = a->device_cap_flags | a->device_cap_flags_ex;
	full.max_dm_size = ROCE_DM_SIZE;
	full.phys_port_cnt_ex = a->phys_port_cnt;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

/* query_rt_values returns the clock of completion time stamps. The stack has no such time stamps. */
int roce_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r)
		r = values && !(values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK) ? EOPNOTSUPP : EINVAL;
	return roce_err(r);
}

int roce_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	enum { GRH_REQUIRED = 1 }; /* of the kernel's port flags; no header of user space has a name for it */
	struct ibv_port_attr full;
	struct roce_port_attr p;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && !attr)
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_port(handle_of(context), port, &p);
	if (r)
		return roce_err(r);
	memset(&full, 0, sizeof full);
	full.state = p.state;
	full.max_mtu = p.max_mtu;
	full.active_mtu = p.active_mtu;
	full.gid_tbl_len = (int)p.gid_tbl_len;
	full.port_cap_flags = p.port_cap_flags;
	full.max_msg_sz = p.max_msg_sz;
	full.pkey_tbl_len = p.pkey_tbl_len;
	full.max_vl_num = 1;
	full.active_width = (uint8_t)p.active_width;
	full.active_speed = p.active_speed > UINT8_MAX ? UINT8_MAX & ~1 : (uint8_t)p.active_speed;
	full.phys_state = (uint8_t)p.phys_state;
	full.link_layer = p.link_layer;
	full.flags = GRH_REQUIRED;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

#undef ibv_query_port
/* The exported function has the old structure, which ends before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return roce_query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* ---- the GID table ---- */

enum { EMPTY = UINT32_MAX }; /* type of an entry */

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index, struct roce_gid *gid)
{
	int r = roce_check(context, ROCE_CONTEXT);

	return r ? r : -roce_engine_table->query_gid(handle_of(context), port, index, gid);
}

static int get_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct roce_gid g;
	int r = index < 0 || !gid ? EINVAL : query_gid(context, port, (uint32_t)index, &g);

	if (r)
		return roce_minus1(r);
	if (g.type == EMPTY)
		memset(gid, 0, sizeof *gid);
	else
		memcpy(gid->raw, g.raw, sizeof gid->raw);
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	return get_gid(context, port, index, gid);
}

static void convert_gid(struct ibv_gid_entry *out, const struct roce_gid *in, uint32_t port, uint32_t index)
{
	memcpy(out->gid.raw, in->raw, sizeof out->gid.raw);
	out->gid_index = index;
	out->port_num = port;
	out->gid_type = in->type;
	out->ndev_ifindex = in->ifindex;
}

static void copy_entry(void *to, const struct ibv_gid_entry *entry, size_t size)
{
	memset(to, 0, size);
	memcpy(to, entry, size < sizeof *entry ? size : sizeof *entry);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry full;
	struct roce_gid g;
	int r = flags ? EOPNOTSUPP : entry ? query_gid(context, port, index, &g) : EINVAL;

	if (!r && g.type == EMPTY)
		r = ENODATA;
	if (r)
		return roce_err(r);
	convert_gid(&full, &g, port, index);
	copy_entry(entry, &full, size);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
	struct ibv_gid_entry full;
	struct roce_gid g;
	size_t n = 0;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && flags)
		r = EOPNOTSUPP;
	if (!r && max && !entries)
		r = EINVAL;
	for (uint32_t i = 0; !r && i < to_context(context)->gid_tbl_len; i++) {
		r = query_gid(context, 1, i, &g);
		if (r || g.type == EMPTY)
			continue;
		if (n == max) {
			r = EINVAL;
			break;
		}
		convert_gid(&full, &g, 1, i);
		copy_entry((char *)entries + n++ * size, &full, size);
	}
	return r ? -roce_err(r) : (ssize_t)n;
}

/* ibv_devinfo calls this function of the private version node: 0 is InfiniBand or RoCE v1, 1 RoCE v2. */
EXPORT int ROCE_PRIVATE(ibv_query_gid_type)(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct roce_gid g;
	int r = type ? query_gid(context, port, index, &g) : EINVAL;

	if (r)
		return roce_minus1(r);
	*type = g.type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}
ROCE_PRIVATE_ibv_query_gid_type

/* ---- the P_Key table ---- */

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	uint16_t key;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (index < 0 || !pkey))
		r = EINVAL;
	if (!r)
		r = -roce_engine_table->query_pkey(handle_of(context), port, (uint32_t)index, &key);
	if (r)
		return roce_minus1(r);
	*pkey = htobe16(key);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 key;

	for (int i = 0; !ibv_query_pkey(context, port, i, &key); i++)
		if (key == pkey)
			return i;
	return -1;
}
