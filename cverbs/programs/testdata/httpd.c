/* httpd.c: a web server with plain sockets, for tests of preload libraries.
 *
 *   httpd ADDRESS PORT FILE COUNT [fork]
 *
 * It answers COUNT requests, each with FILE, and exits. With fork a child answers. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Reads a request up to its empty line. */
static void read_request(int s)
{
	char text[4096] = "";
	size_t n = 0;

	while (!strstr(text, "\r\n\r\n")) {
		ssize_t got = read(s, text + n, sizeof text - 1 - n);

		if (got <= 0)
			die("read");
		n += (size_t)got;
	}
}

static void send_all(int s, const char *p, size_t n)
{
	while (n) {
		ssize_t sent = send(s, p, n, MSG_NOSIGNAL);

		if (sent < 0)
			die("send");
		p += sent;
		n -= (size_t)sent;
	}
}

static void answer(int s, const char *file)
{
	static char piece[100000]; /* divides no other size */
	struct stat st;
	int in = open(file, O_RDONLY);
	ssize_t n;

	if (in < 0 || fstat(in, &st))
		die(file);
	read_request(s);
	n = snprintf(piece, sizeof piece, "HTTP/1.0 200 OK\r\nContent-Length: %lld\r\n\r\n", (long long)st.st_size);
	do
		send_all(s, piece, (size_t)n);
	while ((n = read(in, piece, sizeof piece)) > 0);
	if (n < 0 || close(in) || close(s))
		die("close");
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int forks = argc > 5, one = 1, listener;

	if (argc < 5)
		return 2;
	inet_pton(AF_INET, argv[1], &at.sin_addr);
	at.sin_port = htons(atoi(argv[2]));
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8))
		die("listen");
	for (int left = atoi(argv[4]); left > 0; left--) {
		int s = accept(listener, NULL, NULL);

		if (s < 0)
			die("accept");
		if (!forks) {
			answer(s, argv[3]);
		} else if (!fork()) {
			answer(s, argv[3]);
			exit(0);
		} else {
			close(s);
		}
	}
	for (int status; wait(&status) > 0;)
		if (status)
			return 1;
	return 0;
}
