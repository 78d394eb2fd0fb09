/* exit.c: tell the engine that the process ends. */
#include "exit.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "_cgo_export.h"

static pid_t owner;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failed;

static void process_ends(void)
{
	/* A child of a fork has the handler, too, but no Go runtime. */
	if (getpid() == owner)
		roceExit();
}

static void add_handler(void)
{
	owner = getpid();
	failed = atexit(process_ends);
}

int roce_report_at_exit(void)
{
	pthread_once(&once, add_handler);
	return failed;
}
