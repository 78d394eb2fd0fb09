/* The engine's mmap, munmap and pthread_create: mappings do not overlap, are in reserved address space and never at
 * addresses of the program; new threads reuse the stacks of ended threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

enum { MAPPINGS = 64, STEPS = 20000, MOST = 200 /* pages of a mapping */, NEAR = 4096 };

static const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
static size_t page;

static struct mapping {
	unsigned char *at, value;
	size_t pages;
} mappings[MAPPINGS];

static void *system_mmap(void *at, size_t length, int prot)
{
	return (void *)syscall(SYS_mmap, at, length, prot, anonymous | (at ? MAP_FIXED_NOREPLACE : 0), -1, (off_t)0);
}

/* Checks that each page is zero, and sets its first byte to the mapping's value. */
static void fill(struct mapping *m)
{
	for (size_t n = 0; n < m->pages; n++) {
		CHECK(!m->at[n * page]);
		m->at[n * page] = m->value;
	}
}

static void check(const struct mapping *m)
{
	for (size_t n = 0; n < m->pages; n++)
		CHECK(m->at[n * page] == m->value);
}

static void change(struct mapping *m)
{
	if (!m->at) {
		m->pages = 1 + (size_t)rand() % MOST;
		m->value = (unsigned char)(1 + rand() % 255);
		m->at = mmap(NULL, m->pages * page, PROT_READ | PROT_WRITE, anonymous, -1, 0);
		CHECK(m->at != MAP_FAILED);
		fill(m);
		return;
	}
	check(m);
	if (m->pages > 2 && rand() % 2) { /* gives the ends back, as the runtime does to align a mapping */
		CHECK(!munmap(m->at, page) && !munmap(m->at + (m->pages - 1) * page, page));
		m->at += page;
		m->pages -= 2;
	} else {
		CHECK(!munmap(m->at, m->pages * page));
		m->at = NULL;
	}
}

static void places(void)
{
	unsigned char *low = (void *)UINTPTR_MAX, *high = NULL;

	for (int i = 0; i < STEPS; i++) {
		struct mapping *m = &mappings[rand() % MAPPINGS];

		change(m);
		if (m->at) {
			low = m->at < low ? m->at : low;
			high = m->at + m->pages * page > high ? m->at + m->pages * page : high;
		}
	}
	CHECK((size_t)(high - low) <= (size_t)2 * MAPPINGS * MOST * page); /* free places are reused */
	for (int i = 0; i < MAPPINGS; i++) {
		struct mapping *m = &mappings[i];
		void *at = m->at;

		if (!at)
			continue;
		check(m);
		CHECK(!munmap(at, m->pages * page));
		CHECK(system_mmap(at, page, PROT_NONE) == MAP_FAILED && errno == EEXIST); /* the address space is still reserved */
	}
}

static void errors(void)
{
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, anonymous, -1, 0), *far;

	errno = 0;
	CHECK(mmap(NULL, 0, PROT_READ, anonymous, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, page, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
	CHECK(mmap(two + page, page, PROT_READ, anonymous | MAP_FIXED, -1, 0) == two + page); /* MAP_FIXED is obeyed */
	far = mmap(NULL, (size_t)3 << 30, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0); /* more than a reserve has */
	CHECK(far != MAP_FAILED && !munmap(far, (size_t)3 << 30));
	CHECK(system_mmap(far, page, PROT_NONE) == far);
}

/* A late reserve is not at addresses where the program has unmapped memory. */
static void late(void)
{
	const size_t hole = (size_t)1 << 30, most = (size_t)200 << 20; /* two of these are more than a reserve has */
	char *at = system_mmap(NULL, hole, PROT_NONE);

	CHECK((void *)at != MAP_FAILED && !syscall(SYS_munmap, at, hole));
	for (int i = 0; i < 4; i++) {
		char *m = mmap(NULL, most, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);

		CHECK((void *)m != MAP_FAILED && (m + most <= at || m >= at + hole));
	}
}

/* ---- threads ---- */

static sem_t begun, go;
static char *volatile stack;
static volatile int number;

static void *thread(void *argument)
{
	char local;

	CHECK(argument == &number);
	stack = &local;
	number = (int)syscall(SYS_gettid);
	sem_post(&begun);
	sem_wait(&go);
	return NULL;
}

/* Starts a detached thread and returns an address of its stack. */
static char *start(int *id)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, thread, (void *)&number) && !pthread_detach(t));
	while (sem_wait(&begun))
		;
	*id = number;
	return stack;
}

static void await_end(int id)
{
	while (!syscall(SYS_tgkill, getpid(), id, 0))
		sched_yield();
}

static void stacks(void)
{
	int one, other;
	char *first = start(&one), *second = start(&other);

	CHECK(labs(first - second) > 1 << 20);
	sem_post(&go);
	sem_post(&go);
	await_end(one);
	await_end(other);
	for (int i = 0; i < 1000; i++) {
		char *again = start(&one);

		CHECK(labs(again - first) < NEAR || labs(again - second) < NEAR);
		sem_post(&go);
		await_end(one);
	}
}

int main(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	places();
	errors();
	late();
	stacks();
	return 0;
}
