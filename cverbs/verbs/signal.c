/* signal.c: the program's signal handlers run on the alternate stack if the thread has one.
 *
 * A thread of the program that is inside the engine runs on a goroutine's stack, which is too small for a
  * handler. Go gives such threads an alternate stack, but the kernel uses it only for handlers with SA_ONSTACK.
  * So sigaction and signal of this library, which take precedence over libc's, add this flag. On threads
  * without an alternate stack it changes nothing.
 *
 * SIGSEGV and SIGBUS are in faults.c, since the engine needs them, too.
 *
 * The functions are exported without a version, so that the dynamic loader uses them for libc's versions. */
#include "front.h"

#include <dlfcn.h>

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);
typedef sighandler_t (*signal_fn)(int, sighandler_t);

/* Finds libc's function of a name that this library exports, too. If the program is linked to this library
 * before libc, libc comes later in the search order; otherwise it comes earlier. */
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
	libc_sigaction(); /* call this before locking faults.c: dlsym takes a lock, too */
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
