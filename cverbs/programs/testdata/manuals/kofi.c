/* Connection finalization as the kernel OpenFabrics Interfaces (kOFI) explain it, a server and a
 * client, in user space on libfabric's verbs provider:
 *
 *	kofi -s ADDRESS PORT	the server: it rejects clients without the right private data
 *	kofi ADDRESS PORT	the client
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIVATE_DATA "Private Data"
#define GREETING "*** Client Connected"
#define EVENT_SIZE (sizeof(struct fi_eq_cm_entry) + 128)
#define TIMEOUT 20000

#define TRY(call) \
	do { \
		int ret = call; \
		if (ret) { \
			fprintf(stderr, "%s: %s (%d)\n", #call, fi_strerror(-ret), ret); \
			exit(1); \
		} \
	} while (0)

/* An application defined struct of object pointers. */
typedef struct {
	struct fi_info *prov;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_pep *pep;
	struct fid_eq *eq;
	struct fid_cq *send_cq;
	struct fid_cq *recv_cq;
	struct fid_mr *mr;
	char buf[64];
} application_context_t;

static application_context_t ctx;
static char ebuf[EVENT_SIZE];
static struct fi_eq_cm_entry *event = (struct fi_eq_cm_entry *)ebuf;

/* Waits for an event and returns the length of its private data. */
static size_t await_event(uint32_t want)
{
	uint32_t event_id;
	ssize_t n = fi_eq_sread(ctx.eq, &event_id, event, EVENT_SIZE, TIMEOUT, 0);

	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry eqe = {0};

		fi_eq_readerr(ctx.eq, &eqe, 0);
		fprintf(stderr, "fi_eq_readerr(): %s (%d), private data '%.*s'\n", fi_strerror(eqe.err), eqe.err, (int)eqe.err_data_size, (char *)eqe.err_data);
		exit(1);
	}
	if (n < (ssize_t)sizeof *event) {
		fprintf(stderr, "fi_eq_sread() returns %zd '%s'\n", n, fi_strerror(-n));
		exit(1);
	}
	if (event_id != want) {
		fprintf(stderr, "unexpected event %u\n", event_id);
		exit(1);
	}
	return n - sizeof *event;
}

/* Makes the endpoint with its queues, and registers the memory. */
static void open_endpoint(struct fi_info *info)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_UNSPEC, .size = 16};

	TRY(fi_domain(ctx.fabric, info, &ctx.domain, NULL));
	info->tx_attr->iov_limit = 1;
	info->rx_attr->iov_limit = 1;
	info->tx_attr->inject_size = 0;
	TRY(fi_endpoint(ctx.domain, info, &ctx.ep, &ctx));
	TRY(fi_cq_open(ctx.domain, &cq_attr, &ctx.send_cq, NULL));
	TRY(fi_cq_open(ctx.domain, &cq_attr, &ctx.recv_cq, NULL));
	TRY(fi_ep_bind(ctx.ep, &ctx.eq->fid, 0));
	TRY(fi_ep_bind(ctx.ep, &ctx.send_cq->fid, FI_SEND));
	TRY(fi_ep_bind(ctx.ep, &ctx.recv_cq->fid, FI_RECV));
	TRY(fi_enable(ctx.ep));
	TRY(fi_mr_reg(ctx.domain, ctx.buf, sizeof ctx.buf, FI_SEND | FI_RECV, 0, 0, 0, &ctx.mr, NULL));
}

