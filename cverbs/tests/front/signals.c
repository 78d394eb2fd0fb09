/* Handlers of the program get SA_ONSTACK, and its signals do not go to the engine's threads. */
#include "check.h"

#include <sys/syscall.h>

static void handler(int sig)
{
	(void)sig;
}

static void with_info(int sig, siginfo_t *info, void *unused)
{
	(void)sig, (void)info, (void)unused;
}

static int flags_of(int sig)
{
	struct sigaction a;

	CHECK(!sigaction(sig, NULL, &a));
	return a.sa_flags;
}

/* Calls libc's sigaction directly, as a library may do. */
static void install_past_us(int sig)
{
	int (*real)(int, const struct sigaction *, struct sigaction *);
	struct sigaction a = {.sa_handler = handler};

	*(void **)&real = dlsym(dlopen("libc.so.6", RTLD_NOW), "sigaction");
	CHECK(!real(sig, &a, NULL));
	CHECK(!(flags_of(sig) & SA_ONSTACK));
}

static void interposed(void)
{
	struct sigaction a = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO | SA_RESTART}, old;

	CHECK(!sigaction(SIGUSR1, &a, NULL));
	CHECK(flags_of(SIGUSR1) & SA_ONSTACK && flags_of(SIGUSR1) & SA_RESTART);
	CHECK(!(a.sa_flags & SA_ONSTACK)); /* the program's structure is its own */
	CHECK(signal(SIGALRM, handler) == SIG_DFL);
	CHECK(flags_of(SIGALRM) & SA_ONSTACK && flags_of(SIGALRM) & SA_RESTART);
	CHECK(signal(SIGALRM, SIG_IGN) == handler);
	CHECK(!(flags_of(SIGALRM) & SA_ONSTACK));
	CHECK(signal(SIGALRM, SIG_DFL) == SIG_IGN);
	CHECK(signal(SIGKILL, handler) == SIG_ERR && errno == EINVAL);
	CHECK(sigaction(SIGKILL, &a, &old) == -1 && errno == EINVAL);
}

static pthread_t self;
static volatile int on_program, elsewhere;

static void where(int sig)
{
	(void)sig;
	if (pthread_equal(self, pthread_self()))
		on_program++;
	else
		elsewhere++;
}

static void threads_of_engine(void)
{
	struct sigaction a = {.sa_handler = where};

	self = pthread_self();
	CHECK(!sigaction(SIGUSR2, &a, NULL));
	for (int i = 0; i < 1000; i++)
		CHECK(!kill(getpid(), SIGUSR2));
	CHECK(on_program > 0 && !elsewhere);
}

static void mask_is_kept(void)
{
	sigset_t mask;

	CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &mask));
	for (int sig = 1; sig < NSIG; sig++)
		CHECK(sigismember(&mask, sig) <= 0);
}

int main(void)
{
	struct ibv_context *context;

	interposed();
	install_past_us(SIGHUP);
	context = open_first(); /* loads the engine */
	CHECK(flags_of(SIGHUP) & SA_ONSTACK);
	mask_is_kept();
	threads_of_engine();
	CHECK(!ibv_close_device(context));
	return 0;
}
