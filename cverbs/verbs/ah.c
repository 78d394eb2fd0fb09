/* ah.c: address handles, multicast groups, and answers to the sender of a datagram. */
#include "front.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/ip.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void roce_from_ah_attr(struct roce_ah_attr *out, const struct ibv_ah_attr *in)
{
	*out = (struct roce_ah_attr){
		.flow_label = in->grh.flow_label & IB_GRH_FLOWLABEL_MASK, /* programs pass all ones for any */
		.sgid_index = in->grh.sgid_index,
		.hop_limit = in->grh.hop_limit,
		.traffic_class = in->grh.traffic_class,
		.is_global = in->is_global,
		.sl = in->sl,
		.src_path_bits = in->src_path_bits,
		.static_rate = in->static_rate,
		.port_num = in->port_num,
		.dlid = in->dlid,
	};
	memcpy(out->dgid, in->grh.dgid.raw, sizeof out->dgid);
}

void roce_to_ah_attr(struct ibv_ah_attr *out, const struct roce_ah_attr *in)
{
	memset(out, 0, sizeof *out);
	memcpy(out->grh.dgid.raw, in->dgid, sizeof in->dgid);
	out->grh.flow_label = in->flow_label;
	out->grh.sgid_index = in->sgid_index;
	out->grh.hop_limit = in->hop_limit;
	out->grh.traffic_class = in->traffic_class;
	out->is_global = in->is_global;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->port_num = in->port_num;
	out->dlid = in->dlid;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct roce_ah_attr a;
	struct roce_ah *ah;
	int r = roce_check(pd, ROCE_PD);

	if (!r && !attr)
		r = EINVAL;
	if (r)
		return roce_null(r);
	ah = calloc(1, sizeof *ah);
	if (!ah)
		return roce_null(ENOMEM);
	roce_from_ah_attr(&a, attr);
	r = -roce_engine_table->create_ah(pd->handle, &a, &ah->ah.handle);
	if (!r && !roce_enter(&ah->ah, ROCE_AH, pd->context)) {
		roce_engine_table->destroy_ah(ah->ah.handle);
		r = ENOMEM;
	}
	if (r) {
		free(ah);
		return roce_null(r);
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	roce_use_pd(pd);
	return &ah->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	int r = roce_check(ah, ROCE_AH);

	if (!r)
		r = -roce_engine_table->destroy_ah(ah->handle);
	if (r)
		return roce_err(r);
	roce_leave_pd(ah->pd);
	roce_remove(ah);
	free(container_of(ah, struct roce_ah, ah));
	return 0;
}

/* ---- answers ---- */

/* The first 40 bytes of a received datagram: an IPv6 header, or an IPv4 header in the last 20. */
static const struct iphdr *ipv4_of(const struct ibv_grh *grh)
{
	return (const struct iphdr *)((const char *)grh + sizeof *grh - sizeof(struct iphdr));
}

static bool valid_ipv4(const struct iphdr *ip)
{
	const uint16_t *word = (const uint16_t *)ip;
	uint32_t sum = 0;

	if (ip->version != 4 || ip->ihl != 5)
		return false;
	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff || !ip->check;
}

static void map_ipv4(union ibv_gid *gid, uint32_t addr)
{
	memset(gid, 0, sizeof *gid);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &addr, sizeof addr);
}

