/* Usage: verbs-agent DEVICE PORT. See agent.h for its protocol. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"

struct ibv_context *ctx;

/* The time limit of a command: if it takes longer, its connection is closed. */
enum { PATIENCE_S = 60 };

static const struct command *const commands[] = {
	device_commands, memory_commands, queue_commands, qp_commands, post_commands,
};

/* --- arguments --- */

int fail(struct call *c, const char *why)
{
	if (!c->bad)
		c->bad = why;
	return EBADMSG;
}

const char *text(struct call *c, const char *key)
{
	for (int i = 0; i < c->argc; i++)
		if (!strcmp(c->key[i], key))
			return c->val[i];
	return NULL;
}

uint64_t num(struct call *c, const char *key)
{
	const char *s = text(c, key);
	char *end;
	uint64_t v;

	if (!s)
		return 0;
	v = strtoull(s, &end, 0);
	if (*end || end == s)
		fail(c, "not a number");
	return v;
}

static int nibble(char x)
{
	if (x >= '0' && x <= '9')
		return x - '0';
	if (x >= 'a' && x <= 'f')
		return x - 'a' + 10;
	return -1;
}

size_t hex_arg(struct call *c, const char *key, uint8_t *to, size_t room)
{
	const char *s = text(c, key);
	size_t n = 0;

	for (; s && s[0] && s[1]; s += 2) {
		int high = nibble(s[0]), low = nibble(s[1]);

		if (high < 0 || low < 0 || n == room) {
			fail(c, "bad hex string, or too long");
			return 0;
		}
		to[n++] = (uint8_t)(high << 4 | low);
	}
	return n;
}

void gid_arg(struct call *c, const char *key, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (hex_arg(c, key, gid->raw, sizeof(gid->raw)) != sizeof(gid->raw))
		fail(c, "not a GID");
}

int sg_args(struct call *c, struct ibv_sge *sg)
{
	int n = 0;

	for (int i = 0; i < c->argc; i++) {
		unsigned long long addr;
		unsigned int length, lkey;

		if (strcmp(c->key[i], "sg"))
			continue;
		if (n == MAX_SG || sscanf(c->val[i], "%llu:%u:%u", &addr, &length, &lkey) != 3) {
			fail(c, "bad scatter/gather element, or too many");
			return 0;
		}
		sg[n++] = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
	}
	return n;
}

/* --- results --- */

static void room(struct call *c, size_t n)
{
	if (c->len + n + 1 <= c->cap)
		return;
	c->cap = 2 * (c->len + n + 1);
	c->out = realloc(c->out, c->cap);
	if (!c->out)
		abort();
}

void put_raw(struct call *c, const char *fmt, ...)
{
	va_list ap;
	int n;

	room(c, 512);
	va_start(ap, fmt);
	n = vsnprintf(c->out + c->len, 512, fmt, ap);
	va_end(ap);
	c->len += (size_t)n;
}

void put(struct call *c, const char *key, uint64_t v) { put_raw(c, " %s=%llu", key, (unsigned long long)v); }

void put_hex(struct call *c, const char *key, const void *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	put_raw(c, " %s=", key);
	room(c, 2 * n);
	for (size_t i = 0; i < n; i++) {
		c->out[c->len++] = digits[b[i] >> 4];
		c->out[c->len++] = digits[b[i] & 15];
	}
	c->out[c->len] = 0;
}

/* --- objects --- */

static struct {
	enum kind kind;
	void *p;
} objects[MAX_OBJECTS];
static uint64_t last_object;

uint64_t object_add(enum kind kind, void *p)
{
	if (last_object + 1 >= MAX_OBJECTS)
		abort();
	objects[++last_object].kind = kind;
	objects[last_object].p = p;
	return last_object;
}

void *object(struct call *c, const char *key, enum kind kind)
{
	uint64_t h = num(c, key);

	if (!h)
		return NULL;
	if (h > last_object || objects[h].kind != kind) {
		fail(c, "no such object");
		return NULL;
	}
	return objects[h].p;
}

void object_forget(struct call *c, const char *key) { objects[num(c, key)].kind = K_NONE; }

uint64_t object_handle(enum kind kind, const void *p)
{
	for (uint64_t h = 1; h <= last_object; h++)
		if (objects[h].kind == kind && objects[h].p == p)
			return h;
	return 0;
}

int made(struct call *c, enum kind kind, void *p)
{
	if (!p)
		return errno ? errno : EIO;
	put(c, "handle", object_add(kind, p));
	return 0;
}

int result(int rc)
{
	if (rc >= 0)
		return rc;
	return errno ? errno : -rc;
}

int ended(struct call *c, const char *key, int rc)
{
	if (rc)
		return result(rc);
	object_forget(c, key);
	return 0;
}

int await(int fd, uint64_t ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n = poll(&p, 1, (int)ms);

	if (n < 0)
		return errno;
	return n ? 0 : EAGAIN;
}

/* --- the line --- */

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		for (const struct command *k = commands[i]; k->name; k++)
			if (!strcmp(k->name, name))
				return k;
	return NULL;
}

static const struct command *parse(struct call *c, char *line)
{
	char *save = NULL, *word = strtok_r(line, " \r\n", &save);
	const struct command *k = word ? find(word) : NULL;

	c->argc = 0;
	c->len = 0;
	c->bad = NULL;
	room(c, 0);
	c->out[0] = 0;
	if (!k) {
		c->bad = "unknown command";
		return NULL;
	}
	while ((word = strtok_r(NULL, " \r\n", &save))) {
		char *eq = strchr(word, '=');

		if (!eq || c->argc == MAX_ARGS) {
			c->bad = "an argument is not key=value, or there are too many";
			return NULL;
		}
		*eq = 0;
		c->key[c->argc] = word;
		c->val[c->argc++] = eq + 1;
	}
	return k;
}

static void serve(int fd)
{
	FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
	struct call c = { 0 };
	char *line = NULL;
	size_t cap = 0;

	while (in && out && getline(&line, &cap, in) > 0) {
		const struct command *k = parse(&c, line);
		int err = 0;

		alarm(PATIENCE_S);
		if (k) {
			errno = 0;
			err = k->run(&c);
		}
		alarm(0);
		if (c.bad)
			fprintf(out, "bad %s\n", c.bad);
		else if (err)
			fprintf(out, "err %d%s\n", err, c.out);
		else
			fprintf(out, "ok%s\n", c.out);
		fflush(out);
	}
}

static int open_device(const char *name)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	int fd, yes = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: verbs-agent DEVICE PORT\n");
		return 2;
	}
	a.sin6_port = htons((uint16_t)atoi(argv[2]));
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 16)) {
		perror("verbs-agent: listen");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	printf("listening on port %s\n", argv[2]);
	fflush(stdout);
	for (;;) {
		int peer = accept(fd, NULL, NULL);

		if (peer < 0)
			continue;
		if (!fork()) {
			close(fd);
			setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
			if (open_device(argv[1])) {
				dprintf(peer, "bad cannot open %s: %s\n", argv[1], strerror(errno));
				return 1;
			}
			serve(peer);
			return 0;
		}
		close(peer);
	}
}
