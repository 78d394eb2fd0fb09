/* urgent.c: no thread of the program gets SIGURG from the engine. */
#include "rig.h"

#include <sys/syscall.h>
#include <time.h>

static struct end a, b;
static volatile int urgent, stop;

static void handler(int sig)
{
	(void)sig;
	urgent++;
}

static void *work(void *unused)
{
	while (!stop) {
		struct ibv_wc wc[4];

		transfer(&a, &b, IBV_WR_RDMA_WRITE, 65536);
		ibv_poll_cq(a.cq, 4, wc);
	}
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t t[3];
	time_t end;

	both(&a, &b);
	CHECK(!sigaction(SIGURG, &action, NULL));
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&t[i], NULL, work, NULL));
	for (end = time(NULL) + 2; time(NULL) < end;) { /* makes garbage, so that Go collects it */
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = a.cq, .recv_cq = a.cq, .cap = {DEPTH, DEPTH, 1, 1, 0}};
		struct ibv_qp *qp = ibv_create_qp(a.pd, &init);

		CHECK(qp && !ibv_destroy_qp(qp));
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	fprintf(stderr, "%d signals\n", urgent);
	CHECK(!urgent);
	return 0;
}
