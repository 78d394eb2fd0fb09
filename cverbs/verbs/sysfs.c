/* sysfs.c: the two calls that read sysfs for programs. ROCE_SYSFS names a directory that replaces /sys. */
#include "front.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

const char *ibv_get_sysfs_path(void)
{
	const char *given = secure_getenv("ROCE_SYSFS");

	return given && *given ? given : "/sys";
}

/* Reads a file into buf, without the newline at its end, and ends it with 0. */
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (!dir || !file || !buf || !size)
		return roce_minus1(EINVAL);
	if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
		return roce_minus1(ENAMETOOLONG);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = 0;
	else if ((size_t)n < size)
		buf[n] = 0;
	else
		return roce_minus1(ENOSPC);
	return (int)n;
}
