/* objects.c: which pointers are objects of this library.
 *
 * Control calls look their arguments up in a table of addresses, which does not touch the memory: a pointer
  * that is NULL, freed, foreign or of another kind is an errno. Calls of the data path do not look up: there
  * the engine checks the handle. */
#include "front.h"

struct entry {
	const void *object;
	const struct ibv_context *context;
	enum roce_kind kind;
	uint32_t generation;
	struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry **buckets;
static size_t bucket_count, entries;

void roce_objects_lock(void)
{
	pthread_mutex_lock(&lock);
}

void roce_objects_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static struct entry **bucket(struct entry **table, size_t count, const void *object)
{
	uint64_t h = (uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15;

	return &table[h >> 32 & (count - 1)];
}

/* Returns the pointer to the entry of an object, or NULL. */
static struct entry **find(const void *object)
{
	if (!bucket_count)
		return NULL;
	for (struct entry **at = bucket(buckets, bucket_count, object); *at; at = &(*at)->next)
		if ((*at)->object == object)
			return at;
	return NULL;
}

static void grow(void)
{
	size_t count = bucket_count ? 2 * bucket_count : 64;
	struct entry **table = calloc(count, sizeof *table);

	if (!table)
		return; /* the old one is slower, not wrong */
	for (size_t i = 0; i < bucket_count; i++)
		for (struct entry *e = buckets[i], *next; e; e = next) {
			struct entry **at = bucket(table, count, e->object);

			next = e->next;
			e->next = *at;
			*at = e;
		}
	free(buckets);
	buckets = table;
	bucket_count = count;
}

bool roce_enter(const void *object, enum roce_kind kind, const struct ibv_context *context)
{
	struct entry *e = malloc(sizeof *e), **at;

	if (!e)
		return false;
	*e = (struct entry){.object = object, .kind = kind, .context = context, .generation = roce_generation};
	roce_objects_lock();
	if (entries >= bucket_count)
		grow();
	if (!bucket_count) {
		roce_objects_unlock();
		free(e);
		return false;
	}
	at = bucket(buckets, bucket_count, object);
	e->next = *at;
	*at = e;
	entries++;
	roce_objects_unlock();
	return true;
}

static void unhang(struct entry **at)
{
	struct entry *e = *at;

	*at = e->next;
	entries--;
	free(e);
}

void roce_remove(const void *object)
{
	struct entry **at;

	roce_objects_lock();
	at = find(object);
	if (at)
		unhang(at);
	roce_objects_unlock();
}

int roce_remove_context(const struct ibv_context *context)
{
	int n = 0;

	roce_objects_lock();
	for (size_t i = 0; i < bucket_count; i++)
		for (struct entry **at = &buckets[i]; *at;)
			if ((*at)->context == context) {
				n += (*at)->object != context;
				unhang(at);
			} else {
				at = &(*at)->next;
			}
	roce_objects_unlock();
	return n;
}

int roce_check_in(const struct ibv_context *context, const void *object, enum roce_kind kind)
{
	struct entry **at;
	int r = EINVAL;

	roce_objects_lock();
	at = find(object);
	if (at && (kind == ROCE_ANY || (*at)->kind == kind) && (!context || (*at)->context == context))
		r = (*at)->generation == roce_generation ? 0 : EIO;
	roce_objects_unlock();
	return r;
}

int roce_check(const void *object, enum roce_kind kind)
{
	return roce_check_in(NULL, object, kind);
}

bool roce_known(const void *object, enum roce_kind kind)
{
	return roce_check(object, kind) != EINVAL;
}
