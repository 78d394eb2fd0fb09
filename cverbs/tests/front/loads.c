/* The library in a program that opens it late with dlopen, closes it, and starts and ends threads. The program is
 * not linked to it and finds its calls by name. */
#include "check.h"

static void *library;

#define FIND(name) __typeof__(&(name)) call_##name; *(void **)&call_##name = dlsym(library, #name); CHECK(call_##name)

static void *one_thread(void *context)
{
	FIND(ibv_alloc_pd);
	FIND(ibv_dealloc_pd);
	struct ibv_pd *pd = call_ibv_alloc_pd(context);

	CHECK(pd && !call_ibv_dealloc_pd(pd));
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	for (int i = 0; i < 3; i++) {
		struct ibv_device **list;
		struct ibv_context *context;
		int n;

		library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		CHECK(library);
		FIND(ibv_get_device_list);
		FIND(ibv_free_device_list);
		FIND(ibv_open_device);
		FIND(ibv_close_device);
		CHECK(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1") == (void *)call_ibv_get_device_list);
		CHECK(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
		list = call_ibv_get_device_list(&n);
		CHECK(list && n == 2 && !list[2]);
		context = call_ibv_open_device(list[0]);
		CHECK(context);
		for (int t = 0; t < 100; t++) {
			pthread_t thread;

			CHECK(!pthread_create(&thread, NULL, one_thread, context));
			CHECK(!pthread_join(thread, NULL));
		}
		CHECK(!call_ibv_close_device(context));
		call_ibv_free_device_list(list);
		CHECK(!dlclose(library));
	}
	return 0;
}
