/* reserve.c: keeps the Go runtime's memory away from addresses that the program has used.
 *
 * A program may unmap registered memory. Peers that have the key can then write to the next mapping at the
  * same address. The kernel gives the address to the next mapping that fits, often one of the Go runtime:
  * the kernel chooses the addresses of its bookkeeping and of the stacks of its threads. (Go's heap has
  * other addresses, far away.) So the engine reserves address space and places these mappings in it.
 *
 * With cgo the runtime calls mmap, munmap, pthread_create and pthread_detach of the C library. The
 * linker replaces these calls by the functions __wrap_… below, and calls of __real_… by the C library's.
 *
 * The reserves are far from the addresses that the kernel chooses, so that even a late reserve is at no
  * address that the program has used. A child of a fork has a new engine: its reserves follow those of its
  * ancestors, which are still mapped.
 *
 * Address space that the runtime gives back stays reserved. The kernel chooses the address if all reserves
  * are full, if it grants none (RLIMIT_AS), or if a mapping is larger than a reserve: the runtime makes such
  * mappings when it starts. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	RESERVES = 64,
	SITES = 16 * RESERVES, /* possible places of reserves, one after the other from first_site on */
	PAGES = 1 << 16, /* of one reserve: 256 MiB of pages of 4 KiB */
	WORD = 64,
	STACKS = 4096,
};

static struct reserve {
	char *start;
	size_t pages;
	size_t low; /* all pages before it are used */
	uint64_t used[PAGES / WORD];
} reserves[RESERVES];

static const uintptr_t first_site = (uintptr_t)1 << 37; /* in 39 bits of address, too; Go's heap is higher */

static int reserved; /* the number of reserves */
static int sites;    /* how many sites were tried */
static size_t page;  /* the page size, valid after the first lock */
static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;

/* The runtime makes none of these calls in signal handlers. */
static void lock(void)
{
	pthread_mutex_lock(&taken);
	if (!page)
		page = (size_t)sysconf(_SC_PAGESIZE);
}

static void unlock(void)
{
	pthread_mutex_unlock(&taken);
}

void *__real_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t length);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument);
int __real_pthread_detach(pthread_t thread);

