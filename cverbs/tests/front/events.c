/* Completion channels and asynchronous events: descriptors, acknowledgements, waiting. */
#include "check.h"

#include <fcntl.h>
#include <sys/epoll.h>

static struct fake *f;
static struct ibv_context *context;

static int readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0);
}

static void channels(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	int mine, flags;
	struct ibv_cq *cq, *out;
	void *out_context;

	CHECK(channel);
	cq = ibv_create_cq(context, 1, &mine, channel, 0);
	CHECK(cq && channel->refcnt == 1 && cq->channel == channel);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(!readable(channel->fd));
	for (int i = 0; i < 3; i++)
		f->raise_completion(f->cq_cookie);
	for (int i = 0; i < 3; i++) { /* one event for each read, whatever the counter holds */
		CHECK(readable(channel->fd) == 1);
		CHECK(!ibv_get_cq_event(channel, &out, &out_context) && out == cq && out_context == &mine);
	}
	flags = fcntl(channel->fd, F_GETFL);
	CHECK(flags >= 0 && !fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK));
	CHECK(ibv_get_cq_event(channel, &out, &out_context) == -1 && errno == EAGAIN);
	ibv_ack_cq_events(cq, 3);
	/* An event that the program has not taken needs no acknowledgement; destroying the queue drops it. */
	f->raise_completion(f->cq_cookie);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(ibv_get_cq_event(channel, &out, &out_context) == -1 && errno == EAGAIN);
	CHECK(!ibv_destroy_comp_channel(channel));
}

struct waiting {
	struct ibv_comp_channel *channel;
	struct ibv_cq *got;
};

static void *wait_for_event(void *arg)
{
	struct waiting *w = arg;
	void *unused;

	CHECK(!ibv_get_cq_event(w->channel, &w->got, &unused));
	return NULL;
}

static void blocking(void)
{
	struct waiting w = {.channel = ibv_create_comp_channel(context)};
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, w.channel, 0);
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, wait_for_event, &w));
	usleep(20000);
	CHECK(!w.got);
	f->raise_completion(f->cq_cookie);
	CHECK(!pthread_join(t, NULL) && w.got == cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(w.channel));
}

static volatile int acknowledged;

static void *acknowledge_cq(void *cq)
{
	usleep(50000);
	acknowledged = 1;
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void *acknowledge_event(void *event)
{
	usleep(50000);
	acknowledged = 1;
	ibv_ack_async_event(event);
	return NULL;
}

static void destroy_waits(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, channel, 0), *out;
	struct ibv_async_event event;
	void *unused;
	pthread_t t;

	f->raise_completion(f->cq_cookie);
	CHECK(!ibv_get_cq_event(channel, &out, &unused));
	CHECK(!pthread_create(&t, NULL, acknowledge_cq, cq));
	CHECK(!ibv_destroy_cq(cq) && acknowledged);
	CHECK(!pthread_join(t, NULL) && !ibv_destroy_comp_channel(channel));

	acknowledged = 0;
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	f->raise_async(IBV_EVENT_CQ_ERR, f->cq_cookie);
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq);
	CHECK(!pthread_create(&t, NULL, acknowledge_event, &event));
	CHECK(!ibv_destroy_cq(cq) && acknowledged);
	CHECK(!pthread_join(t, NULL));
}

static void asynchronous(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(pd, cq, IBV_QPT_RC);
	struct ibv_srq_init_attr init = {0};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_async_event event;
	int fd = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};

	CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, context->async_fd, &e));
	CHECK(!epoll_wait(fd, &e, 1, 0));
	f->raise_async(IBV_EVENT_QP_LAST_WQE_REACHED, f->qp_cookie);
	f->raise_async(IBV_EVENT_SRQ_LIMIT_REACHED, f->srq_cookie);
	f->raise_async(IBV_EVENT_GID_CHANGE, 0);
	CHECK(epoll_wait(fd, &e, 1, 0) == 1);
	CHECK(!ibv_get_async_event(context, &event) && event.element.qp == qp);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.element.port_num == 1);
	ibv_ack_async_event(&event);
	CHECK(!epoll_wait(fd, &e, 1, 0));
	/* The event of a destroyed queue pair is skipped. */
	f->raise_async(IBV_EVENT_COMM_EST, f->qp_cookie);
	CHECK(!ibv_destroy_qp(qp));
	f->raise_async(IBV_EVENT_PORT_ACTIVE, 0);
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_PORT_ACTIVE);
	CHECK(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	close(fd);
}

int main(void)
{
	alarm(30);
	context = open_first();
	f = fake();
	channels();
	blocking();
	destroy_waits();
	asynchronous();
	return 0;
}