static int index_of_gid(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	union ibv_gid at;

	for (int i = 0; i < to_context(context)->gid_tbl_len; i++) {
		if (ibv_query_gid(context, port, i, &at))
			return -1;
		if (!memcmp(&at, gid, sizeof at))
			return i;
	}
	return -1;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const struct iphdr *ip;
	union ibv_gid ours;
	int r = roce_check(context, ROCE_CONTEXT), index;

	if (!r && (!wc || !attr || (wc->wc_flags & IBV_WC_GRH && !grh)))
		r = EINVAL;
	if (r)
		return roce_err(r);
	memset(attr, 0, sizeof *attr);
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	ip = ipv4_of(grh);
	if (valid_ipv4(ip) && ntohl(grh->version_tclass_flow) >> 28 != 6) {
		map_ipv4(&attr->grh.dgid, ip->saddr);
		map_ipv4(&ours, ip->daddr);
		attr->grh.traffic_class = ip->tos;
		attr->grh.hop_limit = ip->ttl;
	} else {
		uint32_t first = ntohl(grh->version_tclass_flow);

		attr->grh.dgid = grh->sgid;
		ours = grh->dgid;
		attr->grh.flow_label = first & IB_GRH_FLOWLABEL_MASK;
		attr->grh.traffic_class = (uint8_t)(first >> 20);
		attr->grh.hop_limit = grh->hop_limit;
	}
	index = index_of_gid(context, port, &ours);
	if (index < 0)
		return roce_minus1(EINVAL);
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;
	int r = roce_check(pd, ROCE_PD);

	if (r)
		return roce_null(r);
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* ---- multicast ---- */

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	int r = roce_check(qp, ROCE_QP);

	(void)lid; /* RoCE has none */
	if (!r)
		r = gid ? -roce_engine_table->attach_mcast(qp->handle, gid->raw) : EINVAL;
	return roce_err(r);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	int r = roce_check(qp, ROCE_QP);

	(void)lid;
	if (!r)
		r = gid ? -roce_engine_table->detach_mcast(qp->handle, gid->raw) : EINVAL;
	return roce_err(r);
}

/* ---- link layer addresses ---- */

static bool is_ipv4(const uint8_t *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid, prefix, sizeof prefix);
}

/* The neighbour's address from the kernel's ARP table. */
static int ask_arp(uint32_t ifindex, const uint8_t *addr, uint8_t mac[ETHERNET_LL_SIZE])
{
	struct arpreq req = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&req.arp_pa;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return errno;
	in->sin_family = AF_INET;
	memcpy(&in->sin_addr, addr, 4);
	if (!if_indextoname(ifindex, req.arp_dev) || ioctl(fd, SIOCGARP, &req) < 0)
		r = errno;
	else if (!(req.arp_flags & ATF_COM))
		r = EHOSTUNREACH;
	else
		memcpy(mac, req.arp_ha.sa_data, ETHERNET_LL_SIZE);
	close(fd);
	return r;
}

/* Libraries that build frames themselves call this. It resolves groups, link-local addresses that contain the
 * MAC address, and IPv4 neighbours of the kernel's table. Other addresses are EHOSTUNREACH. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	struct ibv_gid_entry from;
	const uint8_t *to;
	int r = roce_check(context, ROCE_CONTEXT);

	if (!r && (!attr || !mac || !vid))
		r = EINVAL;
	if (!r)
		r = _ibv_query_gid_ex(context, attr->port_num, attr->grh.sgid_index, &from, 0, sizeof from);
	if (r)
		return roce_err(r);
	to = attr->grh.dgid.raw;
	*vid = 0xffff; /* none */
	if (is_ipv4(to) && (to[12] & 0xf0) == 0xe0) {
		memcpy(mac, (uint8_t[]){0x01, 0x00, 0x5e, to[13] & 0x7f, to[14], to[15]}, ETHERNET_LL_SIZE);
	} else if (is_ipv4(to)) {
		r = ask_arp(from.ndev_ifindex, to + 12, mac);
	} else if (to[0] == 0xff) {
		memcpy(mac, (uint8_t[]){0x33, 0x33, to[12], to[13], to[14], to[15]}, ETHERNET_LL_SIZE);
	} else if (to[0] == 0xfe && (to[1] & 0xc0) == 0x80 && to[11] == 0xff && to[12] == 0xfe) {
		memcpy(mac, (uint8_t[]){to[8] ^ 2, to[9], to[10], to[13], to[14], to[15]}, ETHERNET_LL_SIZE);
	} else {
		r = EHOSTUNREACH;
	}
	return roce_err(r);
}
