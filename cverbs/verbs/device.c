/* device.c: the list of devices, and opening one. */
#include "front.h"

#include <endian.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
/* All devices that any list ever had. They are never freed, so a pointer to one is valid as long as the
 * program runs, also in a child of a fork. */
static struct roce_device *known;

static struct roce_device *device_of(const struct roce_device_info *info)
{
	struct roce_device **at, *d;
	int index = 0;

	for (at = &known; *at; at = &(*at)->next, index++)
		if (!strcmp((*at)->verbs.device.name, info->name))
			break;
	d = *at;
	if (!d) {
		struct ibv_device *v;

		d = calloc(1, sizeof *d);
		if (!d)
			return NULL;
		*at = d;
		d->index = index;
		v = &d->verbs.device;
		d->verbs.ops = d; /* any address of this library: programs compare it and never follow it */
		v->node_type = IBV_NODE_CA;
		v->transport_type = IBV_TRANSPORT_IB;
		snprintf(v->name, sizeof v->name, "%s", info->name);
		snprintf(v->dev_name, sizeof v->dev_name, "uverbs%d", index);
		snprintf(v->dev_path, sizeof v->dev_path, "%s/class/infiniband_verbs/uverbs%d", ibv_get_sysfs_path(), index);
		snprintf(v->ibdev_path, sizeof v->ibdev_path, "%s/class/infiniband/%s", ibv_get_sysfs_path(), v->name);
	}
	d->guid = info->guid;
	memcpy(d->netdev, info->netdev, sizeof d->netdev);
	return d;
}

/* Returns all of the engine's devices. Their number may change between the two calls of the engine. */
static struct roce_device_info *infos(const struct roce_engine *engine, int *count)
{
	struct roce_device_info *list = NULL;
	int room = 8, n;

	for (;;) {
		struct roce_device_info *bigger = realloc(list, (size_t)room * sizeof *list);

		if (!bigger) {
			free(list);
			return roce_null(ENOMEM);
		}
		list = bigger;
		n = engine->devices(list, room);
		if (n <= room)
			break;
		room = n;
	}
	if (n < 0) {
		free(list);
		return roce_null(-n);
	}
	*count = n;
	return list;
}

#undef ibv_get_device_list
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	const struct roce_engine *engine = roce_load_engine();
	struct roce_device_info *info;
	struct ibv_device **list;
	int n = 0;

	if (num_devices)
		*num_devices = 0;
	if (!engine || !(info = infos(engine, &n)))
		return NULL;
	list = calloc((size_t)n + 1, sizeof(struct ibv_device *));
	pthread_mutex_lock(&list_lock);
	for (int i = 0; list && i < n; i++) {
		struct roce_device *d = device_of(&info[i]);

		if (!d) {
			free(list);
			list = NULL;
			break;
		}
		list[i] = &d->verbs.device;
	}
	pthread_mutex_unlock(&list_lock);
	free(info);
	if (!list)
		return roce_null(ENOMEM);
	if (num_devices)
		*num_devices = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

static bool is_device(const struct ibv_device *device)
{
	struct roce_device *d;

	pthread_mutex_lock(&list_lock);
	for (d = known; d && &d->verbs.device != device; d = d->next)
		;
	pthread_mutex_unlock(&list_lock);
	return d;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return is_device(device) ? device->name : roce_null(EINVAL);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return is_device(device) ? to_device(device)->index : roce_minus1(EINVAL);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (!is_device(device)) {
		errno = EINVAL;
		return 0;
	}
	return htobe64(to_device(device)->guid);
}

/* The functions that programs call through a context. The slots named _compat_ are of libraries before 2010:
 * inline functions of later headers have only ever called the two queries. */
static int compat_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return ibv_query_device(context, attr);
}

#undef ibv_query_port
static int compat_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return ibv_query_port(context, port, attr);
}

static void *compat_nothing(void)
{
	return roce_null(EOPNOTSUPP);
}

static const struct ibv_context_ops data_ops = {
	._compat_query_device = compat_query_device,
	._compat_query_port = compat_query_port,
	._compat_alloc_pd = compat_nothing,
	._compat_dealloc_pd = compat_nothing,
	._compat_reg_mr = compat_nothing,
	._compat_rereg_mr = compat_nothing,
	._compat_dereg_mr = compat_nothing,
	.alloc_mw = roce_alloc_mw,
	.bind_mw = roce_bind_mw,
	.dealloc_mw = roce_dealloc_mw,
	._compat_create_cq = compat_nothing,
	.poll_cq = roce_poll_cq,
	.req_notify_cq = roce_req_notify_cq,
	._compat_cq_event = compat_nothing,
	._compat_resize_cq = compat_nothing,
	._compat_destroy_cq = compat_nothing,
	._compat_create_srq = compat_nothing,
	._compat_modify_srq = compat_nothing,
	._compat_query_srq = compat_nothing,
	._compat_destroy_srq = compat_nothing,
	.post_srq_recv = roce_post_srq_recv,
	._compat_create_qp = compat_nothing,
	._compat_query_qp = compat_nothing,
	._compat_modify_qp = compat_nothing,
	._compat_destroy_qp = compat_nothing,
	.post_send = roce_post_send,
	.post_recv = roce_post_recv,
	._compat_create_ah = compat_nothing,
	._compat_destroy_ah = compat_nothing,
	._compat_attach_mcast = compat_nothing,
	._compat_detach_mcast = compat_nothing,
	._compat_async_event = compat_nothing,
};

