/* faults.c: SIGSEGV and SIGBUS of the engine go to the engine, those of the program to the program.
 *
 * The engine copies from and to memory of the program. If the program has unmapped that memory, Go's handler
  * of these two signals turns the fault into an error of the work request. A program that installs a handler
  * would replace Go's. So this library gives the kernel a handler of its own. It calls Go's handler if the
  * failed instruction belongs to the engine, and otherwise performs the program's action, as the kernel would.
 *
 * sigaction and signal of this library store the program's action here. But a program that is linked to libc
  * first, or that loads this library with dlopen, calls libc's functions, and its action replaces ours. No check
  * in a call is certain to come in time, since a background thread of the engine may touch memory next. The
  * library checks when memory is registered and when queue pairs change their state, because these calls are
  * rare and come before the traffic. If a program bypasses this library after the last of these calls, its
  * handler hides the faults of the engine until the next one.
 *
 * Such an action may refer to ours: a handler that does not want a fault calls the previous handler or
  * installs it again. So each action that bypassed this library gets a handler of its own, called a layer, and
  * the layers below it do not change.
 *
 * A child of vfork has separate actions, but shares the memory of its parent. Its actions go to the kernel
  * only: it will call exec soon, and the data of this file must not change. */
#include "front.h"

#include <link.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { LAYERS = 8, KERNEL_SIGSET = 8 /* bytes that uc_sigmask has */ };

/* The program's action. A handler may read it while another thread writes: the writer fills the copy that is
 * not valid, then increments the version. */
struct layer {
	atomic_uint version;
	struct sigaction program[2];
};

static struct fault {
	const int sig;
	int top; /* the layer whose handler the kernel has; -1: none yet */
	struct sigaction engine;
	struct sigaction meanwhile; /* the program's action while the engine is being loaded */
	struct layer layers[LAYERS];
} faults[] = {{.sig = SIGSEGV, .top = -1}, {.sig = SIGBUS, .top = -1}};

enum { FAULTS = sizeof faults / sizeof *faults };

static atomic_bool separating; /* the engine is loaded, and its handlers are known */
static bool loading;           /* the thread loader loads the engine; guarded by writing */
static pthread_t loader;       /* guarded by writing */
static atomic_int owner;       /* the process that loads it, and not a child of vfork; 0: none */
static _Atomic uintptr_t text_start, text_end; /* of the engine */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void handle(int layer, int sig, siginfo_t *info, void *context);

#define LAYER(n) static void layer##n(int sig, siginfo_t *info, void *context) { handle(n, sig, info, context); }
LAYER(0) LAYER(1) LAYER(2) LAYER(3) LAYER(4) LAYER(5) LAYER(6) LAYER(7)

static void (*const handlers[LAYERS])(int, siginfo_t *, void *) = {layer0, layer1, layer2, layer3, layer4, layer5, layer6, layer7};

/* ---- the stored actions ---- */

/* A signal handler may call sigaction. So signals are blocked while a thread holds the lock or waits for it. */
static void lock(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
	pthread_mutex_lock(&writing);
}

