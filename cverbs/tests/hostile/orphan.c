/* orphan.c: a child of a fork, which uses no device, outlives the program that has opened the devices. The next program opens them. */
#include "rig.h"

static struct end a, b;

int main(void)
{
	pid_t first = fork(), child;
	int status, told[2];

	CHECK(first >= 0 && !pipe(told));
	if (!first) {
		both(&a, &b);
		child = fork();
		if (!child) {
			close(1);
			close(2);
			alarm(10);
			for (;;)
				pause();
		}
		CHECK(child > 0);
		exit(0);
	}
	CHECK(waitpid(first, &status, 0) == first && WIFEXITED(status) && !WEXITSTATUS(status));
	both(&a, &b);
	return 0;
}
