/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a test's own process: pages that it has pinned, signals that
 * it gets, children that it starts.
 */
#ifndef __SELFTEST_ULDMA_PROCESS_H
#define __SELFTEST_ULDMA_PROCESS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uldma_utils.h"

/* A number from a file of "name value" lines, or -1. */
static inline long long number_in(const char *file, const char *name)
{
	size_t len = strlen(name);
	long long value = -1;
	char line[256];
	FILE *f;

	f = fopen(file, "r");
	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) &&
		    strchr(": ", line[len]))
			value = strtoll(line + len + 1, NULL, 10);
	fclose(f);
	return value;
}

/* Pages that this address space is charged for. */
static inline long vm_pin(void)
{
	return number_in("/proc/self/status", "VmPin") * 1024 /
	       sysconf(_SC_PAGESIZE);
}

/*
 * Pins that the whole machine holds. The counters are kept per CPU and folded
 * once a second; reading stat_refresh, which root may, folds them now.
 */
static inline long long machine_pins(void)
{
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY);
	char byte;

	if (fd >= 0) {
		if (read(fd, &byte, 1) < 0)
			perror("stat_refresh");
		close(fd);
	}
	return number_in("/proc/vmstat", "nr_foll_pin_acquired") -
	       number_in("/proc/vmstat", "nr_foll_pin_released");
}

static inline int set_memlock(rlim_t bytes)
{
	struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };
	struct rlimit old;

	if (getrlimit(RLIMIT_MEMLOCK, &old))
		return -errno;
	/* Only root may have raised it before. */
	if (geteuid())
		limit.rlim_max = old.rlim_max;
	return setrlimit(RLIMIT_MEMLOCK, &limit) ? -errno : 0;
}

/* Gives up CAP_IPC_LOCK with all else, but keeps what is open. */
static inline int drop_privileges(void)
{
	if (!geteuid() && (setresgid(1000, 1000, 1000) ||
			   setresuid(1000, 1000, 1000)))
		return -errno;
	return 0;
}

/* Users without files and capabilities. */
#define HOSTILE 4711
#define OTHER 4712

/* Becomes such a user, with a limit of so many bytes, and ends with the parent. */
static inline int become(uid_t uid, rlim_t memlock)
{
	struct rlimit limit = { memlock, memlock };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setresgid(uid, uid, uid) ||
	    setresuid(uid, uid, uid))
		return -errno;
	return prctl(PR_SET_PDEATHSIG, SIGKILL) ? -errno : 0;
}

/* Lets all users open the device; the mode is to be restored. */
static inline int node_open_to_all(mode_t *mode)
{
	struct stat node;

	if (stat(uldma_node(), &node) || chmod(uldma_node(), 0666))
		return -errno;
	*mode = node.st_mode & 07777;
	return 0;
}

/* Lets this thread, and those that it starts, run on one CPU only. */
static inline int pin_to(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus) ? -errno : 0;
}

static sigjmp_buf touch_return;

static void touch_failed(int signal)
{
	siglongjmp(touch_return, signal);
}

enum touch {
	LOAD,
	STORE,
};

/* Loads or stores eight bytes: 0, or the signal that came. */
static inline int touch(void *addr, enum touch how)
{
	struct sigaction act = { .sa_handler = touch_failed };
	struct sigaction segv, bus;
	int signal;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	signal = sigsetjmp(touch_return, 1);
	if (!signal) {
		if (how == LOAD)
			(void)READ_ONCE(*(__u64 *)addr);
		else
			WRITE_ONCE(*(__u64 *)addr, 0);
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return signal;
}

/*
 * Runs a function in a child. Its result, 0 or a negated errno, is
 * returned here; a positive value is the signal that killed the child.
 */
static inline int in_child(int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(-fn(arg));
	}
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : WTERMSIG(status);
}

/**
 * struct helper - a child that is to do one thing and then stay
 * @pid: its process
 * @fd: what it wrote can be read here
 */
struct helper {
	pid_t pid;
	int fd;
};

/* Starts a child that gets a descriptor to write to, and waits to be killed. */
static inline int helper_start(struct helper *h, void (*fn)(int fd, void *arg),
			       void *arg)
{
	int fds[2];

	if (pipe(fds))
		return -errno;
	h->pid = fork();
	if (h->pid < 0)
		return -errno;
	if (!h->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		fn(fds[1], arg);
		for (;;)
			pause();
	}
	close(fds[1]);
	h->fd = fds[0];
	return 0;
}

static inline int helper_kill(struct helper *h)
{
	close(h->fd);
	kill(h->pid, SIGKILL);
	return waitpid(h->pid, NULL, 0) == h->pid ? 0 : -errno;
}

/* Milliseconds after which a partner that does not answer is stuck. */
#define PARTNER_PATIENCE 60000

/**
 * struct partner - a child that executes one order at a time
 * @pid: its process
 * @fd: pipe for orders
 */
struct partner {
	pid_t pid;
	int fd;
};

struct partner_order {
	long verb;
	long arg;
};

/* Starts a child that answers each order with what the function says. */
static inline int partner_start(struct partner *p,
				long (*serve)(long verb, long arg, void *data),
				void *data)
{
	struct partner_order order;
	int fds[2];
	long value;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return -errno;
	p->pid = fork();
	if (p->pid < 0)
		return -errno;
	if (!p->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		while (read(fds[1], &order, sizeof(order)) == sizeof(order)) {
			value = serve(order.verb, order.arg, data);
			if (write(fds[1], &value, sizeof(value)) !=
			    sizeof(value))
				break;
		}
		_exit(0);
	}
	close(fds[1]);
	p->fd = fds[0];
	return 0;
}

static inline int partner_tell(struct partner *p, long verb, long arg)
{
	struct partner_order order = { verb, arg };

	return send(p->fd, &order, sizeof(order), MSG_NOSIGNAL) ==
			       sizeof(order) ? 0 : -EPIPE;
}

/* Returns the child's answer; -ETIMEDOUT if it hangs, -EPIPE if it has ended. */
static inline long partner_answer(struct partner *p)
{
	long value;

	if (!poll_for(p->fd, PARTNER_PATIENCE))
		return -ETIMEDOUT;
	return read(p->fd, &value, sizeof(value)) == sizeof(value) ? value :
								     -EPIPE;
}

static inline long partner_call(struct partner *p, long verb, long arg)
{
	return partner_tell(p, verb, arg) ?: partner_answer(p);
}

/* Lets the child end: what its exit says, or the signal that killed it. */
static inline int partner_end(struct partner *p)
{
	int status;

	/* Children that were started later have it open too. */
	shutdown(p->fd, SHUT_RDWR);
	close(p->fd);
	if (waitpid(p->pid, &status, 0) != p->pid)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : WTERMSIG(status);
}

static inline int partner_kill(struct partner *p)
{
	kill(p->pid, SIGKILL);
	return partner_end(p);
}

/* Passes a file on, and a number with it. */
static inline int send_file(int sock, int fd, __u32 value)
{
	char control[CMSG_SPACE(sizeof(int))] = { };
	struct iovec iov = { &value, sizeof(value) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(sock, &msg, 0) == sizeof(value) ? 0 : -errno;
}

static inline int receive_file(int sock, __u32 *value)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { value, sizeof(*value) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(sock, &msg, 0) != sizeof(*value))
		return -EPIPE;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

#endif /* __SELFTEST_ULDMA_PROCESS_H */
