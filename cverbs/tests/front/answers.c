/* Address handles for the sender of a datagram, the GID table, structures of the kernel. */
#include "check.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);

static struct ibv_context *context;

static void senders(void)
{
	union {
		struct ibv_grh grh;
		uint8_t raw[40];
	} u = {0};
	/* 10.0.0.2 to 10.0.0.1, TOS 0x10, TTL 33 */
	static const uint8_t ip[20] = {0x45, 0x10, 0, 60, 0, 0, 0x40, 0, 33, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1};
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .sl = 2};
	struct ibv_ah_attr attr;
	uint32_t sum = 0;

	memcpy(u.raw + 20, ip, sizeof ip);
	for (int i = 20; i < 40; i += 2)
		sum += (uint32_t)u.raw[i] << 8 | u.raw[i + 1];
	sum = ~((sum & 0xffff) + (sum >> 16));
	u.raw[30] = (uint8_t)(sum >> 8);
	u.raw[31] = (uint8_t)sum;
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, &u.grh, &attr));
	CHECK(attr.is_global && attr.grh.sgid_index == 1 && attr.grh.traffic_class == 0x10 && attr.sl == 2 && attr.port_num == 1);
	CHECK(!memcmp(attr.grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x02", 16));

	memset(&u, 0, sizeof u);
	u.grh.version_tclass_flow = htonl(6u << 28 | 0x20u << 20 | 0x12345);
	u.grh.hop_limit = 44;
	memcpy(u.grh.sgid.raw, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
	memcpy(u.grh.dgid.raw, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, &u.grh, &attr));
	CHECK(attr.grh.sgid_index == 3 && attr.grh.flow_label == 0x12345 && attr.grh.traffic_class == 0x20 && attr.grh.hop_limit == 44);
	CHECK(!memcmp(attr.grh.dgid.raw, u.grh.sgid.raw, 16));
	u.grh.dgid.raw[15] = 9; /* not ours */
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &u.grh, &attr) == -1);
	wc.wc_flags = 0;
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, NULL, &attr) && !attr.is_global);
}

static void gids(void)
{
	struct ibv_gid_entry entry, table[4];
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE && port.flags == 1);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(!ibv_query_gid(context, 1, 0, &gid) && !gid.global.subnet_prefix && !gid.global.interface_id);
	CHECK(ibv_query_gid(context, 1, 4, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == ENODATA);
	CHECK(!ibv_query_gid_ex(context, 1, 1, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.port_num == 1 && entry.gid_index == 1);
	CHECK(ibv_query_gid_table(context, table, 4, 0) == 2 && table[1].gid_index == 3);
	CHECK(ibv_query_gid_table(context, table, 1, 0) == -EINVAL);
	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1 && errno == ENOENT);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0 && ibv_get_pkey_index(context, 1, 1) == -1);
	CHECK(be64toh(ibv_get_device_guid(context->device)) == 0x0102030405060708);
	CHECK(context->num_comp_vectors == 2);
}

static void links(void)
{
	struct ibv_ah_attr attr = {.port_num = 1, .grh = {.sgid_index = 1}};
	uint8_t mac[6];
	uint16_t vid;

	memcpy(attr.grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xef\x81\x02\x03", 16);
	CHECK(!ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vid) && !memcmp(mac, "\x01\x00\x5e\x01\x02\x03", 6) && vid == 0xffff);
	memcpy(attr.grh.dgid.raw, "\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55", 16);
	CHECK(!ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vid) && !memcmp(mac, "\x00\x11\x22\x33\x44\x55", 6));
}

static void kernel(void)
{
	struct ib_uverbs_qp_attr k = {.qp_state = 3, .path_mtu = 5, .max_send_wr = 7, .rnr_retry = 6, .alt_timeout = 5, .ah_attr = {.port_num = 1, .grh = {.hop_limit = 9}}};
	struct ib_user_path_rec path = {.dlid = 1, .mtu = 2, .rate = 3, .preference = 4, .dgid = {5}}, back;
	struct ibv_sa_path_rec rec;
	struct ibv_qp_attr attr;

	ibv_copy_qp_attr_from_kern(&attr, &k);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_4096 && attr.cap.max_send_wr == 7 && attr.rnr_retry == 6 && attr.alt_timeout == 5 && attr.ah_attr.port_num == 1 && attr.ah_attr.grh.hop_limit == 9);
	memset(&back, 0, sizeof back);
	ibv_copy_path_rec_from_kern(&rec, &path);
	CHECK(rec.dlid == 1 && rec.mtu == 2 && rec.rate == 3 && rec.preference == 4 && rec.dgid.raw[0] == 5);
	ibv_copy_path_rec_to_kern(&back, &rec);
	CHECK(!memcmp(&back, &path, sizeof back));
}

static void sysfs(void)
{
	char dir[] = "/tmp/roce-sysfs-XXXXXX", path[64], buf[8];
	FILE *file;

	CHECK(!strcmp(ibv_get_sysfs_path(), "/sys"));
	CHECK(!setenv("ROCE_SYSFS", "/elsewhere", 1) && !strcmp(ibv_get_sysfs_path(), "/elsewhere"));
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/node_type", dir);
	file = fopen(path, "w");
	CHECK(file && fputs("1: CA\n", file) >= 0 && !fclose(file));
	CHECK(ibv_read_sysfs_file(dir, "node_type", buf, sizeof buf) == 5 && !strcmp(buf, "1: CA"));
	CHECK(ibv_read_sysfs_file(dir, "nothing", buf, sizeof buf) == -1 && errno == ENOENT);
	CHECK(!unlink(path) && !rmdir(dir));
}

static void attributes(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	int mine;
	struct ibv_qp_init_attr init = {.qp_context = &mine, .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .qp_access_flags = 3, .dest_qp_num = 5, .ah_attr = {.grh = {.hop_limit = 6}}, .timeout = 14};

	CHECK(qp && init.cap.max_inline_data == 60);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE) && qp->state == IBV_QPS_INIT && fake()->modify_mask == IBV_QP_STATE);
	memset(&attr, 0, sizeof attr);
	memset(&init, 0, sizeof init);
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.qp_access_flags == 3 && attr.dest_qp_num == 5 && attr.ah_attr.grh.hop_limit == 6 && attr.timeout == 14);
	CHECK(init.qp_context == &mine && init.send_cq == cq && init.qp_type == IBV_QPT_RC && init.sq_sig_all == 1 && init.cap.max_send_wr == 64);
	CHECK(!ibv_query_qp(qp, &attr, -1, &init)); /* all attributes, whatever the mask */
	CHECK(ibv_modify_qp(qp, &attr, -1) == EOPNOTSUPP);
}

int main(void)
{
	context = open_first();
	senders();
	gids();
	links();
	kernel();
	sysfs();
	attributes();
	return 0;
}