static void unlock(const sigset_t *before)
{
	pthread_mutex_unlock(&writing);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

static struct fault *fault_of(int sig)
{
	for (int i = 0; i < FAULTS; i++)
		if (faults[i].sig == sig)
			return &faults[i];
	return NULL;
}

static void set_program(struct layer *l, const struct sigaction *action)
{
	unsigned int next = l->version + 1;

	l->program[next & 1] = *action;
	atomic_store_explicit(&l->version, next, memory_order_release);
}

static struct sigaction program_of(struct layer *l)
{
	struct sigaction action;
	unsigned int version;

	do {
		version = atomic_load_explicit(&l->version, memory_order_acquire);
		action = l->program[version & 1];
		atomic_thread_fence(memory_order_acquire);
	} while (version != l->version);
	return action;
}

/* Gives the kernel the handler of the top layer. It blocks all signals, as Go's handler requires. */
static void install(struct fault *f)
{
	struct sigaction program = program_of(&f->layers[f->top]);
	struct sigaction ours = {.sa_sigaction = handlers[f->top], .sa_flags = SA_SIGINFO | SA_ONSTACK | (program.sa_flags & SA_RESTART)};

	sigfillset(&ours.sa_mask);
	roce_libc_sigaction(f->sig, &ours, NULL);
}

/* Returns the layer whose handler an action is, or -1. */
static int layer_of(const struct sigaction *action)
{
	for (int i = 0; i < LAYERS; i++)
		if (action->sa_sigaction == handlers[i])
			return i;
	return -1;
}

/* Restores our handler if the kernel has another one. False: too many actions have bypassed this library. */
static bool separate(struct fault *f)
{
	struct sigaction now, known;
	int layer;

	roce_libc_sigaction(f->sig, NULL, &now);
	layer = layer_of(&now);
	if (layer >= 0) {
		f->top = layer;
		if (!(now.sa_flags & SA_SIGINFO)) /* libc's signal has restored it */
			install(f);
		return true;
	}
	if (f->top >= 0)
		known = program_of(&f->layers[f->top]);
	if (f->top < 0 || known.sa_handler != now.sa_handler) {
		if (f->top + 1 == LAYERS)
			return false;
		f->top++;
	}
	set_program(&f->layers[f->top], &now);
	install(f);
	return true;
}

/* ---- the handler ---- */

static uintptr_t instruction(const ucontext_t *context)
{
#if defined(__x86_64__)
	return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)context->uc_mcontext.pc;
#else
#error "where is the program counter?"
#endif
}

/* False: kill or a similar call has sent the signal. */
static bool from_processor(const siginfo_t *info)
{
	return info->si_code > 0;
}

static bool of_engine(const siginfo_t *info, const ucontext_t *context)
{
	uintptr_t at = instruction(context);

	return from_processor(info) && at >= text_start && at < text_end;
}

/* Ends the process as without handlers: after the handler returns, the instruction fails again; a signal of
 * kill is raised again. */
static void end_process(const struct fault *f, const siginfo_t *info)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};

	roce_libc_sigaction(f->sig, &none, NULL);
	if (!from_processor(info))
		raise(f->sig);
}

/* Blocks the signals that the kernel would block during the program's handler. The kernel restores the previous
 * mask when our handler returns. */
static void mask_for(const struct sigaction *action, int sig, const ucontext_t *context)
{
	sigset_t mask, before;

	sigemptyset(&before);
	memcpy(&before, &context->uc_sigmask, KERNEL_SIGSET);
	sigorset(&mask, &action->sa_mask, &before);
	if (!(action->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* Resets an action with SA_RESETHAND to the default. */
static void reset(struct fault *f, int layer)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};
	sigset_t before;

	if (getpid() != owner) {
		roce_libc_sigaction(f->sig, &none, NULL);
		return;
	}
	lock(&before);
	set_program(&f->layers[layer], &none);
	unlock(&before);
}

static void handle(int layer, int sig, siginfo_t *info, void *context)
{
	struct fault *f = fault_of(sig);
	struct sigaction action;

	if (of_engine(info, context)) {
		f->engine.sa_sigaction(sig, info, context);
		return;
	}
	action = program_of(&f->layers[layer]);
	if (action.sa_handler == SIG_IGN && !from_processor(info))
		return;
	if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
		end_process(f, info);
		return;
	}
	if (action.sa_flags & SA_RESETHAND)
		reset(f, layer);
	mask_for(&action, sig, context);
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(sig, info, context);
	else
		action.sa_handler(sig);
}

/* ---- for the other files ---- */

/* Sets the action of a child of vfork. */
static void set_of_child(struct fault *f, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;
	int layer;

	roce_libc_sigaction(f->sig, act, &before);
	layer = layer_of(&before);
	if (old)
		*old = layer >= 0 ? program_of(&f->layers[layer]) : before;
}

