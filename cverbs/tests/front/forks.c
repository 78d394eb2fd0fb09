/* A child of a fork has a new engine; calls on objects from before the fork return an errno. */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct ibv_context *before;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_comp_channel *channel;
static struct ibv_device **list;
static int port_fd, place_fd, other_fd;

static void check_instance(struct ibv_context *context, uint32_t instance)
{
	struct ibv_device_attr attr;

	CHECK(!ibv_query_device(context, &attr));
	CHECK(attr.vendor_part_id == instance && attr.hw_ver == (uint32_t)getpid());
}

static void old_objects(void)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {0}, *bad_recv;
	struct ibv_wc wc;
	struct ibv_cq *out;
	void *unused;

	CHECK(!ibv_query_device(before, &device) && device.max_qp == 7); /* it does not change */
	CHECK(ibv_query_port(before, 1, &port) == EIO);
	FAILS(EIO, ibv_alloc_pd(before));
	CHECK(ibv_post_send(qp, &wr, &bad) == EIO && bad == &wr);
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EIO);
	CHECK(ibv_poll_cq(cq, 1, &wc) == -EIO);
	CHECK(ibv_req_notify_cq(cq, 0) == EIO);
	CHECK(ibv_get_cq_event(channel, &out, &unused) == -1 && errno == EIO);
	CHECK(ibv_destroy_qp(qp) == EIO);
	CHECK(ibv_dealloc_pd(pd) == EIO);
	CHECK(!ibv_close_device(before));
}

static void grandchild(void)
{
	check_instance(open_first(), 2);
}

static void child(void)
{
	struct ibv_context *context;
	struct ibv_pd *mine;
	struct ibv_cq *queue;
	struct ibv_qp *made;
	struct ibv_wc wc;

	old_objects();
	context = ibv_open_device(list[1]); /* a list from before the fork still names its devices */
	CHECK(context);
	check_instance(context, 1);
	mine = ibv_alloc_pd(context);
	queue = ibv_create_cq(context, 1, NULL, NULL, 0);
	made = make_qp(mine, queue, IBV_QPT_RC);
	CHECK(mine && queue && made && !ibv_poll_cq(queue, 1, &wc));
	in_child(grandchild);
	CHECK(!ibv_destroy_qp(made) && !ibv_dealloc_pd(mine));
}

static void closed(void)
{
	CHECK(fcntl(port_fd, F_GETFD) == -1);
	CHECK(fcntl(place_fd, F_GETFD) == -1);
	CHECK(fcntl(other_fd, F_GETFD) >= 0);
	CHECK(fcntl(channel->fd, F_GETFD) >= 0);
}

static void first(void)
{
	check_instance(open_first(), 0);
}

static void second(void)
{
	check_instance(open_first(), 1);
}

static volatile int stop;

static void *make_and_free(void *arg)
{
	while (!stop) {
		struct ibv_pd *p = ibv_alloc_pd(arg);

		CHECK(p && !ibv_dealloc_pd(p));
	}
	return NULL;
}

/* Forks while other threads hold the library's locks. */
static void forks_of_threads(void)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, make_and_free, before));
	for (int i = 0; i < 50; i++)
		in_child(i % 10 ? closed : second);
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(t[i], NULL));
}

int main(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr.s_addr = htonl(0x7f3a0000 | (getpid() & 0xffff))};
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "\0goroce/test"};

	alarm(60);
	in_child(first); /* before this process has an engine */
	before = open_first();
	list = ibv_get_device_list(NULL);
	pd = ibv_alloc_pd(before);
	channel = ibv_create_comp_channel(before);
	cq = ibv_create_cq(before, 1, NULL, channel, 0);
	qp = make_qp(pd, cq, IBV_QPT_RC);
	CHECK(list && pd && cq && qp);
	check_instance(before, 0);

	port_fd = socket(AF_INET, SOCK_DGRAM, 0);
	other_fd = socket(AF_INET, SOCK_DGRAM, 0);
	place_fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(!bind(port_fd, (void *)&in, sizeof in));
	snprintf(un.sun_path + 12, 20, "%d", getpid());
	CHECK(!bind(place_fd, (void *)&un, offsetof(struct sockaddr_un, sun_path) + 20));
	in_child(closed);

	in_child(child);
	in_child(child); /* not the same engine as the first */
	forks_of_threads();
	check_instance(before, 0); /* the parent goes on */
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(before));
	return 0;
}
