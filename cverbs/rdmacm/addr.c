/* addr.c: socket addresses, and address vectors. */
#include "cma.h"

#include <arpa/inet.h>
#include <infiniband/ib.h>

socklen_t cma_addr_len(const struct sockaddr *addr)
{
	if (!addr)
		return 0;
	switch (addr->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	}
	return 0;
}

int cma_to_engine(struct roce_cm_addr *out, const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	memset(out, 0, sizeof *out);
	if (!addr)
		return fail(EINVAL);
	switch (addr->sa_family) {
	case AF_INET:
		out->family = 4;
		out->port = ntohs(in->sin_port);
		memcpy(out->addr, &in->sin_addr, sizeof in->sin_addr);
		return 0;
	case AF_INET6:
		out->family = 6;
		out->port = ntohs(in6->sin6_port);
		out->scope_id = in6->sin6_scope_id;
		memcpy(out->addr, &in6->sin6_addr, sizeof in6->sin6_addr);
		return 0;
	}
	/* As in Linux: a RoCE device has no address of AF_IB. */
	return fail(addr->sa_family == AF_IB ? ENODEV : EAFNOSUPPORT);
}

void cma_from_engine(struct sockaddr_storage *out, const struct roce_cm_addr *addr)
{
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	switch (addr->family) {
	case 4:
		memset(out, 0, sizeof *in6);
		in->sin_family = AF_INET;
		in->sin_port = htons(addr->port);
		memcpy(&in->sin_addr, addr->addr, sizeof in->sin_addr);
		break;
	case 6:
		memset(out, 0, sizeof *in6);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(addr->port);
		in6->sin6_scope_id = addr->scope_id;
		memcpy(&in6->sin6_addr, addr->addr, sizeof in6->sin6_addr);
		break;
	}
}

void cma_to_ah_attr(struct ibv_ah_attr *out, const struct roce_ah_attr *in)
{
	memset(out, 0, sizeof *out);
	memcpy(out->grh.dgid.raw, in->dgid, 16);
	out->grh.flow_label = in->flow_label;
	out->grh.sgid_index = in->sgid_index;
	out->grh.hop_limit = in->hop_limit;
	out->grh.traffic_class = in->traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->port_num;
}

static __be16 port_of(const struct sockaddr_storage *addr)
{
	switch (addr->ss_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)addr)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)addr)->sin6_port;
	}
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return cma_id_of(id) ? port_of(&id->route.addr.src_storage) : 0;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return cma_id_of(id) ? port_of(&id->route.addr.dst_storage) : 0;
}