static int server(void)
{
	struct fi_cq_msg_entry entry;
	struct sockaddr_in addr;
	size_t len = sizeof addr;

	TRY(fi_passive_ep(ctx.fabric, ctx.prov, &ctx.pep, &ctx));
	TRY(fi_pep_bind(ctx.pep, &ctx.eq->fid, 0));
	TRY(fi_listen(ctx.pep));
	TRY(fi_getname(&ctx.pep->fid, &addr, &len));
	printf("listening on %s:%d\n", inet_ntoa(addr.sin_addr), ntohs(addr.sin_port));

	len = await_event(FI_CONNREQ);
	if (len < strlen(PRIVATE_DATA) || strncmp((char *)event->data, PRIVATE_DATA, strlen(PRIVATE_DATA))) {
		char reason[64];
		int n = snprintf(reason, 55, "Rejected 'private data \"%.*s\"'", (int)len, (char *)event->data);

		printf("%s\n", reason);
		TRY(fi_reject(ctx.pep, event->info->handle, reason, n));
		return 1;
	}
	open_endpoint(event->info);
	/* post a receive prior to accept */
	TRY(fi_recv(ctx.ep, ctx.buf, sizeof ctx.buf, fi_mr_desc(ctx.mr), 0, &ctx));
	TRY(fi_accept(ctx.ep, NULL, 0));
	fi_freeinfo(event->info);
	await_event(FI_CONNECTED);
	if (event->fid != &ctx.ep->fid) {
		fprintf(stderr, "fid %p != %p\n", event->fid, &ctx.ep->fid);
		return 1;
	}
	len = sizeof addr;
	TRY(fi_getpeer(ctx.ep, &addr, &len));
	printf("connected with %s\n", inet_ntoa(addr.sin_addr));
	TRY(fi_cq_sread(ctx.recv_cq, &entry, 1, NULL, TIMEOUT) != 1);
	printf("received '%.*s'\n", (int)entry.len, ctx.buf);
	await_event(FI_SHUTDOWN);
	printf("shut down\n");
	return 0;
}

static int client(void)
{
	struct fi_cq_msg_entry entry;
	size_t len;

	open_endpoint(ctx.prov);
	TRY(fi_connect(ctx.ep, ctx.prov->dest_addr, PRIVATE_DATA, strlen(PRIVATE_DATA)));
	len = await_event(FI_CONNECTED);
	if (event->fid->context != &ctx) {
		fprintf(stderr, "context %p != %p\n", event->fid->context, (void *)&ctx);
		return 1;
	}
	printf("*** Client Connected\n");
	printf("Client private data(len %zu): '%.*s'\n", len, (int)len, (char *)event->data);
	strcpy(ctx.buf, GREETING);
	TRY(fi_send(ctx.ep, ctx.buf, strlen(GREETING), fi_mr_desc(ctx.mr), 0, &ctx));
	TRY(fi_cq_sread(ctx.send_cq, &entry, 1, NULL, TIMEOUT) != 1);
	TRY(fi_shutdown(ctx.ep, 0));
	return 0;
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	int serve = argc == 4 && !strcmp(argv[1], "-s"), rc;

	if (argc != 3 && !serve) {
		fprintf(stderr, "usage: kofi [-s] ADDRESS PORT\n");
		return 2;
	}
	setlinebuf(stdout);
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_MSG;
	hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->fabric_attr->prov_name = strdup("verbs");
	TRY(fi_getinfo(FI_VERSION(1, 9), argv[argc - 2], argv[argc - 1], serve ? FI_SOURCE : 0, hints, &ctx.prov));
	TRY(fi_fabric(ctx.prov->fabric_attr, &ctx.fabric, NULL));
	TRY(fi_eq_open(ctx.fabric, &eq_attr, &ctx.eq, NULL));
	rc = serve ? server() : client();
	if (ctx.ep)
		fi_close(&ctx.ep->fid);
	if (ctx.send_cq)
		fi_close(&ctx.send_cq->fid);
	if (ctx.recv_cq)
		fi_close(&ctx.recv_cq->fid);
	if (ctx.mr)
		fi_close(&ctx.mr->fid);
	if (ctx.domain)
		fi_close(&ctx.domain->fid);
	if (ctx.pep)
		fi_close(&ctx.pep->fid);
	fi_close(&ctx.eq->fid);
	fi_close(&ctx.fabric->fid);
	fi_freeinfo(ctx.prov);
	fi_freeinfo(hints);
	return rc;
}
