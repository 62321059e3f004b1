// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of a node: runs commands for the host, several at once.
 *
 * Requests arrive on a virtio-serial port, one line each:
 *	run ID UID LENGTH	followed by LENGTH bytes, a script for /bin/sh
 *	kill ID SIGNAL		to the process group of command ID
 * Answers, in any order:
 *	ready
 *	out ID LENGTH		followed by LENGTH bytes; err likewise
 *	exit ID STATUS		128 + signal for a command that was killed
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT		"/dev/vport0p1"
#define DEVICE		"/sys/class/virtio-ports/vport0p1/device"
#define DRIVER		"/sys/bus/virtio/drivers/virtio_console"
/* Milliseconds in which the host answers for a port that is new. */
#define GREETING	60000
#define MAX_COMMANDS	32
/* As much as execve() takes in one argument, with some room; what is longer becomes a file. */
#define MAX_ARGUMENT	65536

struct command {
	pid_t pid;	/* 0: this slot is free */
	unsigned int id;
	int pipes[2];	/* stdout, stderr; -1 when closed */
};

static const char * const stream_names[] = { "out", "err" };
static struct command commands[MAX_COMMANDS];
static int port;

/* The port appears when the host has told the guest about it. Not every kernel has inotify. */
static int open_port(void)
{
	int fd;

	while ((fd = open(PORT, O_RDWR | O_CLOEXEC)) < 0) {
		if (errno != ENOENT && errno != ENXIO)
			err(1, "%s", PORT);
		usleep(1000);
	}
	return fd;
}

static void put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		err(1, "%s", path);
	close(fd);
}

/*
 * Opens the port again when the kernel has lost sight of the host. It does while the node sleeps:
 * it asks for the host's state before it can hear the answer. A driver that is bound anew asks
 * again.
 */
static void open_port_again(void)
{
	struct pollfd fd = { .events = 0 };
	char link[256];
	ssize_t n = readlink(DEVICE, link, sizeof(link) - 1);

	if (n < 0)
		err(1, "%s", DEVICE);
	link[n] = '\0';
	close(port);
	put(DRIVER "/unbind", basename(link));
	put(DRIVER "/bind", basename(link));
	port = open_port();
	fd.fd = port;
	for (int i = 0; poll(&fd, 1, 0) > 0 && fd.revents & POLLHUP; i++) {
		if (i == GREETING)
			errx(1, "the host has gone");
		usleep(1000);
	}
}

