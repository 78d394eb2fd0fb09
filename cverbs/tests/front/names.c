/* Prints all names and rates of the library that the argument names. */
#include "check.h"

static void *library;

#define FIND(name) __typeof__(&(name)) name##_; *(void **)&name##_ = dlsym(library, #name); CHECK(name##_)

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	library = dlopen(argv[1], RTLD_NOW);
	CHECK(library);
	FIND(ibv_node_type_str);
	FIND(ibv_port_state_str);
	FIND(ibv_event_type_str);
	FIND(ibv_wc_status_str);
	FIND(ibv_rate_to_mult);
	FIND(ibv_rate_to_mbps);
	FIND(mult_to_ibv_rate);
	FIND(mbps_to_ibv_rate);
	for (int i = -1; i < 30; i++) {
		printf("%d: %s, %s, %s", i, ibv_node_type_str_(i), ibv_port_state_str_(i), ibv_wc_status_str_(i));
		if (i < 20)
			printf(", %s", ibv_event_type_str_(i)); /* later releases have more */
		printf(", %d, %d\n", ibv_rate_to_mult_(i), ibv_rate_to_mbps_(i));
	}
	for (int i = 0; i < 600; i++)
		if (mult_to_ibv_rate_(i))
			printf("%d times: %d\n", i, mult_to_ibv_rate_(i));
	for (int i = 0; i < 2000000; i++)
		if (mbps_to_ibv_rate_(i))
			printf("%d Mbit/s: %d\n", i, mbps_to_ibv_rate_(i));
	return 0;
}
