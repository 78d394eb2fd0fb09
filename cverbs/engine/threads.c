/* threads.c: counts the polling threads, so that the Go scheduler lets all of them run at once. */
#include "threads.h"

#include <pthread.h>
#include <stddef.h>

#include "_cgo_export.h"

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int usable;

static void thread_ends(void *unused)
{
	(void)unused;
	rocePollingThreads(-1);
}

static void make_key(void)
{
	usable = pthread_key_create(&key, thread_ends) == 0;
}

__attribute__((constructor)) static void prepare(void)
{
	pthread_once(&once, make_key);
}

void roce_thread_polls(void)
{
	static char counted;

	if (!usable || pthread_getspecific(key))
		return;
	if (pthread_setspecific(key, &counted) == 0)
		rocePollingThreads(1);
}
