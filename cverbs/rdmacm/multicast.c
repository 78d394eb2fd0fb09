/* multicast.c: multicast groups. The engine resolves the address of a group. rdma_get_cm_event attaches the
 * queue pair when the program gets the event. */
#include "cma.h"

static uint64_t last_number; /* under cma_lock */

struct cma_group *cma_group_of(struct cma_id *p, uint64_t number)
{
	struct cma_group *g = p->groups;

	while (g && g->number != number)
		g = g->next;
	return g;
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	struct cma_id *p = cma_id_of(id);
	struct cma_group *g, **at;
	struct roce_cm_addr addr;
	uint64_t number;
	int ret;

	if (!p)
		return -1;
	if (!attr || !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS))
		return fail(EINVAL);
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
	    ((attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) && attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED))
		return fail(ENOTSUP);
	if (cma_to_engine(&addr, attr->addr))
		return -1;
	g = calloc(1, sizeof *g);
	if (!g)
		return -1;
	g->context = context;
	g->send_only = (attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) && attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	memcpy(&g->addr, attr->addr, cma_addr_len(attr->addr));
	pthread_mutex_lock(&cma_lock);
	number = g->number = ++last_number;
	g->next = p->groups;
	p->groups = g;
	pthread_mutex_unlock(&cma_lock);
	ret = p->cm->join(p->handle, &addr, g->send_only, number);
	if (!ret)
		return cma_complete(p);
	pthread_mutex_lock(&cma_lock);
	for (at = &p->groups; *at != g; at = &(*at)->next)
		;
	*at = g->next;
	pthread_mutex_unlock(&cma_lock);
	free(g);
	return fail(-ret);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = addr,
	};

	return rdma_join_multicast_ex(id, &attr, context);
}

int cma_joined(struct cma_event *ev, const struct roce_cm_event *raw)
{
	struct cma_group *g = ev->group;
	struct ibv_qp *qp = ev->of->id.qp;
	int ret;

	memcpy(g->mgid.raw, raw->ah.dgid, 16);
	g->mlid = raw->ah.dlid;
	if (!qp || g->send_only)
		return 0;
	ret = ibv_attach_mcast(qp, &g->mgid, g->mlid);
	g->attached = !ret;
	return ret < 0 ? errno : ret;
}

static void detach(struct cma_id *p, struct cma_group *g)
{
	if (g->attached && p->id.qp)
		ibv_detach_mcast(p->id.qp, &g->mgid, g->mlid);
	g->attached = false;
}

void cma_detach_groups(struct cma_id *p)
{
	pthread_mutex_lock(&cma_lock);
	for (struct cma_group *g = p->groups; g; g = g->next)
		detach(p, g);
	pthread_mutex_unlock(&cma_lock);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cma_id *p = cma_id_of(id);
	socklen_t len = cma_addr_len(addr);
	struct cma_group *g, **at;
	struct roce_cm_addr a;
	int ret;

	if (!p)
		return -1;
	if (!len)
		return fail(EINVAL);
	pthread_mutex_lock(&cma_lock);
	for (at = &p->groups; *at && memcmp(&(*at)->addr, addr, len); at = &(*at)->next)
		;
	g = *at;
	if (g)
		*at = g->next;
	pthread_mutex_unlock(&cma_lock);
	if (!g)
		return fail(EADDRNOTAVAIL);
	detach(p, g);
	cma_to_engine(&a, addr);
	ret = p->cm->leave(p->handle, &a); /* fails if the join had failed */
	pthread_mutex_lock(&cma_lock);
	while (g->acked != g->reported)
		pthread_cond_wait(&cma_acked, &cma_lock);
	pthread_mutex_unlock(&cma_lock);
	free(g);
	return ret == -EADDRNOTAVAIL ? 0 : result(ret);
}

void cma_free_groups(struct cma_id *p)
{
	struct cma_group *g;

	while ((g = p->groups)) {
		p->groups = g->next;
		free(g);
	}
}
