/* addrinfo.c: from names to addresses, by the C library's getaddrinfo. */
#include "cma.h"

#include <netdb.h>

/* A family of InfiniBand addresses, which the C library does not know. */
enum { AF_INFINIBAND = 27 };

/* Converts the program's hints to those of getaddrinfo. */
static void to_hints(struct addrinfo *out, const struct rdma_addrinfo *hints)
{
	memset(out, 0, sizeof *out);
	if (hints->ai_flags & RAI_PASSIVE)
		out->ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		out->ai_flags |= AI_NUMERICHOST;
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
	int ret;

	if (hints->ai_family == AF_INFINIBAND)
		return EAI_ADDRFAMILY;
	to_hints(&wanted, hints);
	ret = getaddrinfo(node, service, &wanted, &ai);
	if (ret)
		return ret;
	rai->ai_family = ai->ai_family;
	complete_type(rai, hints, ai->ai_socktype);
	if (hints->ai_flags & RAI_PASSIVE) {
		ret = copy_addr(&rai->ai_src_addr, &rai->ai_src_len, ai->ai_addr, ai->ai_addrlen);
		if (!ret)
			ret = copy_name(&rai->ai_src_canonname, ai->ai_canonname);
	} else {
		ret = copy_addr(&rai->ai_dst_addr, &rai->ai_dst_len, ai->ai_addr, ai->ai_addrlen);
		if (!ret)
			ret = copy_name(&rai->ai_dst_canonname, ai->ai_canonname);
	}
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
