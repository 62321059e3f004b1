/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A child that waits in a call while its parent stops and continues it, or sends
 * it a signal that it handles.
 */
#ifndef __SELFTEST_ULDMA_STOPS_H
#define __SELFTEST_ULDMA_STOPS_H

#include "uldma_process.h"

/* Milliseconds until a child that was woken sleeps again, as a first guess. */
#define WOKEN 10
/* Stops of a child that waits without a limit. */
#define STOPS 5

/**
 * struct call - a call that waits
 * @prepare: makes what it is about, in the process that calls: 0 or a negated errno
 * @make: makes the call: what it returned
 */
struct call {
	int (*prepare)(void *about);
	int (*make)(void *about);
};

/**
 * struct caller - a child that makes a call
 * @pid: its process
 * @fd: says a byte, then what the call returned
 */
struct caller {
	pid_t pid;
	int fd;
};

static void stops_handler(int signal)
{
}

/* Starts a child, and returns when it is about to make the call. */
static inline int caller_start(struct caller *c, const struct call *call,
			       void *about)
{
	/* As signal() of the C library installs it. */
	struct sigaction act = { .sa_handler = stops_handler,
				 .sa_flags = SA_RESTART };
	int fds[2], ret;

	if (pipe(fds))
		return -errno;
	c->pid = fork();
	if (c->pid < 0)
		return -errno;
	if (!c->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigaction(SIGUSR1, &act, NULL);
		ret = call->prepare(about);
		if (write(fds[1], &ret, sizeof(ret)) != sizeof(ret) || ret)
			_exit(1);
		ret = call->make(about);
		_exit(write(fds[1], &ret, sizeof(ret)) != sizeof(ret));
	}
	close(fds[1]);
	c->fd = fds[0];
	return read(c->fd, &ret, sizeof(ret)) == sizeof(ret) ? ret : -EPIPE;
}

/* What the call returned: waits for that. */
static inline int caller_end(struct caller *c)
{
	int ret;

	if (read(c->fd, &ret, sizeof(ret)) != sizeof(ret))
		ret = -EPIPE;
	close(c->fd);
	if (waitpid(c->pid, NULL, 0) != c->pid)
		return -errno;
	return ret;
}

static inline int stop_and_continue(pid_t child)
{
	int status;

	if (kill(child, SIGSTOP) || waitpid(child, &status, WUNTRACED) != child)
		return -errno;
	if (!WIFSTOPPED(status))
		return -ECHILD;
	return kill(child, SIGCONT) ? -errno : 0;
}

/* Returns true if the process sleeps. */
static inline bool is_asleep(pid_t pid)
{
	char file[32], state[16] = "";
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/stat", pid);
	f = fopen(file, "r");
	if (!f)
		return false;
	/* The name of the program has no spaces. */
	if (fscanf(f, "%*d %*s %15s", state) != 1)
		state[0] = 0;
	fclose(f);
	return state[0] == 'S' || state[0] == 'D';
}

/*
 * Stops and continues a caller @most times, each time when it sleeps: how often,
 * before the call ended.
 */
static inline int caller_stop(struct caller *c, int pace_ms, int most)
{
	int stops = 0;

	while (stops < most && !poll_for(c->fd, pace_ms)) {
		if (!is_asleep(c->pid))
			continue;
		if (stop_and_continue(c->pid))
			break;
		stops++;
	}
	return stops;
}

/*
 * Stops and continues a caller, which does not end its call, and then sends
 * signals until that has ended: what it returned, or -EALREADY if it ended before.
 */
static inline int caller_interrupt(struct caller *c)
{
	if (caller_stop(c, WOKEN, STOPS) < STOPS || poll_for(c->fd, WOKEN)) {
		int ret = caller_end(c);

		fprintf(stderr, "# ended when it was stopped: %d\n", ret);
		return -EALREADY;
	}
	/* A signal that comes before the call is lost. */
	while (!poll_for(c->fd, WOKEN))
		if (kill(c->pid, SIGUSR1))
			return -errno;
	return caller_end(c);
}

#endif /* __SELFTEST_ULDMA_STOPS_H */
