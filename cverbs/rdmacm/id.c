/* id.c: identifiers: making and destroying them, addresses, options. */
#include "cma.h"

#include <arpa/inet.h>
#include <infiniband/ib.h>

struct cma_id *cma_id_of(struct rdma_cm_id *id)
{
	struct cma_id *p = container_of(id, struct cma_id, id);

	if (!id || !p->cm || p->cm != cma_engine()) {
		errno = EINVAL;
		return NULL;
	}
	return p;
}

struct cma_id *cma_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct cma_id *p = cma_alloc(CMA_ID);

	if (!p)
		return NULL;
	p->id.channel = channel;
	p->id.context = context;
	p->id.ps = ps;
	p->id.qp_type = type;
	p->responder_resources = p->initiator_depth = CMA_AS_AGREED;
	return p;
}

int cma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	const struct roce_cm_engine *cm = cma_engine();
	struct rdma_event_channel *own = NULL;
	struct cma_channel *ch;
	struct cma_id *p = NULL;
	int ret;

	if (!cm)
		return -1;
	if (!out)
		return fail(EINVAL);
	if (!channel && !(channel = own = rdma_create_event_channel()))
		return -1;
	ch = cma_channel_of(channel);
	p = ch ? cma_new_id(channel, context, ps, type) : NULL;
	if (!p)
		goto fail;
	p->sync = own != NULL;
	p->cm = cm;
	ret = cm->create_id(ch->handle, (uintptr_t)p, ps, type, &p->handle);
	if (ret) {
		errno = -ret;
		goto fail;
	}
	*out = &p->id;
	return 0;
fail:
	ret = errno;
	if (p)
		cma_free(CMA_ID, p);
	rdma_destroy_event_channel(own);
	return fail(ret);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	bool ud = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return cma_create_id(channel, id, context, ps, ud ? IBV_QPT_UD : IBV_QPT_RC);
}

