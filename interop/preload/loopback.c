/* loopback.c: a library that a program of rdma-core preloads on Linux.
 *
 * A datagram rsocket of librdmacm makes an address handle for its own port without a GRH. InfiniBand allows that. The
 * kernel refuses it for RoCE (EINVAL), so no datagram rsocket can send or receive. This library adds the GRH that is
 * missing: the port's own address as destination, the one of IPv4 if there is one. librdmacm itself stays as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <string.h>

enum { GIDS = 16, HOP_LIMIT = 64 };

/* Returns the index of the GID to use, which it stores in *gid. */
static int own(struct ibv_context *context, uint8_t port, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF}; /* an IPv4 address */

	for (int i = 0; i < GIDS; i++)
		if (!ibv_query_gid(context, port, i, gid) && !memcmp(gid->raw, mapped, sizeof mapped))
			return i;
	ibv_query_gid(context, port, 0, gid);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*real)(struct ibv_pd *, struct ibv_ah_attr *) = dlvsym(RTLD_NEXT, "ibv_create_ah", "IBVERBS_1.1");
	struct ibv_ah_attr whole = *attr;

	if (!attr->is_global) {
		whole.is_global = 1;
		whole.grh.hop_limit = HOP_LIMIT;
		whole.grh.sgid_index = (uint8_t)own(pd->context, attr->port_num, &whole.grh.dgid);
	}
	return real(pd, &whole);
}
