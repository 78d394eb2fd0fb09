/* posted.c: events that do not come from the engine: a program posts them (rdma_write_cm_event), or this library does
 * when it has resolved a name (rdma_resolve_addrinfo). They wait in their channel, behind those of the engine. */
#include "newer.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

struct cma_posted {
	struct cma_posted *next;
	struct cma_id *of;
	uint32_t type;
	int32_t status;
	uint64_t arg;
};

/* Takes 1 from the count of a channel. A thread that was faster finds no event, and waits again. */
static void uncount(int fd)
{
	eventfd_t one;
	struct iovec iov = {&one, sizeof one};

	if (preadv2(fd, &iov, 1, -1, RWF_NOWAIT) < 0)
		return;
}

/* The caller holds cma_lock. */
static void append(struct cma_channel *ch, struct cma_posted *e)
{
	struct cma_posted **at = &ch->posted;

	while (*at)
		at = &(*at)->next;
	e->next = NULL;
	*at = e;
}

static int post(struct cma_id *p, uint32_t type, int status, uint64_t arg)
{
	struct cma_posted *e = malloc(sizeof *e);
	int fd;

	if (!e)
		return fail(ENOMEM);
	*e = (struct cma_posted){.of = p, .type = type, .status = status, .arg = arg};
	pthread_mutex_lock(&cma_lock);
	append(container_of(p->id.channel, struct cma_channel, channel), e);
	fd = p->id.channel->fd;
	pthread_mutex_unlock(&cma_lock);
	return eventfd_write(fd, 1);
}

bool cma_take_posted(struct cma_channel *ch, struct cma_event *ev, struct roce_cm_event *raw)
{
	struct cma_posted *e = ch->posted;

	if (!e)
		return false;
	ch->posted = e->next;
	memset(raw, 0, sizeof *raw);
	raw->type = e->type;
	raw->status = e->status;
	ev->of = e->of;
	ev->arg = e->arg;
	free(e);
	return true;
}

void cma_move_posted(struct cma_id *p, struct cma_channel *to)
{
	struct cma_channel *from = container_of(p->id.channel, struct cma_channel, channel);

	for (struct cma_posted **at = &from->posted; *at;) {
		struct cma_posted *e = *at;

		if (e->of != p) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		uncount(from->channel.fd);
		if (to) {
			append(to, e);
			eventfd_write(to->channel.fd, 1);
		} else {
			free(e);
		}
	}
}

void cma_drop_posted(struct cma_channel *ch)
{
	while (ch->posted) {
		struct cma_posted *e = ch->posted;

		ch->posted = e->next;
		free(e);
	}
}

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg)
{
	struct cma_id *p = cma_id_of(id);

	if (!p)
		return -1;
	return (int)event == CMA_EVENT_USER ? post(p, event, status, arg) : fail(EINVAL);
}

/* ---- names ---- */

/* Converts an error of rdma_getaddrinfo to an errno. errno was 0 before the call. */
static int errno_of(int error)
{
	switch (error) {
	case -1: /* with errno; or EAI_BADFLAGS */
	case EAI_SYSTEM:
		return errno ? errno : EINVAL;
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_AGAIN:
		return EAGAIN;
	}
	return EADDRNOTAVAIL;
}

/* Resolves a name and posts the event. It returns 0 or an errno. */
static int resolve(struct cma_id *p, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *res;
	int ret;

	if (hints && hints->ai_flags & CMA_RAI_SA) {
		if (hints->ai_flags & CMA_RAI_DNS || node)
			return EOPNOTSUPP;
		/* As in Linux: only a port of InfiniBand has a subnet administrator. */
		return service && p->device ? EOPNOTSUPP : EINVAL;
	}
	errno = 0;
	ret = rdma_getaddrinfo(node, service, hints, &res);
	if (ret)
		return errno_of(ret);
	pthread_mutex_lock(&cma_lock);
	p->resolved = res;
	pthread_mutex_unlock(&cma_lock);
	return post(p, CMA_EVENT_ADDRINFO_RESOLVED, 0, 0) ? errno : 0;
}

/* The name is resolved within the call, as in rdma-core. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct cma_id *p = cma_id_of(id);
	bool busy;
	int ret;

	if (!p)
		return -1;
	pthread_mutex_lock(&cma_lock);
	busy = p->resolving;
	p->resolving = true;
	pthread_mutex_unlock(&cma_lock);
	if (busy)
		return fail(EBUSY);
	ret = resolve(p, node, service, hints);
	if (!ret)
		return cma_complete(p);
	pthread_mutex_lock(&cma_lock);
	rdma_freeaddrinfo(p->resolved);
	p->resolved = NULL;
	p->resolving = false;
	pthread_mutex_unlock(&cma_lock);
	return fail(ret);
}

int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	struct cma_id *p = cma_id_of(id);
	struct rdma_addrinfo *res;

	if (!p)
		return -1;
	if (!info)
		return fail(EINVAL);
	pthread_mutex_lock(&cma_lock);
	res = p->resolved;
	if (res) {
		p->resolved = NULL;
		p->resolving = false;
	}
	pthread_mutex_unlock(&cma_lock);
	if (!res)
		return fail(ENOENT);
	*info = res;
	return 0;
}
