/* ends.c: exits during traffic.
 *
 *	ends handler MICROSECONDS	exit in a signal handler, whatever the signal interrupts
 *	ends threads	exit while other threads post and poll
 *	ends main	return from main while other threads post and poll */
#include "rig.h"

static struct end a, b;

static void on_alarm(int sig)
{
	(void)sig;
	exit(0);
}

static void *work(void *unused)
{
	for (;;) {
		struct ibv_wc wc[4];

		transfer(&a, &b, IBV_WR_RDMA_WRITE, 4096);
		ibv_poll_cq(a.cq, 4, wc);
	}
	return unused;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	both(&a, &b);
	if (!strcmp(argv[1], "handler")) {
		struct itimerval once = {{0, 0}, {0, atoi(argv[2])}};

		signal(SIGALRM, on_alarm);
		setitimer(ITIMER_REAL, &once, NULL);
		work(NULL);
	}
	for (int i = 0; i < 3; i++) {
		pthread_t t;

		CHECK(!pthread_create(&t, NULL, work, NULL));
	}
	usleep(20000);
	if (!strcmp(argv[1], "threads"))
		exit(0);
	return 0;
}
