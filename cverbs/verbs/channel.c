/* channel.c: completion channels.
 *
 * A channel's descriptor is an eventfd. The engine adds 1 for each event; a read takes 1 away, and waits in
  * the kernel, not in the engine. O_NONBLOCK and epoll work as on any file. */
#include "front.h"

#include <sys/eventfd.h>
#include <unistd.h>

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct roce_channel *ch;
	int r = roce_check(context, ROCE_CONTEXT);

	if (r)
		return roce_null(r);
	ch = calloc(1, sizeof *ch);
	if (!ch)
		return roce_null(ENOMEM);
	pthread_mutex_init(&ch->lock, NULL);
	ch->channel.context = context;
	ch->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->channel.fd < 0) {
		r = errno;
		free(ch);
		return roce_null(r);
	}
	r = -roce_engine_table->create_channel(handle_of(context), ch->channel.fd, &ch->handle);
	if (!r && !roce_enter(&ch->channel, ROCE_CHANNEL, context)) {
		roce_engine_table->destroy_channel(ch->handle);
		r = ENOMEM;
	}
	if (r) {
		close(ch->channel.fd);
		free(ch);
		return roce_null(r);
	}
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct roce_channel *ch = to_channel(channel);
	int r = roce_check(channel, ROCE_CHANNEL);

	if (r)
		return roce_err(r);
	pthread_mutex_lock(&ch->lock);
	r = channel->refcnt ? EBUSY : -roce_engine_table->destroy_channel(ch->handle);
	pthread_mutex_unlock(&ch->lock);
	if (r)
		return roce_err(r);
	roce_remove(channel);
	close(channel->fd);
	free(ch);
	return 0;
}

/* Takes the oldest event; *cq is NULL if its queue has been destroyed meanwhile. */
static int take(struct roce_channel *ch, struct roce_cq **cq)
{
	uint64_t cookie;
	int r;

	*cq = NULL;
	pthread_mutex_lock(&ch->lock);
	r = -roce_engine_table->channel_event(ch->handle, &cookie);
	if (!r && !roce_check((void *)(uintptr_t)cookie, ROCE_CQ)) {
		struct roce_cq *found = to_cq((struct ibv_cq *)(uintptr_t)cookie);

		if (!found->gone) {
			found->comp_events++;
			*cq = found;
		}
	}
	pthread_mutex_unlock(&ch->lock);
	return r == EAGAIN ? 0 : r;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ibcq, void **cq_context)
{
	struct roce_cq *cq;
	int r = roce_check(channel, ROCE_CHANNEL);

	if (!r && (!ibcq || !cq_context))
		r = EINVAL;
	do {
		uint64_t one;

		if (r)
			return roce_minus1(r);
		if (read(channel->fd, &one, sizeof one) != sizeof one)
			return -1;
		r = take(to_channel(channel), &cq);
	} while (r || !cq);
	*ibcq = &cq->cq;
	*cq_context = cq->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (!roce_known(cq, ROCE_CQ))
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

void roce_wait_comp_acks(struct roce_cq *cq)
{
	uint32_t told;

	if (cq->cq.channel) {
		struct roce_channel *ch = to_channel(cq->cq.channel);

		pthread_mutex_lock(&ch->lock);
		cq->gone = true;
		pthread_mutex_unlock(&ch->lock);
	}
	told = cq->comp_events;
	pthread_mutex_lock(&cq->cq.mutex);
	while (cq->cq.comp_events_completed != told)
		pthread_cond_wait(&cq->cq.cond, &cq->cq.mutex);
	pthread_mutex_unlock(&cq->cq.mutex);
}