static void send_all(const char *data, size_t length)
{
	while (length) {
		ssize_t n = write(port, data, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			err(1, "write to host");
		data += n;
		length -= n;
	}
}

static void receive_all(char *data, size_t length)
{
	while (length) {
		ssize_t n = read(port, data, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			err(1, "read from host");
		data += n;
		length -= n;
	}
}

__attribute__((format(printf, 1, 2)))
static void send_line(const char *format, ...)
{
	char line[64];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	send_all(line, n);
}

static void forward(struct command *c, int stream)
{
	char data[8192];
	ssize_t n = read(c->pipes[stream], data, sizeof(data));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		close(c->pipes[stream]);
		c->pipes[stream] = -1;
		return;
	}
	send_line("%s %u %zd\n", stream_names[stream], c->id, n);
	send_all(data, n);
}

/* What a command left running may hold its pipes open: do not wait for their end. */
static void finish(struct command *c, int status)
{
	for (int stream = 0; stream < 2; stream++) {
		struct pollfd left = { .events = POLLIN };

		while ((left.fd = c->pipes[stream]) >= 0 && poll(&left, 1, 0) > 0)
			forward(c, stream);
		if (c->pipes[stream] >= 0)
			close(c->pipes[stream]);
	}
	send_line("exit %u %d\n", c->id,
		  WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	c->pid = 0;
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < MAX_COMMANDS; i++)
			if (commands[i].pid == pid)
				finish(&commands[i], status);
}

/*
 * Takes a script that is longer than an argument can be, into a file without a name.
 * Returns -1 where there is no room for it; it is taken from the port all the same.
 */
static int receive_file(size_t length)
{
	int fd = memfd_create("script", 0);
	char data[8192];

	while (length) {
		size_t n = length < sizeof(data) ? length : sizeof(data);

		receive_all(data, n);
		length -= n;
		if (fd >= 0 && write(fd, data, n) != (ssize_t)n) {
			close(fd);
			fd = -1;
		}
	}
	return fd;
}

static void child(char *script, int file, uid_t uid, int out, int error)
{
	char path[32];
	sigset_t none;

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(out, 1);
	dup2(error, 2);
	if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
		err(126, "uid %u", uid);
	setenv("HOME", uid ? "/tmp" : "/root", 1);
	if (file < 0)
		execl("/bin/sh", "sh", "-c", script, NULL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	execl("/bin/sh", "sh", path, NULL);
	err(127, "/bin/sh");
}

static void run(unsigned int id, uid_t uid, size_t length)
{
	static char script[MAX_ARGUMENT + 1];
	bool is_long = length > MAX_ARGUMENT;
	struct command *c = commands;
	int out[2], error[2];
	int file = -1;

	if (is_long) {
		file = receive_file(length);
	} else {
		receive_all(script, length);
		script[length] = '\0';
	}
	while (c < commands + MAX_COMMANDS && c->pid)
		c++;
	if ((is_long && file < 0) || c == commands + MAX_COMMANDS || pipe2(out, O_CLOEXEC) ||
	    pipe2(error, O_CLOEXEC)) {
		if (file >= 0)
			close(file);
		send_line("exit %u 126\n", id);
		return;
	}
	c->id = id;
	c->pid = fork();
	if (c->pid < 0)
		err(1, "fork");
	if (!c->pid)
		child(script, file, uid, out[1], error[1]);
	if (file >= 0)
		close(file);
	close(out[1]);
	close(error[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(error[0], F_SETFL, O_NONBLOCK);
	c->pipes[0] = out[0];
	c->pipes[1] = error[0];
}

static void handle(void)
{
	unsigned int id, uid, length, i = 0;
	char line[64];
	int signal;

	do {
		if (i == sizeof(line) - 1)
			errx(1, "request too long");
		receive_all(line + i, 1);
	} while (line[i++] != '\n');
	line[i] = '\0';
	if (sscanf(line, "run %u %u %u", &id, &uid, &length) == 3) {
		run(id, uid, length);
	} else if (sscanf(line, "kill %u %d", &id, &signal) == 2) {
		for (i = 0; i < MAX_COMMANDS; i++)
			if (commands[i].pid && commands[i].id == id)
				kill(-commands[i].pid, signal);
	} else {
		errx(1, "unknown request: %s", line);
	}
}

int main(void)
{
	struct signalfd_siginfo info;
	sigset_t chld;
	int signals;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	signals = signalfd(-1, &chld, SFD_CLOEXEC);
	port = open_port();
	send_line("ready\n");

	for (;;) {
		struct pollfd fds[2 + 2 * MAX_COMMANDS] = {
			{ .fd = port, .events = POLLIN },
			{ .fd = signals, .events = POLLIN },
		};
		int i;

		for (i = 0; i < MAX_COMMANDS; i++)
			for (int stream = 0; stream < 2; stream++) {
				struct command *c = &commands[i];

				fds[2 + 2 * i + stream].fd = c->pid ? c->pipes[stream] : -1;
				fds[2 + 2 * i + stream].events = POLLIN;
			}
		if (poll(fds, 2 + 2 * MAX_COMMANDS, -1) < 0)
			err(1, "poll");
		if (fds[0].revents & POLLHUP) {
			open_port_again();
			continue;
		}
		for (i = 0; i < 2 * MAX_COMMANDS; i++)
			if (fds[2 + i].revents)
				forward(&commands[i / 2], i % 2);
		if (fds[1].revents && read(signals, &info, sizeof(info)) > 0)
			reap();
		if (fds[0].revents & POLLIN)
			handle();
	}
}
