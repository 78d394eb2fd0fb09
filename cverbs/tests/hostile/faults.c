/* faults.c: the program has handlers of SIGSEGV and SIGBUS, and the engine faults on unmapped memory. The
 * engine's faults become errors of work requests, and the handler never gets one; the program's faults go to
 * its handler.
 *
 *	faults sigaction	the handler is installed by sigaction, with flags and a mask, after the device was opened
 *	faults signal	… by signal
 *	faults early	… before the device was opened
 *	faults file	… for SIGBUS: the memory is of a file that gets shorter
 *	faults past	… by a call of libc that the library does not see
 *	faults chain	… like past, and the handler calls the previous handler, which is the program's
 *	faults back	… like past, and the handler installs the previous handler again, by libc
 *	faults once	… with SA_RESETHAND: the second fault ends the process
 *	faults again	… twice: the second time libc's signal installs the previous handler
 *	faults meanwhile	another thread installs handlers while the device is being opened
 *	faults default	no handler: a fault ends the process
 *	faults ignored	the signal was ignored when the program was started
 *	faults sent	a signal that kill has sent does not count as a fault of the engine
 *	faults nested	the handler faults, with SA_NODEFER and without
 *	faults stack	the handler runs on the alternate stack of a thread whose stack is full
 *	faults fork	… in a child that uses no device, in one that does, and in its children
 *	faults vfork	a child of vfork sets the default before it calls exec */

#include "rig.h"

#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

static struct end a, b;
static sigjmp_buf out;
static volatile sig_atomic_t first, second;
static volatile bool masked;
static struct sigaction before;
static sigaction_fn past;

static void write_to(volatile char *p)
{
	*p = 1;
}

static volatile char *nowhere(void)
{
	static char *p;

	if (!p)
		CHECK((p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	return p;
}

static void leave(int sig)
{
	first++;
	(void)sig;
	siglongjmp(out, 1);
}

static void leave_with_info(int sig, siginfo_t *info, void *context)
{
	sigset_t mask;

	CHECK(!sigprocmask(SIG_SETMASK, NULL, &mask) && context);
	masked = sigismember(&mask, SIGUSR1) && sigismember(&mask, sig) && !sigismember(&mask, SIGUSR2);
	CHECK(sig == SIGBUS || info->si_addr == (void *)nowhere());
	leave(sig);
}

static void chain(int sig, siginfo_t *info, void *context)
{
	second++;
	CHECK(before.sa_flags & SA_SIGINFO);
	before.sa_sigaction(sig, info, context);
}

static void back(int sig)
{
	second++;
	CHECK(!past(sig, &before, NULL));
}

static void count(int sig)
{
	(void)sig;
	first++;
}

/* The engine faults: a peer writes to unmapped memory. */
static void engine_faults(void)
{
	sig_atomic_t seen = first + second;
	enum ibv_wc_status s;

	munmap(b.buf, SIZE);
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE));
	s = outcome(&a);
	CHECK(s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_REM_OP_ERR);
	CHECK(first + second == seen);
}

static void fault_and_return(volatile char *at)
{
	if (!sigsetjmp(out, 1))
		write_to(at);
}

/* The program faults and leaves its handler by siglongjmp, so many times. */
static void program_faults(int times)
{
	while (times--) {
		sig_atomic_t seen = first;

		fault_and_return(nowhere());
		CHECK(first == seen + 1);
	}
}

static int status_of(void (*child)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		child();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

static void by_sigaction(void)
{
	struct sigaction act = {.sa_sigaction = leave_with_info, .sa_flags = SA_SIGINFO | SA_RESTART}, old;

	both(&a, &b);
	sigemptyset(&act.sa_mask);
	sigaddset(&act.sa_mask, SIGUSR1);
	CHECK(!sigaction(SIGSEGV, &act, &old) && old.sa_handler == SIG_DFL && !(old.sa_flags & SA_SIGINFO));
	CHECK(!sigaction(SIGSEGV, NULL, &old) && old.sa_sigaction == leave_with_info && old.sa_flags == act.sa_flags);
	CHECK(sigismember(&old.sa_mask, SIGUSR1) && !sigismember(&old.sa_mask, SIGUSR2));
	engine_faults();
	program_faults(2);
	CHECK(masked);
	CHECK(!sigaction(SIGSEGV, NULL, &old) && old.sa_sigaction == leave_with_info);
}

static void by_signal(void)
{
	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL && signal(SIGSEGV, SIG_IGN) == leave && signal(SIGSEGV, leave) == SIG_IGN);
	errno = 0;
	CHECK(signal(SIGSEGV, SIG_ERR) == SIG_ERR && errno == EINVAL);
	engine_faults();
	program_faults(2);
}

static void early(void)
{
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	both(&a, &b);
	engine_faults();
	program_faults(2);
	CHECK(signal(SIGSEGV, SIG_DFL) == leave);
}