void cma_release_id(struct cma_id *p)
{
	struct rdma_event_channel *own = p->sync ? p->id.channel : NULL;

	cma_free_groups(p);
	if (p->device)
		cma_put_device(p->device);
	free(p->ep_attr);
	free(p->ep_private);
	rdma_freeaddrinfo(p->resolved);
	cma_free(CMA_ID, p);
	rdma_destroy_event_channel(own);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cma_id *p = cma_id_of(id);

	if (!p || result(p->cm->destroy_id(p->handle)))
		return -1;
	/* The engine has no more events of it. The program must acknowledge those that it took. */
	if (id->event)
		rdma_ack_cm_event(id->event);
	pthread_mutex_lock(&cma_lock);
	cma_move_posted(p, NULL);
	while (p->acked != p->reported)
		pthread_cond_wait(&cma_acked, &cma_lock);
	pthread_mutex_unlock(&cma_lock);
	cma_release_id(p);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cma_id *p = cma_id_of(id);
	struct rdma_event_channel *old, *own = NULL;
	struct cma_channel *to;
	bool was_sync;
	int ret;

	if (!p)
		return -1;
	if (!channel && !(channel = own = rdma_create_event_channel()))
		return -1;
	to = cma_channel_of(channel);
	ret = to ? p->cm->migrate_id(p->handle, to->handle) : -EINVAL;
	if (ret) {
		rdma_destroy_event_channel(own);
		return fail(-ret);
	}
	old = id->channel;
	was_sync = p->sync;
	if (was_sync && id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	/* After this, no thread that takes events of the old channel has one of the identifier. */
	pthread_mutex_lock(&cma_lock);
	while (p->acked != p->reported)
		pthread_cond_wait(&cma_acked, &cma_lock);
	cma_move_posted(p, to);
	id->channel = channel;
	p->sync = own != NULL;
	pthread_mutex_unlock(&cma_lock);
	if (was_sync)
		rdma_destroy_event_channel(old);
	return 0;
}

int cma_complete(struct cma_id *p)
{
	struct rdma_cm_id *id = &p->id;

	if (!p->sync)
		return 0;
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	if (rdma_get_cm_event(id->channel, &id->event))
		return -1;
	if (!id->event->status)
		return 0;
	return fail(id->event->status < 0 ? -id->event->status : ECONNREFUSED);
}

/* Fills in the path record that a subnet manager would have given. */
static void fill_path(struct cma_id *p, const struct roce_cm_info *info)
{
	enum { EXACTLY = 2 }; /* selectors */

	memset(&p->path, 0, sizeof p->path);
	memcpy(p->path.dgid.raw, info->dgid, 16);
	memcpy(p->path.sgid.raw, info->sgid, 16);
	p->path.flow_label = htonl(info->flow_label);
	p->path.hop_limit = info->hop_limit;
	p->path.traffic_class = info->traffic_class;
	p->path.reversible = 1;
	p->path.numb_path = 1;
	p->path.pkey = htons(info->pkey);
	p->path.mtu_selector = p->path.rate_selector = p->path.packet_life_time_selector = EXACTLY;
	p->path.mtu = info->mtu;
	p->path.packet_life_time = info->packet_life_time;
	p->id.route.path_rec = &p->path;
	p->id.route.num_paths = 1;
}

int cma_query(struct cma_id *p, bool path)
{
	struct rdma_addr *addr = &p->id.route.addr;
	struct roce_cm_info info;

	if (result(p->cm->query_id(p->handle, &info)))
		return -1;
	p->id.qp_type = info.qp_type;
	cma_from_engine(&addr->src_storage, &info.src);
	cma_from_engine(&addr->dst_storage, &info.dst);
	memcpy(addr->addr.ibaddr.sgid.raw, info.sgid, 16);
	memcpy(addr->addr.ibaddr.dgid.raw, info.dgid, 16);
	addr->addr.ibaddr.pkey = htons(info.pkey);
	if (path)
		fill_path(p, &info);
	if (!info.device[0] || p->device)
		return 0;
	p->device = cma_get_device(info.device);
	if (!p->device)
		return -1;
	p->id.verbs = p->device->verbs;
	p->id.port_num = 1;
	if (!p->id.pd)
		p->id.pd = p->device->pd;
	return 0;
}

/* Refuses an address of AF_IB with the errors of Linux: EINVAL if the identifier is bound, which can only be to an
 * address of IP. Otherwise ENODEV, because no RoCE device has such an address; for a destination Linux returns that in
 * rdma_resolve_route only. */
static int no_infiniband(const struct rdma_cm_id *id, const struct sockaddr *addr)
{
	if (!addr || addr->sa_family != AF_IB)
		return 0;
	return fail(id->route.addr.src_addr.sa_family ? EINVAL : ENODEV);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cma_id *p = cma_id_of(id);
	struct roce_cm_addr a;

	if (!p || no_infiniband(id, addr) || cma_to_engine(&a, addr) || result(p->cm->bind_addr(p->handle, &a)))
		return -1;
	return cma_query(p, false);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr, int timeout_ms)
{
	struct cma_id *p = cma_id_of(id);
	struct roce_cm_addr src, dst;

	if (!p || no_infiniband(id, dst_addr) || cma_to_engine(&dst, dst_addr) || (src_addr && cma_to_engine(&src, src_addr)))
		return -1;
	if (result(p->cm->resolve_addr(p->handle, src_addr ? &src : NULL, &dst, timeout_ms)))
		return -1;
	return cma_complete(p);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct cma_id *p = cma_id_of(id);

	if (!p || result(p->cm->resolve_route(p->handle, timeout_ms)))
		return -1;
	return cma_complete(p);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct cma_id *p = cma_id_of(id);

	if (!p || result(p->cm->listen(p->handle, backlog)))
		return -1;
	return cma_query(p, false); /* the call may have chosen the port */
}

/* The options of level RDMA_OPTION_ID, by their names' values. */
static const struct {
	enum roce_cm_option option;
	size_t length;
} id_options[] = {
	[RDMA_OPTION_ID_TOS] = {ROCE_CM_TOS, sizeof(uint8_t)},
	[RDMA_OPTION_ID_REUSEADDR] = {ROCE_CM_REUSEADDR, sizeof(int)},
	[RDMA_OPTION_ID_AFONLY] = {ROCE_CM_AFONLY, sizeof(int)},
	[RDMA_OPTION_ID_ACK_TIMEOUT] = {ROCE_CM_ACK_TIMEOUT, sizeof(uint8_t)},
};

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	struct cma_id *p = cma_id_of(id);
	uint32_t value;

	if (!p)
		return -1;
	/* Paths of InfiniBand, the one option of level RDMA_OPTION_IB, cannot be set on RoCE. */
	if (level != RDMA_OPTION_ID || optname < 0 || (size_t)optname >= sizeof id_options / sizeof *id_options)
		return fail(ENOSYS);
	if (!optval || optlen != id_options[optname].length)
		return fail(EINVAL);
	value = optlen == sizeof(uint8_t) ? *(uint8_t *)optval : *(int *)optval != 0;
	return result(p->cm->set_option(p->handle, id_options[optname].option, value));
}