/* Sets the program's action, and reports whether it did. The caller holds the lock. */
static bool set_action(struct fault *f, const struct sigaction *act, struct sigaction *before)
{
	int layer;

	if (loading && !pthread_equal(loader, pthread_self())) {
		*before = f->meanwhile;
		if (act)
			f->meanwhile = *act;
		return true;
	}
	if (!separating || !separate(f))
		return false;
	*before = program_of(&f->layers[f->top]);
	if (!act)
		return true;
	layer = layer_of(act); /* the program got our handler from libc, and sets it again */
	if (layer >= 0)
		f->top = layer;
	else
		set_program(&f->layers[f->top], act);
	install(f);
	return true;
}

bool roce_is_fault(int sig)
{
	return fault_of(sig) != NULL;
}

/* The kernel's action changes only under the lock, even before the engine is loaded: otherwise a thread that
 * found no engine could replace the engine's handler a moment later. */
int roce_fault_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct fault *f = fault_of(sig);
	struct sigaction before, next;
	sigset_t mask;
	int result = 0;

	if (owner && getpid() != owner) {
		set_of_child(f, act, old);
		return 0;
	}
	if (act)
		next = *act; /* read before locking: the pointer may be bad */
	lock(&mask);
	if (!owner || !set_action(f, act ? &next : NULL, &before))
		result = roce_onstack_sigaction(sig, act ? &next : NULL, &before);
	unlock(&mask);
	if (!result && old)
		*old = before;
	return result;
}

void roce_faults_check(void)
{
	sigset_t before;

	if (!separating)
		return;
	lock(&before);
	for (int i = 0; i < FAULTS; i++)
		separate(&faults[i]);
	unlock(&before);
}

/* Notes the text segment of the library that contains an address. */
static int note_text(struct dl_phdr_info *library, size_t size, void *address)
{
	uintptr_t start = UINTPTR_MAX, end = 0;
	bool found = false;

	(void)size;
	for (int i = 0; i < library->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
		uintptr_t from = library->dlpi_addr + segment->p_vaddr, to = from + segment->p_memsz;

		if (segment->p_type != PT_LOAD)
			continue;
		found = found || ((uintptr_t)address >= from && (uintptr_t)address < to);
		if (segment->p_flags & PF_X) {
			start = from < start ? from : start;
			end = to > end ? to : end;
		}
	}
	if (found) {
		text_start = start;
		text_end = end;
	}
	return found;
}

void roce_faults_before_load(void)
{
	sigset_t before;

	lock(&before);
	for (int i = 0; i < FAULTS; i++)
		roce_libc_sigaction(faults[i].sig, NULL, &faults[i].meanwhile);
	loader = pthread_self();
	loading = true;
	owner = getpid();
	unlock(&before);
}

/* Reports whether an action is the engine's. A direct call of libc may have replaced it. */
static bool is_engines(const struct sigaction *action)
{
	return (uintptr_t)action->sa_sigaction >= text_start && (uintptr_t)action->sa_sigaction < text_end;
}

void roce_faults_after_load(const void *engine)
{
	bool known = engine && dl_iterate_phdr(note_text, (void *)engine);
	sigset_t before;

	lock(&before);
	for (int i = 0; i < FAULTS; i++) {
		roce_libc_sigaction(faults[i].sig, NULL, &faults[i].engine);
		known = known && is_engines(&faults[i].engine);
	}
	for (int i = 0; i < FAULTS && (known || !engine); i++) {
		roce_libc_sigaction(faults[i].sig, &faults[i].meanwhile, NULL);
		if (known)
			separate(&faults[i]);
	}
	separating = known;
	loading = false;
	unlock(&before);
}

void roce_faults_forked(void)
{
	pthread_mutex_init(&writing, NULL); /* a thread of the parent may have had it */
	text_start = text_end = 0;
	owner = 0;
	if (!separating)
		return;
	separating = false;
	for (int i = 0; i < FAULTS; i++) {
		struct fault *f = &faults[i];
		struct sigaction now, program;
		int layer;

		roce_libc_sigaction(f->sig, NULL, &now);
		layer = layer_of(&now);
		if (layer < 0)
			continue;
		f->top = layer;
		program = program_of(&f->layers[layer]);
		roce_libc_sigaction(f->sig, &program, NULL);
	}
}
