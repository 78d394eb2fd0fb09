/* fake.c: see fake.h. */
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct fake state = {.room = FAKE_WRS};
static struct roce_host host;
static pthread_t thread; /* like Go's: started when the engine is loaded */

/* ---- handles: numbers, with the kind of what is open ---- */

enum kind { CONTEXT = 1, PD, MR, MW, CHANNEL, CQ, SRQ, XRCD, QP, AH };

enum { HANDLES = 256 };

static uint8_t open_kind[HANDLES];

static int make(enum kind kind, roce_handle *out)
{
	for (roce_handle h = 1; h < HANDLES; h++) {
		uint8_t none = 0;

		if (__atomic_compare_exchange_n(&open_kind[h], &none, (uint8_t)kind, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
			*out = h;
			return 0;
		}
	}
	return -ENOMEM;
}

static int check(roce_handle h, enum kind kind)
{
	return h < HANDLES && open_kind[h] == kind ? 0 : -EINVAL;
}

static int end(roce_handle h, enum kind kind)
{
	int r = check(h, kind);

	if (r || state.busy)
		return r ? r : -state.busy;
	open_kind[h] = 0;
	return 0;
}

/* ---- events ---- */

static uint64_t completions[FAKE_EVENTS];
static struct roce_event events[FAKE_EVENTS];
static int completion_in, completion_out, event_in, event_out;

static void ring(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof one) != sizeof one)
		_exit(99);
}

static void raise_completion(uint64_t cookie)
{
	completions[completion_in++ % FAKE_EVENTS] = cookie;
	ring(state.channel_fd);
}

static void raise_async(uint32_t type, uint64_t cookie)
{
	events[event_in++ % FAKE_EVENTS] = (struct roce_event){.type = type, .port = 1, .cookie = cookie};
	ring(state.context_fd);
}

struct fake *fake_state(void)
{
	state.raise_completion = raise_completion;
	state.raise_async = raise_async;
	return &state;
}

/* ---- devices ---- */

static int devices(struct roce_device_info *list, int n)
{
	for (int i = 0; i < 2 && i < n; i++) {
		memset(&list[i], 0, sizeof list[i]);
		memcpy(list[i].name, i ? "fake1" : "fake0", 6);
		list[i].guid = 0x0102030405060708;
	}
	return 2;
}

static int open_(const char *name, int fd, roce_handle *out)
{
	(void)name;
	state.context_fd = fd;
	return make(CONTEXT, out);
}

static void exiting(void) {}

static int close_(roce_handle h)
{
	if (state.in_close)
		state.in_close();
	return end(h, CONTEXT);
}

/* Attributes carry the instance and the process ID, so that a test can read them. */
static int query_device(roce_handle h, struct roce_device_attr *out)
{
	*out = (struct roce_device_attr){.node_guid = 0x0102030405060708, .vendor_part_id = host.instance, .hw_ver = (uint32_t)getpid(), .comp_vectors = 2, .phys_port_cnt = 1, .max_qp = 7};
	return check(h, CONTEXT);
}

static int query_port(roce_handle h, uint32_t port, struct roce_port_attr *out)
{
	*out = (struct roce_port_attr){.state = 4, .gid_tbl_len = 4, .pkey_tbl_len = 1, .link_layer = 2};
	return port == 1 ? check(h, CONTEXT) : -EINVAL;
}

