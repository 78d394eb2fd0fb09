/* echo.c: datagrams and their echoes, with the calls of sockets.
 *
 *   echo ADDRESS PORT          the server, which ends by a signal
 *   echo ADDRESS PORT COUNT    the client, which repeats what is lost */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 1000, PATIENCE_MS = 20 };

static void check(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static int serve(int s, const struct sockaddr_in *at)
{
	char buffer[SIZE];

	check(!bind(s, (const struct sockaddr *)at, sizeof *at), "bind");
	for (;;) {
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		ssize_t n = recvfrom(s, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len);

		check(n >= 0, "recvfrom");
		check(sendto(s, buffer, (size_t)n, 0, (struct sockaddr *)&from, len) == n, "sendto");
	}
}

static int ask(int s, const struct sockaddr_in *at, int count)
{
	check(!connect(s, (const struct sockaddr *)at, sizeof *at), "connect");
	for (int i = 0; i < count;) {
		struct pollfd p = {.fd = s, .events = POLLIN};
		char sent[SIZE] = {0}, got[SIZE];

		memcpy(sent, &i, sizeof i);
		check(send(s, sent, sizeof sent, 0) == SIZE, "send");
		check(poll(&p, 1, PATIENCE_MS) >= 0, "poll");
		if (p.revents & POLLIN && recv(s, got, sizeof got, 0) == SIZE && !memcmp(sent, got, SIZE))
			i++; /* otherwise it is lost, or the echo of one that was repeated */
	}
	printf("%d echoes\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int s;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	s = socket(AF_INET, SOCK_DGRAM, 0);
	check(s >= 0, "socket");
	return argc > 3 ? ask(s, &at, atoi(argv[3])) : serve(s, &at);
}
