/* Traffic on the real engine in situations that are hard for its runtime: in children of a fork, in short-lived
 * threads, and under signals. ROCE_FLAGS names two devices. */
#include "check.h"

#include <dirent.h>
#include <sys/time.h>

enum { SIZE = 4096, DEPTH = 16 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	char *buf;
};

static struct ibv_device **list;

static void make(struct end *e, int device)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	e->context = ibv_open_device(list[device]);
	CHECK(e->context);
	e->pd = ibv_alloc_pd(e->context);
	e->buf = calloc(1, SIZE);
	e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	e->channel = ibv_create_comp_channel(e->context);
	e->cq = ibv_create_cq(e->context, 2 * DEPTH, NULL, e->channel, 0);
	CHECK(e->pd && e->mr && e->channel && e->cq);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	CHECK(e->qp);
	CHECK(!ibv_query_gid(e->context, 1, 0, &e->gid));
	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void join(struct end *e, struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};

	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void end(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq) && !ibv_destroy_comp_channel(e->channel) && !ibv_dereg_mr(e->mr) && !ibv_dealloc_pd(e->pd) && !ibv_close_device(e->context));
	free(e->buf);
}

static void wait_for(struct end *e, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc)))
		;
	CHECK(n == 1);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.qp_num == e->qp->qp_num);
}

static void sleep_for_event(struct end *e)
{
	struct ibv_cq *cq;
	void *unused;

	CHECK(!ibv_get_cq_event(e->channel, &cq, &unused) && cq == e->cq);
	ibv_ack_cq_events(cq, 1);
}

static void exchange(struct end *a, struct end *b, int i, int sleeping)
{
	struct ibv_sge from = {(uintptr_t)a->buf, SIZE, a->mr->lkey}, to = {(uintptr_t)b->buf, SIZE, b->mr->lkey};
	struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;

	memset(a->buf, i, SIZE);
	CHECK(!ibv_req_notify_cq(b->cq, 0));
	CHECK(!ibv_post_recv(b->qp, &recv, &bad_recv) && !ibv_post_send(a->qp, &send, &bad));
	if (sleeping)
		sleep_for_event(b);
	wait_for(b, IBV_WC_RECV);
	wait_for(a, IBV_WC_SEND);
	CHECK(b->buf[0] == (char)i && b->buf[SIZE - 1] == (char)i);
}

static void traffic(void)
{
	struct end a, b;

	make(&a, 0);
	make(&b, 1);
	join(&a, &b);
	join(&b, &a);
	for (int i = 0; i < 100; i++)
		exchange(&a, &b, i, i % 4 == 0);
	end(&a);
	end(&b);
}

static void traffic_of_children(void)
{
	traffic();
	in_child(traffic);
	traffic();
}

static void *thread(void *unused)
{
	traffic();
	return unused;
}

static void threads(void)
{
	for (int i = 0; i < 5; i++) {
		pthread_t t[3];

		for (int j = 0; j < 3; j++)
			CHECK(!pthread_create(&t[j], NULL, thread, NULL));
		for (int j = 0; j < 3; j++)
			CHECK(!pthread_join(t[j], NULL));
	}
}

/* The engine's threads block the signals that programs use. The Go runtime unblocks those that report an error of
 * the thread, SIGPROF, SIGURG and SIGCHLD; its threads have alternate stacks. */
static void masks(void)
{
	static const int usual[] = {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGIO, SIGWINCH, 35, 64};
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	int others = 0;

	CHECK(dir);
	while ((e = readdir(dir))) {
		char path[300], line[256];
		unsigned long long blocked = 0;
		FILE *f;

		if (atoi(e->d_name) == 0 || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue; /* it has ended */
		while (fgets(line, sizeof line, f))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(f);
		others++;
		for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
			if (!(blocked >> (usual[i] - 1) & 1)) {
				fprintf(stderr, "thread %s does not block signal %d (%llx)\n", e->d_name, usual[i], blocked);
				exit(1);
			}
	}
	closedir(dir);
	CHECK(others > 0);
}

static volatile sig_atomic_t alarms;

/* Uses more stack than a new goroutine has. */
static void deep(int sig)
{
	volatile char room[8192];

	memset((char *)room, sig, sizeof room);
	alarms += room[100] == sig;
}

static void signals(void)
{
	struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};

	CHECK(signal(SIGALRM, deep) != SIG_ERR);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	for (int i = 0; i < 3; i++) {
		struct end a, b;

		make(&a, 0);
		make(&b, 1);
		join(&a, &b);
		join(&b, &a);
		for (int j = 0; j < 300; j++)
			exchange(&a, &b, j, 0);
		end(&a);
		end(&b);
	}
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	CHECK(alarms > 10);
	CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
}

int main(void)
{
	alarm(120);
	list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && list[1]);
	in_child(traffic); /* the list loaded the engine */
	traffic_of_children();
	in_child(traffic_of_children);
	threads();
	masks();
	alarm(0);
	signals();
	traffic();
	ibv_free_device_list(list);
	return 0;
}
