/* Queue pairs: create, modify, query, destroy, multicast. */
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"

static void put_caps(struct call *c, const struct ibv_qp_cap *a)
{
	put(c, "swr", a->max_send_wr);
	put(c, "rwr", a->max_recv_wr);
	put(c, "ssge", a->max_send_sge);
	put(c, "rsge", a->max_recv_sge);
	put(c, "inline", a->max_inline_data);
}

/* create_qp makes an extended queue pair if the request has send operations (ops). */
static int create_qp(struct call *c)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = object(c, "scq", K_CQ),
		.recv_cq = object(c, "rcq", K_CQ),
		.srq = object(c, "srq", K_SRQ),
		.cap = {
			.max_send_wr = (uint32_t)num(c, "swr"),
			.max_recv_wr = (uint32_t)num(c, "rwr"),
			.max_send_sge = (uint32_t)num(c, "ssge"),
			.max_recv_sge = (uint32_t)num(c, "rsge"),
			.max_inline_data = (uint32_t)num(c, "inline"),
		},
		.qp_type = (enum ibv_qp_type)num(c, "type"),
		.sq_sig_all = (int)num(c, "sigall"),
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = object(c, "pd", K_PD),
		.xrcd = object(c, "xrcd", K_XRCD),
		.send_ops_flags = num(c, "ops"),
	};
	struct ibv_qp *qp;
	int rc;

	if (!a.pd)
		return fail(c, "no pd");
	if (a.xrcd)
		a.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	if (a.send_ops_flags)
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (a.comp_mask == IBV_QP_INIT_ATTR_PD)
		qp = ibv_create_qp(a.pd, (struct ibv_qp_init_attr *)&a);
	else
		qp = ibv_create_qp_ex(ctx, &a);
	rc = made(c, K_QP, qp);
	if (!rc) {
		put(c, "qpn", qp->qp_num);
		put_caps(c, &a.cap);
	}
	return rc;
}

static void ah_args(struct call *c, struct ibv_ah_attr *a)
{
	a->is_global = (uint8_t)num(c, "grh");
	a->port_num = (uint8_t)num(c, "ahport");
	a->sl = (uint8_t)num(c, "sl");
	a->grh.sgid_index = (uint8_t)num(c, "sgid");
	a->grh.flow_label = (uint32_t)num(c, "fl");
	a->grh.traffic_class = (uint8_t)num(c, "tc");
	a->grh.hop_limit = (uint8_t)num(c, "hop");
	if (text(c, "dgid"))
		gid_arg(c, "dgid", &a->grh.dgid);
}

static int modify_qp(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ibv_qp_attr a = {
		.qp_state = (enum ibv_qp_state)num(c, "state"),
		.cur_qp_state = (enum ibv_qp_state)num(c, "cur"),
		.path_mtu = (enum ibv_mtu)num(c, "mtu"),
		.path_mig_state = (enum ibv_mig_state)num(c, "mig"),
		.qkey = (uint32_t)num(c, "qkey"),
		.rq_psn = (uint32_t)num(c, "rqpsn"),
		.sq_psn = (uint32_t)num(c, "sqpsn"),
		.dest_qp_num = (uint32_t)num(c, "dqpn"),
		.qp_access_flags = (unsigned int)num(c, "access"),
		.pkey_index = (uint16_t)num(c, "pkey"),
		.en_sqd_async_notify = (uint8_t)num(c, "sqdnotify"),
		.max_rd_atomic = (uint8_t)num(c, "rd"),
		.max_dest_rd_atomic = (uint8_t)num(c, "destrd"),
		.min_rnr_timer = (uint8_t)num(c, "minrnr"),
		.port_num = (uint8_t)num(c, "port"),
		.timeout = (uint8_t)num(c, "timeout"),
		.retry_cnt = (uint8_t)num(c, "retry"),
		.rnr_retry = (uint8_t)num(c, "rnr"),
	};
	int mask = (int)num(c, "mask");

	if (!qp)
		return fail(c, "no qp");
	ah_args(c, &a.ah_attr);
	if (mask & IBV_QP_ALT_PATH) {
		a.alt_ah_attr = a.ah_attr;
		a.alt_port_num = (uint8_t)num(c, "altport");
		a.alt_timeout = (uint8_t)num(c, "alttimeout");
	}
	return result(ibv_modify_qp(qp, &a, mask));
}

static int query_qp(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr a = { 0 };
	int rc;

	if (!qp)
		return fail(c, "no qp");
	rc = ibv_query_qp(qp, &a, (int)num(c, "mask"), &init);
	if (rc)
		return result(rc);
	put(c, "state", a.qp_state);
	put(c, "cur", a.cur_qp_state);
	put(c, "mtu", a.path_mtu);
	put(c, "mig", a.path_mig_state);
	put(c, "qkey", a.qkey);
	put(c, "rqpsn", a.rq_psn);
	put(c, "sqpsn", a.sq_psn);
	put(c, "dqpn", a.dest_qp_num);
	put(c, "access", a.qp_access_flags);
	put(c, "pkey", a.pkey_index);
	put(c, "draining", a.sq_draining);
	put(c, "rd", a.max_rd_atomic);
	put(c, "destrd", a.max_dest_rd_atomic);
	put(c, "minrnr", a.min_rnr_timer);
	put(c, "port", a.port_num);
	put(c, "timeout", a.timeout);
	put(c, "retry", a.retry_cnt);
	put(c, "rnr", a.rnr_retry);
	put_caps(c, &init.cap);
	return 0;
}

static int destroy_qp(struct call *c)
{
	struct ibv_qp *qp = object(c, "qp", K_QP);

	return qp ? ended(c, "qp", ibv_destroy_qp(qp)) : fail(c, "no qp");
}

static int multicast(struct call *c, int (*verb)(struct ibv_qp *, const union ibv_gid *, uint16_t))
{
	struct ibv_qp *qp = object(c, "qp", K_QP);
	union ibv_gid gid;

	if (!qp)
		return fail(c, "no qp");
	gid_arg(c, "gid", &gid);
	return result(verb(qp, &gid, 0));
}

static int attach_mcast(struct call *c) { return multicast(c, ibv_attach_mcast); }
static int detach_mcast(struct call *c) { return multicast(c, ibv_detach_mcast); }

/* virtio_net adds a new address to the card's filter with a short delay. */
enum { FILTER_US = 200000 };

/* join makes the guest a member of an IPv4 group until the connection
* ends, because rxe does not do that. */
static int join(struct call *c)
{
	const char *group = text(c, "group"), *netdev = text(c, "netdev");
	struct ip_mreqn m = { 0 };
	int fd;

	if (!group || !netdev || inet_pton(AF_INET, group, &m.imr_multiaddr) != 1)
		return fail(c, "no group or netdev");
	m.imr_ifindex = (int)if_nametoindex(netdev);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)))
		return errno;
	usleep(FILTER_US);
	return 0;
}

const struct command qp_commands[] = {
	{ "create_qp", create_qp, "pd type scq rcq srq xrcd swr rwr ssge rsge inline sigall ops", "handle qpn and the caps" },
	{ "modify_qp", modify_qp, "qp mask and the fields of ibv_qp_attr", "" },
	{ "query_qp", query_qp, "qp mask", "the fields of ibv_qp_attr and the caps" },
	{ "destroy_qp", destroy_qp, "qp", "" },
	{ "attach_mcast", attach_mcast, "qp gid", "" },
	{ "detach_mcast", detach_mcast, "qp gid", "" },
	{ "join", join, "group netdev", "" },
	{ 0 },
};
