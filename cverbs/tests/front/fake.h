/* fake.h: an engine without devices, which records the calls. A test names it in ROCE_ENGINE, so that the library
 * loads it, and finds the same copy with fake_state(). */
#ifndef FAKE_H
#define FAKE_H

#include "../../engine/engine.h"

enum { FAKE_WRS = 4096, FAKE_EVENTS = 64 };

#define FAKE_AHEAD INT64_C(-3600000000000) /* the clock of collecting() less CLOCK_MONOTONIC, in ns */

struct fake {
	/* the posted requests, and the number in each call */
	struct roce_send_wr sent[FAKE_WRS];
	struct roce_sge first_sge[FAKE_WRS]; /* a copy for each: the program owns the array */
	uint8_t inline_data[FAKE_WRS][64];
	struct roce_recv_wr received[FAKE_WRS];
	int sends, recvs, calls, batch[FAKE_WRS], program_calls[FAKE_WRS];
	struct roce_collecting collecting[2]; /* of completion queues of vector 0 and of others */
	void (*hand_over)(struct roce_collecting *); /* of the library */
	void (*in_modify)(void), (*in_close)(void), (*in_recv)(void), (*in_post)(uint64_t id); /* called by these calls, unless NULL */
	int room; /* how many requests post_send and post_recv take before -ENOMEM */

	struct roce_wc wcs[FAKE_WRS]; /* the results of poll_cq */
	int wc_next, wc_count;

	struct roce_qp_attr modified;
	uint32_t modify_mask;
	struct roce_ah_attr ah;
	uint64_t cq_cookie, qp_cookie, srq_cookie; /* of the last object made */
	struct roce_recv_ring *recv_ring; /* of the last queue pair */
	uint64_t recv_slots;
	int channel_fd, context_fd;
	int busy; /* the result of destroy and close calls */

	/* Adds an event, as a device would. */
	void (*raise_completion)(uint64_t cookie);
	void (*raise_async)(uint32_t type, uint64_t cookie);
};

struct fake *fake_state(void);

#endif
