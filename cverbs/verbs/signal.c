/* signal.c: the program's signal handlers run on the alternate stack where there is one.
 *
 * A thread of the program that is inside the engine runs on a goroutine's stack, which has no room
 * for a handler. Go gives such threads an alternate stack, but the kernel uses it for handlers
 * with SA_ONSTACK only. So sigaction and signal of this library, which programs find before those
 * of libc, add it. On threads without an alternate stack the flag changes nothing.
 *
 * SIGSEGV and SIGBUS, which the engine needs, too, are in faults.c.
 *
 * The calls are exported without a version, so that calls of libc's versions find them. */
#include "front.h"

#include <dlfcn.h>

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);
typedef sighandler_t (*signal_fn)(int, sighandler_t);

/* Finds libc's function of a name that this library has, too. libc is behind us where the program
 * lists us before it, and otherwise, as a library that another one needs, we are behind libc. */
static void *libc_function(const char *name)
{
	void *fn = dlsym(RTLD_NEXT, name);

	return fn ? fn : dlsym(RTLD_DEFAULT, name);
}

static sigaction_fn libc_sigaction(void)
{
	static _Atomic(sigaction_fn) found;
	sigaction_fn fn = found;

	if (!fn) {
		*(void **)&fn = libc_function("sigaction");
		found = fn;
	}
	return fn;
}

int roce_libc_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return libc_sigaction()(sig, act, old);
}

static bool lacks_onstack(const struct sigaction *a)
{
	return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN && !(a->sa_flags & SA_ONSTACK);
}

static void add_onstack(int sig)
{
	struct sigaction a;

	if (!libc_sigaction()(sig, NULL, &a) && lacks_onstack(&a)) {
		a.sa_flags |= SA_ONSTACK;
		libc_sigaction()(sig, &a, NULL);
	}
}

int roce_onstack_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction with;

	if (act && lacks_onstack(act)) {
		with = *act;
		with.sa_flags |= SA_ONSTACK;
		act = &with;
	}
	return libc_sigaction()(sig, act, old);
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	libc_sigaction(); /* dlsym has a lock of its own: not under that of the faults */
	return roce_is_fault(sig) ? roce_fault_action(sig, act, old) : roce_onstack_sigaction(sig, act, old);
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction fault = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
	static _Atomic(signal_fn) found;
	signal_fn fn = found;
	sighandler_t old;

	libc_sigaction();
	if (roce_is_fault(sig) && handler != SIG_ERR)
		return roce_fault_action(sig, &fault, &before) ? SIG_ERR : before.sa_handler;
	if (!fn) {
		*(void **)&fn = libc_function("signal");
		found = fn;
	}
	old = fn(sig, handler);
	if (old != SIG_ERR)
		add_onstack(sig);
	return old;
}

void roce_signals_onstack(void)
{
	for (int sig = 1; sig < NSIG; sig++)
		add_onstack(sig);
}
