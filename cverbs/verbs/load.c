/* load.c: the engine is loaded when a program first needs it, and again in each child of a fork.
 *
 * A Go runtime does not survive fork: the child lacks its threads, and a call into it never returns. So the
  * child forgets the engine and loads a copy from another file. The dynamic loader takes it for another
  * library, with a separate runtime.
 *
 * The engine's threads start with all signals blocked, so that only the program's threads handle the program's
  * signals: the stacks of Go's threads are too small for a handler. */
#include "front.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

uint32_t roce_generation;
const struct roce_engine *roce_engine_table;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t instance; /* how many engines the ancestors of this process have loaded */
static char engine_path[PATH_MAX];

static void find_engine(void)
{
	const char *given = secure_getenv("ROCE_ENGINE");
	char beside[PATH_MAX];
	Dl_info self;
	int n;

	if (given && *given) {
		snprintf(engine_path, sizeof engine_path, "%s", given);
		return;
	}
	if (!dladdr(engine_path, &self) || !realpath(self.dli_fname, beside))
		return;
	*strrchr(beside, '/') = 0;
	n = snprintf(engine_path, sizeof engine_path, "%s/libroce-engine.so", beside);
	if (n >= (int)sizeof engine_path)
		engine_path[0] = 0;
}

/* Makes a file without a name that code can be mapped from. */
static int unnamed_file(void)
{
	int fd = memfd_create("roce-engine", MFD_CLOEXEC | MFD_EXEC);

	if (fd < 0 && errno == EINVAL) /* a kernel that does not know MFD_EXEC */
		fd = memfd_create("roce-engine", MFD_CLOEXEC);
	if (fd < 0) /* vm.memfd_noexec=2 forbids it */
		fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
	return fd;
}

static int copy_of(const char *path)
{
	struct stat st;
	off_t at = 0;
	int in = open(path, O_RDONLY | O_CLOEXEC), out = -1;

	if (in < 0 || fstat(in, &st) < 0 || (out = unnamed_file()) < 0)
		goto fail;
	while (at < st.st_size) {
		ssize_t n = sendfile(out, in, &at, (size_t)(st.st_size - at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			goto fail;
	}
	close(in);
	return out;
fail:
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return -1;
}

static void *open_engine(void)
{
	const int mode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	char name[64 + 2 * 32] = "/proc/self/";
	void *library;
	int fd;

	if (!instance)
		return dlopen(engine_path, mode);
	fd = copy_of(engine_path);
	if (fd < 0)
		return NULL;
	/* The loader treats equal names as the same library, and an ancestor's copy may have had the same
	 * descriptor. So the name has one "./" for each instance. */
	for (uint32_t i = 0; i < instance % 32; i++)
		strcat(name, "./");
	sprintf(name + strlen(name), "fd/%d", fd);
	library = dlopen(name, mode);
	close(fd);
	return library;
}

static const struct roce_engine *load(void)
{
	struct roce_host host = {.abi = ROCE_ENGINE_ABI, .instance = instance, .hand_over = roce_hand_over};
	const struct roce_engine *(*start)(const struct roce_host *);
	const struct roce_engine *engine = NULL;
	void *library = engine_path[0] ? open_engine() : NULL;

	if (!library) {
		const char *why = dlerror();

		fprintf(stderr, "libibverbs: no engine: %s\n", why ? why : "libroce-engine.so is not beside the library");
		return NULL;
	}
	*(void **)&start = dlsym(library, "roce_engine");
	if (start)
		engine = start(&host);
	if (!engine || engine->abi != ROCE_ENGINE_ABI || engine->size < sizeof *engine) {
		fprintf(stderr, "libibverbs: no engine: %s is of another version\n", engine_path);
		return NULL;
	}
	return engine;
}

const struct roce_engine *roce_load_engine(void)
{
	const struct roce_engine *engine = __atomic_load_n(&roce_engine_table, __ATOMIC_ACQUIRE);
	static bool failed; /* do not try again: each call would fail and print the error */
	sigset_t all, before;

	if (engine)
		return engine;
	pthread_mutex_lock(&load_lock);
	engine = roce_engine_table;
	if (!engine && !failed) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		roce_faults_before_load();
		engine = load();
		roce_faults_after_load(engine);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		failed = !engine;
		roce_signals_onstack();
		__atomic_store_n(&roce_engine_table, engine, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&load_lock);
	if (!engine)
		errno = ENOSYS;
	return engine;
}

static void before_fork(void)
{
	roce_forkfds_lock();
	pthread_mutex_lock(&load_lock);
	roce_objects_lock();
}

static void after_fork(void)
{
	roce_objects_unlock();
	pthread_mutex_unlock(&load_lock);
	roce_forkfds_unlock();
}

static void after_fork_in_child(void)
{
	if (roce_engine_table) {
		roce_engine_table = NULL;
		instance++;
		roce_generation++;
		roce_fork_closes_fds();
	}
	roce_faults_forked();
	roce_collect_forked();
	after_fork();
}

/* Tells the engine that the process exits. A child of a fork that has not used the devices has no engine. */
__attribute__((destructor)) static void leave(void)
{
	const struct roce_engine *engine = __atomic_load_n(&roce_engine_table, __ATOMIC_ACQUIRE);

	if (engine)
		engine->exiting();
}

__attribute__((constructor)) static void init(void)
{
	int saved = errno;

	find_engine();
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
	errno = saved;
}
