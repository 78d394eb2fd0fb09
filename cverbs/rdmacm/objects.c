/* objects.c: memory of the objects that programs have pointers to.
 *
 * The memory of a freed object is reused only after more than RESTING other objects were freed. Until then
  * its first member, which the calls check, says that the object is dead. */
#include "cma.h"

enum { RESTING = 64 };

/* What freed memory holds: first the owner, NULL, then the next to be used. */
struct dead {
	const void *cm;
	struct dead *next;
};

static const size_t sizes[CMA_KINDS] = {
	[CMA_CHANNEL] = sizeof(struct cma_channel),
	[CMA_ID] = sizeof(struct cma_id),
	[CMA_EVENT] = sizeof(struct cma_event),
};

static struct {
	struct dead *first, *last;
	int count;
} resting[CMA_KINDS];

pthread_mutex_t cma_objects_lock = PTHREAD_MUTEX_INITIALIZER;

void *cma_alloc(enum cma_kind kind)
{
	struct dead *old = NULL;

	pthread_mutex_lock(&cma_objects_lock);
	if (resting[kind].count > RESTING) {
		old = resting[kind].first;
		resting[kind].first = old->next;
		resting[kind].count--;
	}
	pthread_mutex_unlock(&cma_objects_lock);
	if (old)
		return memset(old, 0, sizes[kind]);
	return calloc(1, sizes[kind]);
}

void cma_free(enum cma_kind kind, void *object)
{
	struct dead *d = memset(object, 0, sizes[kind]);

	pthread_mutex_lock(&cma_objects_lock);
	if (resting[kind].count++)
		resting[kind].last->next = d;
	else
		resting[kind].first = d;
	resting[kind].last = d;
	pthread_mutex_unlock(&cma_objects_lock);
}
