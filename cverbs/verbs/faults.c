/* faults.c: SIGSEGV and SIGBUS are the program's and the engine's.
 *
 * The engine reads and writes memory that the program may have unmapped, and Go's handler makes an error of such a
 * fault. It hands on all others to the handler that the program had when the engine was loaded. A handler
 * that the program installs later would get the engine's faults. So it is kept here, and the kernel gets
 * dispatch, which looks at where the fault is. What the program asks for its handler is what it has set. */
#include "front.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

static struct fault {
	const int sig;
	bool ours;                /* the kernel has dispatch */
	struct sigaction program; /* as the program has set it */
	struct sigaction engine;  /* Go's */
} faults[] = {{.sig = SIGSEGV}, {.sig = SIGBUS}};

enum { FAULTS = sizeof faults / sizeof *faults };

static atomic_flag busy = ATOMIC_FLAG_INIT;
static _Atomic(uintptr_t) text, text_end; /* of the engine; 0 before it is loaded */

/* Handlers may call sigaction, so no signal may come while the lock is held. */
static void lock(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
	while (atomic_flag_test_and_set(&busy))
		;
}

static void unlock(const sigset_t *before)
{
	atomic_flag_clear(&busy);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Another thread of the parent may have held the lock. */
void roce_faults_in_child(void)
{
	atomic_flag_clear(&busy);
}

static struct fault *fault_of(int sig)
{
	for (int i = 0; i < FAULTS; i++)
		if (faults[i].sig == sig)
			return &faults[i];
	return NULL;
}

static uintptr_t where(const ucontext_t *context)
{
#if defined(__x86_64__)
	return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)context->uc_mcontext.pc;
#else
#error "which register is the program counter?"
#endif
}

/* The default action is what happens when the handler returns: the instruction is tried again, and a signal that
 * somebody has sent is sent again. */
static void by_default(struct fault *f, bool sent)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};

	roce_real_sigaction(f->sig, &none, NULL);
	if (sent)
		raise(f->sig);
}

static void dispatch(int sig, siginfo_t *info, void *context)
{
	struct fault *f = fault_of(sig);
	struct sigaction a = f->program;
	bool sent = info->si_code <= 0;
	uintptr_t at = where(context);
	sigset_t mask;

	if (!sent && at >= text && at < text_end) {
		f->engine.sa_sigaction(sig, info, context);
		return;
	}
	if (a.sa_handler == SIG_IGN && sent)
		return;
	if (a.sa_handler == SIG_IGN || a.sa_handler == SIG_DFL) {
		by_default(f, sent);
		return;
	}
	if (a.sa_flags & SA_RESETHAND)
		f->program.sa_handler = SIG_DFL;
	sigorset(&mask, &((ucontext_t *)context)->uc_sigmask, &a.sa_mask);
	if (!(a.sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL); /* the kernel puts back what was before */
	if (a.sa_flags & SA_SIGINFO)
		a.sa_sigaction(sig, info, context);
	else
		a.sa_handler(sig);
}

static int give_to_kernel(struct fault *f)
{
	struct sigaction a = {.sa_sigaction = dispatch, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

	sigfillset(&a.sa_mask);
	return roce_real_sigaction(f->sig, &a, NULL);
}

bool roce_fault_action(int sig, const struct sigaction *act, struct sigaction *old, int *result)
{
	struct fault *f = fault_of(sig);
	struct sigaction before;
	sigset_t mask;

	if (!f || !text_end)
		return false;
	lock(&mask);
	before = f->program;
	*result = 0;
	if (act) {
		f->program = *act;
		*result = f->ours ? 0 : give_to_kernel(f);
		f->ours = true;
	}
	unlock(&mask);
	if (old)
		*old = before;
	return true;
}

void roce_faults_before_engine(void)
{
	for (int i = 0; i < FAULTS; i++)
		if (text_end) /* the handlers are of an engine that this child of a fork has not */
			roce_real_sigaction(faults[i].sig, &faults[i].program, NULL);
		else
			roce_real_sigaction(faults[i].sig, NULL, &faults[i].program);
}

/* Finds the code of the library that an address is in. */
static int find_text(struct dl_phdr_info *object, size_t size, void *inside)
{
	uintptr_t from = 0, to = 0;
	bool here = false;

	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;

		if (p->p_type != PT_LOAD)
			continue;
		here = here || ((uintptr_t)inside >= start && (uintptr_t)inside < end);
		if (p->p_flags & PF_X) {
			from = from ? from : start;
			to = end;
		}
	}
	if (!here)
		return 0;
	text = from;
	text_end = to;
	return 1;
}

void roce_faults_after_engine(const void *in_engine)
{
	for (int i = 0; i < FAULTS; i++) {
		roce_real_sigaction(faults[i].sig, NULL, &faults[i].engine);
		if (!(faults[i].engine.sa_flags & SA_SIGINFO)) /* not Go's: an engine without handlers */
			return;
	}
	dl_iterate_phdr(find_text, (void *)in_engine);
	for (int i = 0; i < FAULTS; i++)
		if (faults[i].ours)
			give_to_kernel(&faults[i]);
}
