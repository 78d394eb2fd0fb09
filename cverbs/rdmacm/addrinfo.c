/* addrinfo.c: from names to addresses, by the C library's getaddrinfo. */
#include "newer.h"

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>

/* Converts the program's hints to those of getaddrinfo. */
static void to_hints(struct addrinfo *out, const struct rdma_addrinfo *hints)
{
	memset(out, 0, sizeof *out);
	if (hints->ai_flags & RAI_PASSIVE)
		out->ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		out->ai_flags |= AI_NUMERICHOST;
	if (hints->ai_family != AF_IB) /* which the C library does not know */
		out->ai_family = hints->ai_family;
	switch (hints->ai_qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		out->ai_socktype = SOCK_STREAM;
		break;
	case IBV_QPT_UD:
		out->ai_socktype = SOCK_DGRAM;
		break;
	}
	switch (hints->ai_port_space) {
	case RDMA_PS_TCP:
		out->ai_protocol = IPPROTO_TCP;
		break;
	case RDMA_PS_IPOIB:
	case RDMA_PS_UDP:
		out->ai_protocol = IPPROTO_UDP;
		break;
	case RDMA_PS_IB:
		if (out->ai_socktype == SOCK_STREAM)
			out->ai_protocol = IPPROTO_TCP;
		else if (out->ai_socktype == SOCK_DGRAM)
			out->ai_protocol = IPPROTO_UDP;
		break;
	}
}

/* Returns 0, or an error of getaddrinfo. */
static int copy_addr(struct sockaddr **out, socklen_t *out_len, const struct sockaddr *addr, socklen_t len)
{
	*out = malloc(len);
	if (!*out)
		return EAI_MEMORY;
	memcpy(*out, addr, len);
	*out_len = len;
	return 0;
}

/* The parts of a service ID of IP: the port space, and the port. */
enum { PORT_SPACE_SHIFT = 16 };
static const uint64_t port_space_mask = 0xFFFFFFFFFFFF0000, port_mask = 0xFFFF;

/* Makes an address of InfiniBand of a GID in the form of an IPv6 address, as rdma-core does. Programs may look at it;
 * no device of RoCE has it. */
static int copy_gid(struct sockaddr **out, socklen_t *out_len, const struct sockaddr_in6 *in6, int port_space)
{
	struct sockaddr_ib *ib = calloc(1, sizeof *ib);
	uint16_t port = ntohs(in6->sin6_port);

	if (!ib)
		return EAI_MEMORY;
	ib->sib_family = AF_IB;
	ib->sib_pkey = htons(0xFFFF);
	ib->sib_flowinfo = in6->sin6_flowinfo;
	ib->sib_scope_id = in6->sin6_scope_id;
	memcpy(&ib->sib_addr, &in6->sin6_addr, sizeof ib->sib_addr);
	ib->sib_sid = htobe64(((uint64_t)port_space << PORT_SPACE_SHIFT) + port);
	ib->sib_sid_mask = htobe64((port_space ? port_space_mask : 0) | (port ? port_mask : 0));
	*out = (struct sockaddr *)ib;
	*out_len = sizeof *ib;
	return 0;
}

static int copy_name(char **out, const char *name)
{
	if (!name)
		return 0;
	*out = strdup(name);
	return *out ? 0 : EAI_MEMORY;
}

/* Sets the types that the hints leave open. */
static void complete_type(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints, int socktype)
{
	bool ud = socktype == SOCK_DGRAM;

	rai->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : ud ? IBV_QPT_UD : IBV_QPT_RC;
	rai->ai_port_space = hints->ai_port_space ? hints->ai_port_space : ud ? RDMA_PS_UDP : RDMA_PS_TCP;
}

static int look_up(struct rdma_addrinfo *rai, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct addrinfo wanted, *ai;
	bool gid = hints->ai_family == AF_IB && hints->ai_flags & RAI_FAMILY && hints->ai_flags & RAI_NUMERICHOST;
	struct sockaddr **addr = hints->ai_flags & RAI_PASSIVE ? &rai->ai_src_addr : &rai->ai_dst_addr;
	socklen_t *len = hints->ai_flags & RAI_PASSIVE ? &rai->ai_src_len : &rai->ai_dst_len;
	int ret;

	to_hints(&wanted, hints);
	if (gid)
		wanted.ai_family = AF_INET6;
	ret = getaddrinfo(node, service, &wanted, &ai);
	if (ret)
		return ret;
	rai->ai_family = gid ? AF_IB : ai->ai_family;
	complete_type(rai, hints, ai->ai_socktype);
	if (gid)
		ret = copy_gid(addr, len, (const struct sockaddr_in6 *)ai->ai_addr, rai->ai_port_space);
	else
		ret = copy_addr(addr, len, ai->ai_addr, ai->ai_addrlen);
	if (!ret)
		ret = copy_name(hints->ai_flags & RAI_PASSIVE ? &rai->ai_src_canonname : &rai->ai_dst_canonname, ai->ai_canonname);
	freeaddrinfo(ai);
	return ret;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo no_hints;
	struct rdma_addrinfo *rai;
	int ret = 0;

	if (!res || (!service && !node && !hints))
		return fail(EINVAL);
	if (!cma_engine())
		return -1;
	if (hints && hints->ai_flags & CMA_RAI_SA) {
		if (node || hints->ai_flags & CMA_RAI_DNS)
			return fail(EOPNOTSUPP);
		return fail(service ? ENOENT : EINVAL); /* no port of InfiniBand could ask a subnet administrator */
	}
	rai = calloc(1, sizeof *rai);
	if (!rai)
		return fail(ENOMEM);
	if (!hints)
		hints = &no_hints;
	rai->ai_flags = hints->ai_flags;
	if (node || service) {
		ret = look_up(rai, node, service, hints);
	} else {
		rai->ai_family = hints->ai_family;
		complete_type(rai, hints, hints->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM);
		if (hints->ai_dst_len)
			ret = copy_addr(&rai->ai_dst_addr, &rai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	}
	if (!ret && !rai->ai_src_len && hints->ai_src_len)
		ret = copy_addr(&rai->ai_src_addr, &rai->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	if (ret) {
		rdma_freeaddrinfo(rai);
		return ret; /* of getaddrinfo: gai_strerror knows it */
	}
	*res = rai;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}