/* If a call is NULL here, the inline function of the header returns EOPNOTSUPP. */
static const struct verbs_context extended_ops = {
	.query_port = roce_query_port,
	.advise_mr = roce_advise_mr,
	.alloc_null_mr = roce_alloc_null_mr,
	.reg_dm_mr = roce_reg_dm_mr,
	.alloc_dm = roce_alloc_dm,
	.free_dm = roce_free_dm,
	.alloc_parent_domain = roce_alloc_parent_domain,
	.dealloc_td = roce_dealloc_td,
	.alloc_td = roce_alloc_td,
	.modify_cq = roce_modify_cq,
	.query_rt_values = roce_query_rt_values,
	.create_cq_ex = roce_create_cq_ex,
	.query_device_ex = roce_query_device_ex,
	.open_qp = roce_open_qp,
	.create_qp_ex = roce_create_qp_ex,
	.get_srq_num = roce_get_srq_num,
	.create_srq_ex = roce_create_srq_ex,
	.open_xrcd = roce_open_xrcd,
	.close_xrcd = roce_close_xrcd,
	.sz = sizeof(struct verbs_context),
};

static void close_fds(struct ibv_context *v)
{
	if (v->async_fd >= 0)
		close(v->async_fd);
	if (v->cmd_fd >= 0)
		close(v->cmd_fd);
	v->async_fd = v->cmd_fd = -1;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const struct roce_engine *engine;
	struct roce_port_attr port;
	struct roce_context *c;
	struct ibv_context *v;
	int r;

	if (!is_device(device))
		return roce_null(EINVAL);
	engine = roce_load_engine();
	if (!engine)
		return NULL;
	roce_signals_onstack();
	c = calloc(1, sizeof *c);
	if (!c)
		return roce_null(ENOMEM);
	c->verbs = extended_ops;
	c->generation = roce_generation;
	pthread_mutex_init(&c->lock, NULL);
	v = &c->verbs.context;
	v->device = device;
	v->ops = data_ops;
	v->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&v->mutex, NULL);
	/* No data pass through cmd_fd, but programs duplicate and poll it. */
	v->cmd_fd = memfd_create("roce-context", MFD_CLOEXEC);
	v->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (v->cmd_fd < 0 || v->async_fd < 0) {
		r = errno;
		goto fail;
	}
	r = -roce_open_noting(device->name, v->async_fd, &c->handle);
	if (r)
		goto fail;
	if ((r = -engine->query_device(c->handle, &c->attr)) || (r = -engine->query_port(c->handle, 1, &port)))
		goto close;
	v->num_comp_vectors = c->attr.comp_vectors;
	c->gid_tbl_len = (uint16_t)port.gid_tbl_len;
	c->dm_left = ROCE_DM_SIZE;
	if (!roce_enter(v, ROCE_CONTEXT, v)) {
		r = ENOMEM;
		goto close;
	}
	return v;
close:
	engine->close(c->handle);
fail:
	close_fds(v);
	free(c);
	return roce_null(r);
}

int ibv_close_device(struct ibv_context *context)
{
	int r = roce_check(context, ROCE_CONTEXT);
	struct roce_context *c;
	int left;

	if (r == EINVAL)
		return roce_minus1(r);
	c = to_context(context);
	if (!r) {
		atomic_store(&c->closed, true);
		roce_hand_over(NULL);
		r = -roce_engine_table->close(c->handle);
		if (r)
			atomic_store(&c->closed, false);
	}
	else
		r = 0; /* opened before a fork: the child has only the memory */
	if (r)
		return roce_minus1(r);
	left = roce_remove_context(context);
	close_fds(context);
	/* Programs may still use objects that they have not destroyed, and through them the context. */
	if (!left)
		free(c);
	return 0;
}

/* An object belongs to the engine of one process: no other process can import it. */
struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	return roce_null(EOPNOTSUPP);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	return roce_null(EOPNOTSUPP);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	(void)pd, (void)handle;
	return roce_null(EOPNOTSUPP);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	return roce_null(EOPNOTSUPP);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}
