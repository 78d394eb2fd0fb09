/* device.c: the devices that identifiers are bound to. */
#include "cma.h"

#include <stdio.h>

pthread_mutex_t cma_devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cma_device *devices;
static const struct roce_cm_engine *engine; /* the engine of the devices */

/* Opens a device. The lock is held. */
static struct cma_device *open_device(struct ibv_device *device)
{
	struct ibv_device_attr attr;
	struct cma_device *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	snprintf(d->name, sizeof d->name, "%s", ibv_get_device_name(device));
	d->verbs = ibv_open_device(device);
	if (!d->verbs || ibv_query_device(d->verbs, &attr)) {
		int e = errno;

		if (d->verbs)
			ibv_close_device(d->verbs);
		free(d);
		errno = e;
		return NULL;
	}
	d->max_responder_resources = (uint8_t)(attr.max_qp_rd_atom < 0xFF ? attr.max_qp_rd_atom : 0xFE);
	d->max_initiator_depth = (uint8_t)(attr.max_qp_init_rd_atom < 0xFF ? attr.max_qp_init_rd_atom : 0xFE);
	d->next = devices;
	devices = d;
	return d;
}

/* Finds a device that is open. The lock is held. */
static struct cma_device *find_open(const char *name)
{
	struct cma_device *d = devices;

	while (d && strcmp(d->name, name))
		d = d->next;
	return d;
}

/* Finds a device, and opens it if it is not open. The lock is held. */
static struct cma_device *find(const char *name)
{
	struct cma_device *d = find_open(name);
	struct ibv_device **list = d ? NULL : ibv_get_device_list(NULL);

	if (!list)
		return d;
	errno = ENODEV;
	for (struct ibv_device **at = list; *at && !d; at++)
		if (!strcmp(ibv_get_device_name(*at), name))
			d = open_device(*at);
	ibv_free_device_list(list);
	return d;
}

/* Forgets the devices that were opened before a fork. The lock is held. */
static void forget_after_fork(void)
{
	const struct roce_cm_engine *now = cma_engine();

	if (engine != now)
		devices = NULL;
	engine = now;
}

struct cma_device *cma_get_device(const char *name)
{
	struct cma_device *d;

	pthread_mutex_lock(&cma_devices_lock);
	forget_after_fork();
	d = find(name);
	if (d && !d->pd)
		d->pd = ibv_alloc_pd(d->verbs);
	if (d && d->pd)
		d->users++;
	else
		d = NULL;
	pthread_mutex_unlock(&cma_devices_lock);
	return d;
}

void cma_put_device(struct cma_device *d)
{
	pthread_mutex_lock(&cma_devices_lock);
	if (!--d->users) {
		if (d->xrcd && !ibv_close_xrcd(d->xrcd))
			d->xrcd = NULL;
		if (!ibv_dealloc_pd(d->pd)) /* it fails if the program has left objects in it */
			d->pd = NULL;
	}
	pthread_mutex_unlock(&cma_devices_lock);
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	int n = 0, found = 0;
	struct ibv_device **list = cma_engine() ? ibv_get_device_list(&n) : NULL;
	struct ibv_context **contexts = list ? calloc((size_t)n + 1, sizeof *contexts) : NULL;

	if (contexts) {
		pthread_mutex_lock(&cma_devices_lock);
		forget_after_fork();
		for (int i = 0; i < n; i++) {
			struct cma_device *d = find_open(ibv_get_device_name(list[i]));

			if (!d)
				d = open_device(list[i]);
			if (d)
				contexts[found++] = d->verbs;
		}
		pthread_mutex_unlock(&cma_devices_lock);
	}
	if (list)
		ibv_free_device_list(list);
	if (num_devices)
		*num_devices = found;
	if (contexts && !found) {
		free(contexts);
		errno = ENODEV;
		return NULL;
	}
	return contexts;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