static void file(void)
{
	struct sigaction act = {.sa_sigaction = leave_with_info, .sa_flags = SA_SIGINFO};
	int fd = memfd_create("target", MFD_CLOEXEC);
	enum ibv_wc_status s;
	char *mine;

	both(&a, &b);
	sigaddset(&act.sa_mask, SIGUSR1);
	CHECK(!sigaction(SIGBUS, &act, NULL) && fd >= 0 && !ftruncate(fd, SIZE));
	CHECK(mmap(b.buf, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == b.buf);
	CHECK((mine = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED);
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS);
	CHECK(!ftruncate(fd, 4096));
	CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE));
	s = outcome(&a);
	CHECK((s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_REM_OP_ERR) && !first);
	fault_and_return(mine + 8192);
	CHECK(first == 1 && masked);
}

/* Installs an action by calling libc's sigaction directly, then registers memory. */
static void install_past(const struct sigaction *act)
{
	char page[64];
	struct ibv_mr *mr;

	*(void **)&past = dlsym(dlopen("libc.so.6", RTLD_NOW), "sigaction");
	CHECK(past && !past(SIGSEGV, act, &before));
	CHECK((mr = ibv_reg_mr(a.pd, page, sizeof page, 0)) && !ibv_dereg_mr(mr));
}

static void by_past(void)
{
	const struct sigaction act = {.sa_handler = leave};

	both(&a, &b);
	install_past(&act);
	engine_faults();
	program_faults(2);
	CHECK(signal(SIGSEGV, SIG_DFL) == leave);
}

static void by_chain(void)
{
	const struct sigaction act = {.sa_sigaction = chain, .sa_flags = SA_SIGINFO};

	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	install_past(&act);
	engine_faults();
	program_faults(2);
	CHECK(second == 2 && !sigaction(SIGSEGV, NULL, &before) && before.sa_sigaction == chain);
}

static void by_back(void)
{
	const struct sigaction act = {.sa_handler = back};

	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	install_past(&act);
	engine_faults();
	program_faults(2); /* the first of them is raised again */
	CHECK(second == 1 && signal(SIGSEGV, SIG_DFL) == leave);
}

static void fault_twice(void)
{
	const struct sigaction act = {.sa_handler = leave, .sa_flags = SA_RESETHAND};

	both(&a, &b);
	CHECK(!sigaction(SIGSEGV, &act, NULL));
	engine_faults(); /* the engine's faults do not reset the handler */
	program_faults(1);
	write_to(nowhere());
}

static void once(void)
{
	int status = status_of(fault_twice);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void fault(void)
{
	write_to(nowhere());
}

static void fault_with_device(void)
{
	both(&a, &b);
	engine_faults();
	fault();
}

static void ignore_and_fault(void)
{
	both(&a, &b);
	CHECK(signal(SIGSEGV, SIG_IGN) == SIG_DFL && !kill(getpid(), SIGSEGV));
	engine_faults();
	fault();
}

static void send_default(void)
{
	both(&a, &b);
	kill(getpid(), SIGSEGV);
	for (;;)
		pause();
}

static void by_default(void)
{
	void (*const ways[])(void) = {fault_with_device, ignore_and_fault, send_default};

	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		int status = status_of(ways[i]);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
}

/* The thread polls while the signals come, so that they interrupt the engine. */
static void sent(void)
{
	const int many = 1000;

	both(&a, &b);
	CHECK(signal(SIGSEGV, count) == SIG_DFL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (int i = 0; i < many; i++) {
			kill(getppid(), SIGSEGV);
			sched_yield();
		}
		_exit(0);
	}
	while (!waitpid(pid, NULL, WNOHANG))
		CHECK(!transfer(&a, &b, IBV_WR_RDMA_WRITE, SIZE) && outcome(&a) == IBV_WC_SUCCESS);
	CHECK(first > 0 && first <= many);
	engine_faults();
}

static void fault_in_child(void)
{
	program_faults(2);
}

static void fault_in_child_with_device(void)
{
	both(&a, &b); /* the child's own engine */
	engine_faults();
	program_faults(2);
}

static void fault_in_generations(void)
{
	const struct sigaction act = {.sa_sigaction = leave_with_info, .sa_flags = SA_SIGINFO};
	struct sigaction old;

	fault_in_child_with_device();
	CHECK(!sigaction(SIGSEGV, &act, &old) && old.sa_handler == leave);
	CHECK(!status_of(fault_in_child));
	CHECK(!status_of(fault_in_child_with_device));
	both(&a, &b);
	engine_faults();
	program_faults(2);
}

static void by_fork(void)
{
	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	CHECK(!status_of(fault_in_child));
	CHECK(!status_of(fault_in_child_with_device));
	CHECK(!status_of(fault_in_generations));
	engine_faults();
	program_faults(2);
}

static void by_vfork(void)
{
	const struct sigaction act = {.sa_handler = SIG_DFL};
	static struct sigaction old;
	static sighandler_t before;
	int status;
	pid_t pid;

	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	pid = vfork();
	if (!pid) {
		sigaction(SIGSEGV, &act, &old);
		before = signal(SIGSEGV, SIG_DFL);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	CHECK(old.sa_handler == leave && before == SIG_DFL);
	engine_faults();
	program_faults(2);
	CHECK(signal(SIGSEGV, SIG_DFL) == leave);
}

static void by_again(void)
{
	sighandler_t (*past_signal)(int, sighandler_t);
	sighandler_t was;
	struct ibv_mr *mr;

	both(&a, &b);
	CHECK(signal(SIGSEGV, leave) == SIG_DFL);
	*(void **)&past_signal = dlsym(dlopen("libc.so.6", RTLD_NOW), "signal");
	was = past_signal(SIGSEGV, leave);
	CHECK(past_signal(SIGSEGV, was) == leave);
	CHECK((mr = ibv_reg_mr(a.pd, &mr, sizeof mr, 0)) && !ibv_dereg_mr(mr));
	engine_faults();
	program_faults(2);
	CHECK(signal(SIGSEGV, SIG_DFL) == leave);
}

static atomic_bool opened;

static void *install_always(void *last)
{
	struct sigaction act = {.sa_handler = leave}, old;
	sighandler_t before = SIG_DFL;

	do {
		act.sa_handler = before == leave ? count : leave;
		CHECK(!sigaction(SIGSEGV, &act, &old) && old.sa_handler == before);
		before = act.sa_handler;
	} while (!opened || before != leave);
	return last;
}

static void by_meanwhile(void)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, install_always, NULL));
	both(&a, &b);
	opened = true;
	CHECK(!pthread_join(t, NULL));
	engine_faults();
	program_faults(2);
}

