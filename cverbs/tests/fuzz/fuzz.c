/* fuzz.c: fuzz SEED SECONDS THREADS. See fuzz.h. It exits with 0 if nothing was found. */
#include "fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_THREADS = 8, PATIENCE = 20 /* seconds that a call may take */ };

struct ibv_device **devices;
int device_count;
static struct thread threads[MAX_THREADS];
static int n_threads;
static struct timespec deadline;
bool in_child;

uint64_t rnd(struct thread *t)
{
	uint64_t z = t->seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void begin(struct thread *t, const char *call, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t i = ++t->at % RING;

	t->ring[i].call = call;
	t->ring[i].args[0] = a, t->ring[i].args[1] = b, t->ring[i].args[2] = c, t->ring[i].args[3] = d;
	t->ring[i].result = LONG_MIN;
	t->since = time(NULL);
}

long end(struct thread *t, long result)
{
	t->ring[t->at % RING].result = result;
	t->since = 0;
	t->calls++;
	return result;
}

void print_ring(struct thread *t)
{
	uint64_t from = t->at > RING ? t->at - RING + 1 : 1;

	fprintf(stderr, "thread %d, %llu calls; the last of them:\n", t->index, (unsigned long long)t->calls);
	for (uint64_t i = from; i <= t->at; i++) {
		fprintf(stderr, "  %s(%#llx, %#llx, %#llx, %#llx)", t->ring[i % RING].call, (unsigned long long)t->ring[i % RING].args[0],
			(unsigned long long)t->ring[i % RING].args[1], (unsigned long long)t->ring[i % RING].args[2], (unsigned long long)t->ring[i % RING].args[3]);
		if (t->ring[i % RING].result == LONG_MIN)
			fprintf(stderr, " has not returned\n");
		else
			fprintf(stderr, " = %#lx\n", t->ring[i % RING].result);
	}
}

_Noreturn void fail_at(struct thread *t, const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s does not hold (errno %d)%s\n", file, line, what, errno, in_child ? ", in a child" : "");
	print_ring(t);
	_exit(1);
}

static void on_crash(int sig)
{
	fprintf(stderr, "signal %d%s\n", sig, in_child ? " in a child" : "");
	for (int i = 0; i < n_threads; i++)
		print_ring(&threads[i]);
	signal(sig, SIG_DFL);
	raise(sig);
}

static bool over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > deadline.tv_sec || (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

static void *watch(void *unused)
{
	for (;;) {
		sleep(1);
		for (int i = 0; i < n_threads; i++) {
			time_t since = threads[i].since;

			if (!since || time(NULL) - since < PATIENCE)
				continue;
			fprintf(stderr, "a call of thread %d hangs%s\n", i, in_child ? ", in a child" : "");
			print_ring(&threads[i]);
			kill(getpid(), SIGABRT); /* with the stacks of the Go runtime */
			sleep(2);
			_exit(1);
		}
	}
	return unused;
}

static void start_watch(void)
{
	pthread_t id;

	pthread_create(&id, NULL, watch, NULL);
	pthread_detach(id);
}

/* A child of a fork uses its parent's objects, which are dead there, and makes new ones. */
static void child(struct thread *t)
{
	in_child = true;
	n_threads = 1;
	threads[0] = *t;
	t = &threads[0];
	t->since = 0;
	start_watch();
	for (int i = 0; i < 30; i++) /* with the parent's objects */
		step(t);
	for (int k = 0; k < KINDS; k++) {
		for (int i = 0; i < PER_KIND; i++)
			if (t->objects[k][i].p && t->n_dead < DEAD)
				t->dead[t->n_dead++] = t->objects[k][i].p;
		memset(t->objects[k], 0, sizeof t->objects[k]);
		t->count[k] = 0;
	}
	for (int i = 0; i < 300; i++)
		step(t);
	if (one_in(t, 2))
		destroy_all(t);
	if (one_in(t, 2))
		exit(0);
	_exit(0);
}

static void fork_once(struct thread *t)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		child(t);
	MUST(t, pid > 0);
	CALL(t, "waitpid", pid, 0, 0, 0, waitpid(pid, &status, 0));
	MUST(t, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *run(void *arg)
{
	struct thread *t = arg;

	t->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (!over()) {
		if (n_threads == 1 && one_in(t, 4000))
			fork_once(t);
		step(t);
		if (one_in(t, 3000))
			destroy_all(t);
	}
	destroy_all(t);
	return NULL;
}

/* Lists the descriptors that are open, and returns how many there are. */
static int open_files(char *list, size_t room)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	for (*list = 0; (e = readdir(dir)); n++) {
		char path[300], target[300] = "";

		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		if (readlink(path, target, sizeof target - 1) > 0)
			snprintf(list + strlen(list), room - strlen(list), "%s -> %s\n", e->d_name, target);
	}
	closedir(dir);
	return n;
}

/* Opens and closes all devices, and uses them with rdma_cm. After that the libraries have opened all descriptors
 * that they keep. */
static void warm_up(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	for (int i = 0; i < device_count; i++) {
		struct ibv_context *context = ibv_open_device(devices[i]);
		struct sockaddr_in addr = {.sin_family = AF_INET};
		struct rdma_cm_id *id;
		union ibv_gid gid;

		if (!context || ibv_query_gid(context, 1, 0, &gid) || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
			perror("opening a device");
			exit(1);
		}
		memcpy(&addr.sin_addr, gid.raw + 12, sizeof addr.sin_addr);
		rdma_bind_addr(id, (struct sockaddr *)&addr);
		rdma_destroy_id(id);
		ibv_close_device(context);
	}
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	static char before[1 << 16], after[1 << 16];
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, calls = 0;
	int seconds = argc > 2 ? atoi(argv[2]) : 5, files;

	n_threads = argc > 3 ? atoi(argv[3]) : 1;
	if (n_threads < 1 || n_threads > MAX_THREADS)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += seconds;
	setlinebuf(stderr);
	signal(SIGABRT, on_crash);
	signal(SIGSEGV, on_crash); /* for C code: the Go runtime forwards signals of foreign code */
	signal(SIGBUS, on_crash);
	devices = ibv_get_device_list(&device_count);
	if (!devices || device_count < 2) {
		fprintf(stderr, "ROCE_FLAGS has to name two devices\n");
		return 2;
	}
	warm_up();
	files = open_files(before, sizeof before);
	start_watch();
	for (int i = 0; i < n_threads; i++) {
		threads[i].index = i;
		threads[i].seed = seed * 1000003 + (uint64_t)i * 7919;
		threads[i].stale = n_threads == 1 && seed % 2;
		pthread_create(&threads[i].id, NULL, run, &threads[i]);
	}
	for (int i = 0; i < n_threads; i++) {
		pthread_join(threads[i].id, NULL);
		calls += threads[i].calls;
	}
	warm_up();
	for (int i = 0; open_files(after, sizeof after) > files && i < 20; i++)
		usleep(100000); /* calls that wait for a neighbour time out */
	if (open_files(after, sizeof after) > files) {
		fprintf(stderr, "descriptors are left open. Before:\n%sat the end:\n%s", before, after);
		return 1;
	}
	printf("seed %llu: %llu calls\n", (unsigned long long)seed, (unsigned long long)calls);
	return 0;
}