/* Entries 1 and 3 are 10.0.0.1 and fe80::1, the others are empty. */
static int query_gid(roce_handle h, uint32_t port, uint32_t index, struct roce_gid *out)
{
	memset(out, 0, sizeof *out);
	out->type = index & 1 ? 2 : 0xffffffff;
	if (index == 1)
		memcpy(out->raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01", 16);
	if (index == 3)
		memcpy(out->raw, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
	return port == 1 && index < 4 ? check(h, CONTEXT) : -EINVAL;
}

static int query_pkey(roce_handle h, uint32_t port, uint32_t index, uint16_t *pkey)
{
	*pkey = 0xffff;
	return index ? -ENOENT : port == 1 ? check(h, CONTEXT) : -EINVAL;
}

static int next_event(roce_handle h, struct roce_event *out)
{
	if (check(h, CONTEXT))
		return -EINVAL;
	if (event_in == event_out)
		return -EAGAIN;
	*out = events[event_out++ % FAKE_EVENTS];
	return 0;
}

/* ---- memory ---- */

static int alloc_pd(roce_handle ctx, roce_handle *out)
{
	return check(ctx, CONTEXT) ? -EINVAL : make(PD, out);
}

static int dealloc_pd(roce_handle h)
{
	return end(h, PD);
}

static int reg_mr(roce_handle pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, roce_handle *out, struct roce_mr_info *info)
{
	(void)access, (void)iova;
	if (check(pd, PD) || !length)
		return -EINVAL;
	make(MR, out);
	*info = (struct roce_mr_info){.addr = addr, .length = length, .lkey = *out << 8, .rkey = *out << 8};
	return 0;
}

static int reg_null_mr(roce_handle pd, roce_handle *out, struct roce_mr_info *info)
{
	return reg_mr(pd, 0, 1, 0, 0, out, info);
}

static int rereg_mr(roce_handle mr, const struct roce_rereg *how, struct roce_mr_info *info)
{
	*info = (struct roce_mr_info){.addr = how->addr, .length = how->length, .lkey = mr << 8 | 1, .rkey = mr << 8 | 1};
	return check(mr, MR);
}

static int dereg_mr(roce_handle h)
{
	return end(h, MR);
}

static int alloc_mw(roce_handle pd, uint32_t type, roce_handle *out, uint32_t *rkey)
{
	if (check(pd, PD) || !type || type > 2)
		return -EINVAL;
	*rkey = 0x100;
	return make(MW, out);
}

static int dealloc_mw(roce_handle h)
{
	return end(h, MW);
}

static int mw_rkey(roce_handle h, uint32_t *rkey)
{
	*rkey = 0x101;
	return check(h, MW);
}

static int bind_mw(roce_handle qp, const struct roce_send_wr *wr, uint32_t *rkey)
{
	state.sent[state.sends++] = *wr;
	*rkey = 0x101;
	return check(qp, QP);
}

/* ---- completions ---- */

static int create_channel(roce_handle ctx, int fd, roce_handle *out)
{
	state.channel_fd = fd;
	return check(ctx, CONTEXT) ? -EINVAL : make(CHANNEL, out);
}

static int destroy_channel(roce_handle h)
{
	return end(h, CHANNEL);
}

static int channel_event(roce_handle h, uint64_t *cookie)
{
	if (check(h, CHANNEL))
		return -EINVAL;
	if (completion_in == completion_out)
		return -EAGAIN;
	*cookie = completions[completion_out++ % FAKE_EVENTS];
	return 0;
}

static uint32_t vectors[HANDLES]; /* of completion queues */

static int create_cq(roce_handle ctx, uint32_t cqe, roce_handle channel, uint32_t vector, uint64_t cookie, roce_handle *out, uint32_t *got)
{
	int r = check(ctx, CONTEXT) ? -EINVAL : make(CQ, out);

	(void)channel;
	*got = cqe + 1;
	state.cq_cookie = cookie;
	if (!r)
		vectors[*out] = vector;
	return r;
}

static struct roce_collecting *collecting(roce_handle cq, int64_t *now)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	*now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec + FAKE_AHEAD;
	return &state.collecting[!!vectors[cq]];
}

static int resize_cq(roce_handle h, uint32_t cqe, uint32_t *got)
{
	*got = cqe;
	return check(h, CQ);
}

static int destroy_cq(roce_handle h)
{
	return end(h, CQ);
}

static int poll_cq(roce_handle h, struct roce_wc *wcs, int n)
{
	int i;

	if (check(h, CQ))
		return -EINVAL;
	for (i = 0; i < n && state.wc_next < state.wc_count; i++)
		wcs[i] = state.wcs[state.wc_next++];
	return i;
}

static int req_notify_cq(roce_handle h, int solicited)
{
	(void)solicited;
	return check(h, CQ);
}

/* ---- queues ---- */

static int create_srq(roce_handle ctx, struct roce_srq_init *init, roce_handle *out, uint32_t *srqn)
{
	state.srq_cookie = init->cookie;
	*srqn = 5;
	return check(ctx, CONTEXT) ? -EINVAL : make(SRQ, out);
}

static int modify_srq(roce_handle h, uint32_t mask, uint32_t max_wr, uint32_t limit)
{
	(void)mask, (void)max_wr, (void)limit;
	return check(h, SRQ);
}

static int query_srq(roce_handle h, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
{
	*max_wr = *max_sge = *limit = 1;
	return check(h, SRQ);
}

static int destroy_srq(roce_handle h)
{
	return end(h, SRQ);
}

static int take(int kind_ok, int n, int *posted)
{
	if (kind_ok)
		return kind_ok;
	state.batch[state.calls++] = n;
	*posted = n < state.room ? n : state.room;
	state.room -= *posted;
	return *posted < n ? -ENOMEM : 0;
}

static int post_recvs(int ok, const struct roce_recv_wr *wrs, int n, int *posted)
{
	int r = take(ok, n, posted);

	for (int i = 0; i < *posted; i++)
		state.received[state.recvs++] = wrs[i];
	return r;
}

static int post_srq_recv(roce_handle h, const struct roce_recv_wr *wrs, int n, int *posted)
{
	return post_recvs(check(h, SRQ), wrs, n, posted);
}

static int post_recv(roce_handle h, const struct roce_recv_wr *wrs, int n, int *posted)
{
	if (state.in_recv)
		state.in_recv();
	return post_recvs(check(h, QP), wrs, n, posted);
}

static int post_send(roce_handle h, const struct roce_send_wr *wrs, int n, int calls, int *posted, int *room)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int r;

	if (state.in_post)
		state.in_post(wrs[0].wr_id);
	pthread_mutex_lock(&lock);
	r = take(check(h, QP), n, posted);
	if (state.calls)
		state.program_calls[state.calls - 1] = calls;
	*room = state.room;

	for (int i = 0; i < *posted; i++) {
		int at = state.sends++;

		state.sent[at] = wrs[i];
		if (wrs[i].num_sge)
			state.first_sge[at] = wrs[i].sg[0];
		if (wrs[i].num_sge && wrs[i].flags & 8)
			memcpy(state.inline_data[at], (void *)(uintptr_t)wrs[i].sg[0].addr, wrs[i].sg[0].length);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static int open_xrcd(roce_handle ctx, int fd, int oflags, roce_handle *out)
{
	(void)fd, (void)oflags;
	return check(ctx, CONTEXT) ? -EINVAL : make(XRCD, out);
}

static int close_xrcd(roce_handle h)
{
	return end(h, XRCD);
}

static int create_qp(roce_handle ctx, struct roce_qp_init *init, roce_handle *out, uint32_t *qpn)
{
	if (check(ctx, CONTEXT) || (init->send_cq && check(init->send_cq, CQ)))
		return -EINVAL;
	init->cap = (struct roce_caps){64, 64, 4, 4, 60};
	state.qp_cookie = init->cookie;
	state.recv_ring = init->recv_ring;
	state.recv_slots = init->recv_slots;
	*qpn = 0x11;
	return make(QP, out);
}

static int open_qp(roce_handle xrcd, uint32_t qpn, uint64_t cookie, roce_handle *out)
{
	(void)qpn, (void)cookie;
	return check(xrcd, XRCD) ? -EINVAL : make(QP, out);
}

static int modify_qp(roce_handle h, const struct roce_qp_attr *attr, uint32_t mask)
{
	if (state.in_modify)
		state.in_modify();
	state.modified = *attr;
	state.modify_mask = mask;
	return check(h, QP);
}

static int query_qp(roce_handle h, struct roce_qp_attr *attr, struct roce_caps *caps)
{
	*attr = state.modified;
	*caps = (struct roce_caps){64, 64, 4, 4, 60};
	return check(h, QP);
}

static int destroy_qp(roce_handle h)
{
	return end(h, QP);
}

static int mcast(roce_handle h, const uint8_t gid[16])
{
	return gid[0] == 0xff ? check(h, QP) : -EINVAL;
}

static int create_ah(roce_handle pd, const struct roce_ah_attr *attr, roce_handle *out)
{
	state.ah = *attr;
	return check(pd, PD) ? -EINVAL : make(AH, out);
}

static int destroy_ah(roce_handle h)
{
	return end(h, AH);
}

static const struct roce_engine table = {
	.abi = ROCE_ENGINE_ABI,
	.size = sizeof table,
	.devices = devices,
	.open = open_,
	.close = close_,
	.exiting = exiting,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.next_event = next_event,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_mr,
	.reg_null_mr = reg_null_mr,
	.rereg_mr = rereg_mr,
	.dereg_mr = dereg_mr,
	.alloc_mw = alloc_mw,
	.dealloc_mw = dealloc_mw,
	.mw_rkey = mw_rkey,
	.bind_mw = bind_mw,
	.create_channel = create_channel,
	.destroy_channel = destroy_channel,
	.channel_event = channel_event,
	.create_cq = create_cq,
	.resize_cq = resize_cq,
	.destroy_cq = destroy_cq,
	.poll_cq = poll_cq,
	.req_notify_cq = req_notify_cq,
	.collecting = collecting,
	.create_srq = create_srq,
	.modify_srq = modify_srq,
	.query_srq = query_srq,
	.destroy_srq = destroy_srq,
	.post_srq_recv = post_srq_recv,
	.open_xrcd = open_xrcd,
	.close_xrcd = close_xrcd,
	.create_qp = create_qp,
	.open_qp = open_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.post_send = post_send,
	.post_recv = post_recv,
	.attach_mcast = mcast,
	.detach_mcast = mcast,
	.create_ah = create_ah,
	.destroy_ah = destroy_ah,
};

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

const struct roce_engine *roce_engine(const struct roce_host *h)
{
	host = *h;
	state.hand_over = h->hand_over;
	if (host.abi != ROCE_ENGINE_ABI)
		return NULL;
	return pthread_create(&thread, NULL, sleep_for_ever, NULL) ? NULL : &table;
}