static void fault_again(int sig)
{
	if (!second++)
		write_to(nowhere());
	leave(sig);
}

static void nest(int flags)
{
	const struct sigaction act = {.sa_handler = fault_again, .sa_flags = flags};

	both(&a, &b);
	CHECK(!sigaction(SIGSEGV, &act, NULL));
	program_faults(1);
	CHECK(second == 2);
	engine_faults();
}

static void nest_deferred(void)
{
	nest(0);
}

static void nested(void)
{
	int status = status_of(nest_deferred);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	nest(SA_NODEFER);
}

static char alternate[64 << 10];
static volatile bool on_alternate;

static void leave_stack(int sig)
{
	char here;

	on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
	leave(sig);
}

static int overflow(volatile char *of_caller)
{
	volatile char here[1024];

	here[0] = *of_caller; /* 0 */
	return here[0] ? 1 : overflow(here) + here[0];
}

static void *overflow_stack(void *result)
{
	const stack_t ss = {.ss_sp = alternate, .ss_size = sizeof alternate};
	const struct sigaction act = {.sa_handler = leave_stack, .sa_flags = SA_ONSTACK};
	volatile char zero = 0;

	CHECK(!sigaltstack(&ss, NULL) && !sigaction(SIGSEGV, &act, NULL));
	engine_faults();
	for (volatile int i = 1; i <= 3; i++) {
		on_alternate = false;
		if (!sigsetjmp(out, 1))
			overflow(&zero);
		CHECK(first == i && on_alternate);
	}
	return result;
}

static void full_stack(void)
{
	pthread_t t;

	both(&a, &b);
	CHECK(!pthread_create(&t, NULL, overflow_stack, NULL) && !pthread_join(t, NULL));
}

static void ignored(void)
{
	struct sigaction old;
	int status;

	CHECK(!sigaction(SIGSEGV, NULL, &old));
	if (old.sa_handler != SIG_IGN) {
		signal(SIGSEGV, SIG_IGN);
		execl("/proc/self/exe", "faults", "ignored", NULL);
		CHECK(!"exec");
	}
	both(&a, &b);
	CHECK(!kill(getpid(), SIGSEGV));
	engine_faults();
	CHECK(!sigaction(SIGSEGV, NULL, &old) && old.sa_handler == SIG_IGN);
	status = status_of(fault);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = status_of(fault_with_device);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK(signal(SIGSEGV, leave) == SIG_IGN);
	program_faults(2);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {
		{"sigaction", by_sigaction}, {"signal", by_signal}, {"early", early}, {"file", file}, {"past", by_past}, {"chain", by_chain},
		{"back", by_back}, {"once", once}, {"default", by_default}, {"sent", sent}, {"fork", by_fork},
		{"again", by_again}, {"meanwhile", by_meanwhile}, {"ignored", ignored}, {"nested", nested}, {"stack", full_stack}, {"vfork", by_vfork},
	};

	CHECK(argc == 2);
	nowhere();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (!strcmp(argv[1], ways[i].name)) {
			ways[i].run();
			return 0;
		}
	return 2;
}