static void *map_nothing(void *addr, size_t length, int fixed)
{
	return __real_mmap(addr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

/* ---- which pages are used ---- */

static bool is_used(const struct reserve *r, size_t n)
{
	return r->used[n / WORD] >> n % WORD & 1;
}

static void mark(struct reserve *r, size_t from, size_t to, bool used)
{
	for (size_t n = from; n < to; n++) {
		uint64_t bit = (uint64_t)1 << n % WORD;

		if (!(n % WORD) && to - n >= WORD) {
			r->used[n / WORD] = used ? UINT64_MAX : 0;
			n += WORD - 1;
		} else if (used) {
			r->used[n / WORD] |= bit;
		} else {
			r->used[n / WORD] &= ~bit;
		}
	}
}

/* Takes contiguous free pages; -1: there are not enough. */
static ssize_t take(struct reserve *r, size_t pages)
{
	size_t from = r->low;

	for (size_t n = from; from + pages <= r->pages; n++) {
		if (n == from + pages) {
			mark(r, from, n, true);
			if (from == r->low)
				r->low = n;
			return (ssize_t)from;
		}
		if (!(n % WORD) && r->used[n / WORD] == UINT64_MAX) {
			n += WORD - 1;
			from = n + 1;
		} else if (is_used(r, n)) {
			from = n + 1;
		}
	}
	return -1;
}

/* Maps inaccessible memory at the next free site, or where the kernel chooses if there is none. */
static void *map_site(size_t length)
{
	while (sites < SITES) {
		void *site = (void *)(first_site + (uintptr_t)sites++ * length), *at = map_nothing(site, length, MAP_FIXED_NOREPLACE);

		if (at == site)
			return at;
		if (at != MAP_FAILED) /* a kernel that does not know the flag */
			__real_munmap(at, length);
		else if (errno != EEXIST)
			break;
	}
	return map_nothing(NULL, length, 0);
}

/* Reserves more address space. */
static struct reserve *reserve_more(void)
{
	struct reserve *r;
	void *start;

	if (reserved == RESERVES)
		return NULL;
	r = &reserves[reserved];
	r->pages = PAGES / (page / 4096);
	start = map_site(r->pages * page);
	if (start == MAP_FAILED)
		return NULL;
	r->start = start;
	reserved++;
	return r;
}

/* Returns address space of length bytes in a reserve, or NULL. */
static char *place_for(size_t length)
{
	struct reserve *r;
	size_t pages;
	ssize_t n;

	for (int i = 0; i <= reserved && i < RESERVES; i++) {
		r = i < reserved ? &reserves[i] : reserve_more();
		if (!r)
			return NULL;
		pages = (length + page - 1) / page;
		if (!pages || pages > r->pages)
			return NULL;
		n = take(r, pages);
		if (n >= 0)
			return r->start + (size_t)n * page;
	}
	return NULL;
}

/* Gives address space back. False: it belongs to no reserve. */
static bool give_back(char *start, size_t length)
{
	for (int i = 0; i < reserved; i++) {
		struct reserve *r = &reserves[i];
		size_t from, to;

		if (start < r->start || start >= r->start + r->pages * page)
			continue;
		from = (size_t)(start - r->start) / page;
		to = from + (length + page - 1) / page;
		map_nothing(start, (to - from) * page, MAP_FIXED);
		mark(r, from, to, false);
		r->low = from < r->low ? from : r->low;
		return true;
	}
	return false;
}

/* ---- the calls of the runtime ---- */

void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	char *place;
	void *mapped;

	if (addr || flags & MAP_FIXED)
		return __real_mmap(addr, length, prot, flags, fd, offset);
	lock();
	place = place_for(length);
	if (!place) {
		mapped = __real_mmap(addr, length, prot, flags, fd, offset);
	} else {
		mapped = __real_mmap(place, length, prot, flags | MAP_FIXED, fd, offset);
		if (mapped == MAP_FAILED) {
			int why = errno;

			give_back(place, length);
			errno = why;
		}
	}
	unlock();
	return mapped;
}

int __wrap_munmap(void *addr, size_t length)
{
	bool ours;

	lock();
	ours = give_back(addr, length);
	unlock();
	return ours ? 0 : __real_munmap(addr, length);
}

/* ---- stacks ---- */

/* A stack is in use until its thread is detached and has ended in the kernel. A new thread takes the stack of
 * an ended thread, if there is one. */
static struct stack {
	char *start; /* the guard page */
	size_t size; /* without the guard page */
	atomic_int thread;
	bool detached;
} stacks[STACKS];

enum { FREE = 0, STARTING = -1 }; /* values of thread other than a thread ID */

struct start {
	struct stack *stack;
	void *(*run)(void *);
	void *argument;
};

static bool is_free(const struct stack *s)
{
	int thread = s->thread;

	if (thread == FREE)
		return true;
	return thread != STARTING && s->detached && syscall(SYS_tgkill, getpid(), thread, 0) && errno == ESRCH;
}

static bool map_stack(struct stack *s, size_t size)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_FIXED;
	char *start = place_for(page + size);

	if (!start)
		return false;
	if (__real_mmap(start + page, size, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
		give_back(start, page + size);
		return false;
	}
	s->start = start;
	s->size = size;
	return true;
}

static struct stack *take_stack(size_t size)
{
	struct stack *s = stacks, *end = stacks + STACKS;

	lock();
	while (s < end && s->start && !(s->size == size && is_free(s)))
		s++;
	if (s == end || (!s->start && !map_stack(s, size)))
		s = NULL;
	if (s) {
		s->thread = STARTING;
		s->detached = false;
	}
	unlock();
	return s;
}

static void *run_on_stack(void *argument)
{
	struct start s = *(struct start *)argument;

	free(argument);
	s.stack->thread = (int)syscall(SYS_gettid);
	return s.run(s.argument);
}

/* The callers set only one attribute: the size of the stack. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument)
{
	struct start *s = malloc(sizeof *s);
	pthread_attr_t ours;
	size_t size = 0;
	int r = EAGAIN;

	pthread_attr_init(&ours);
	pthread_attr_getstacksize(attr ? attr : &ours, &size);
	if (s && (s->stack = take_stack(size))) {
		s->run = run;
		s->argument = argument;
		r = pthread_attr_setstack(&ours, s->stack->start + page, size);
		if (!r)
			r = __real_pthread_create(thread, &ours, run_on_stack, s);
		if (r)
			s->stack->thread = FREE;
	}
	pthread_attr_destroy(&ours);
	if (r) {
		free(s);
		r = __real_pthread_create(thread, attr, run, argument);
	}
	return r;
}

/* A pthread_t points to glibc's descriptor of the thread, which is on the thread's stack. */
int __wrap_pthread_detach(pthread_t thread)
{
	int r = __real_pthread_detach(thread);

	lock();
	for (struct stack *s = stacks; s < stacks + STACKS && s->start; s++)
		if ((char *)thread >= s->start && (char *)thread < s->start + page + s->size)
			s->detached = true;
	unlock();
	return r;
}
