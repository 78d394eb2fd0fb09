/* exit.c: tells the engine that the process ends.
 *
 * A program may call exit in a signal handler, and the signal may have interrupted its thread inside the
  * engine. A call into Go would then end the process with an error of the runtime. So a separate thread makes
  * the calls, and the exiting thread waits for it. In a handler it waits a limited time: the interrupted
  * code may hold locks of the engine. */
#include "exit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"

enum { PATIENCE_MS = 500 }; /* how long a signal handler waits */

static pid_t owner;
static pthread_once_t reports = PTHREAD_ONCE_INIT, watches = PTHREAD_ONCE_INIT;
static int failed;
static bool watched, stuck;
static sem_t wanted, done;
static void (*volatile call)(void);

static void *watch(void *unused)
{
	for (;;) {
		while (sem_wait(&wanted))
			;
		call();
		sem_post(&done);
	}
	return unused;
}

static void start_watch(void)
{
	pthread_t thread;

	owner = getpid();
	if (sem_init(&wanted, 0, 0) || sem_init(&done, 0, 0) || pthread_create(&thread, NULL, watch, NULL))
		return;
	pthread_detach(thread);
	watched = true;
}

void roce_watch_exit(void)
{
	pthread_once(&watches, start_watch);
}

/* A handler that interrupts the engine runs on the alternate stack. */
static bool in_handler(void)
{
	stack_t stack;

	return !sigaltstack(NULL, &stack) && stack.ss_flags & SS_ONSTACK;
}

static void ask(void (*what)(void))
{
	struct timespec limit;
	int r;

	/* A child of a fork has the exit handlers, too, but no Go runtime. */
	if (!watched || stuck || getpid() != owner)
		return;
	call = what;
	sem_post(&wanted);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_nsec += PATIENCE_MS * 1000000L;
	limit.tv_sec += limit.tv_nsec / 1000000000;
	limit.tv_nsec %= 1000000000;
	do
		r = in_handler() ? sem_timedwait(&done, &limit) : sem_wait(&done);
	while (r && errno == EINTR);
	stuck = r != 0;
}

void roce_exiting(void)
{
	ask(roceExiting);
}

static void process_ends(void)
{
	ask(roceExit);
}

static void add_handler(void)
{
	failed = atexit(process_ends);
}

int roce_report_at_exit(void)
{
	pthread_once(&reports, add_handler);
	return failed;
}
