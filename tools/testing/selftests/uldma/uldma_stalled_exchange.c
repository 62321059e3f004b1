// SPDX-License-Identifier: GPL-2.0
/*
 * Usage: uldma_stalled_exchange FIFO [cleanup|signals]
 *
 * A call on exchangeable memory waits for a device that does not end a transfer:
 * other calls on the same open file go on. With "cleanup", another call ends all
 * memory meanwhile, and waits for the first one: calls that ask for the process's
 * locked memory go on. With "signals", another call on the same memory waits for
 * the first one, and is not interrupted by signals: it would begin anew, for all of
 * its time, after each stop of the process.
 *
 * The runner holds the transfer once it is told that it has started: a device
 * whose engine is idle is not waited for. The exit status is 0 if the other calls
 * ended first, 2 if the first call ended before they could, which the runner tries
 * again, and 1 otherwise.
 */
#include <pthread.h>

#include "uldma_process.h"
#include "uldma_exchange.h"
#include "uldma_lmm.h"
#include "uldma_steps.h"

#define TOO_LATE 2

/**
 * struct waiter - a thread that makes a call, and waits for the device
 * @thread: the thread
 * @call: the call
 * @fd: the device
 * @one: exchanged with @other
 * @other: exchanged with @one
 * @tid: the thread's number
 * @ret: what the call returned
 * @ended: true if it did
 */
struct waiter {
	pthread_t thread;
	int (*call)(struct waiter *w);
	int fd;
	struct memory one;
	struct memory other;
	pid_t tid;
	int ret;
	bool ended;
};

static int exchange(struct waiter *w)
{
	return memory_swap(w->fd, &w->one, 0, &w->other, 0, page_size());
}

static int clean_up(struct waiter *w)
{
	return region_cleanup(w->fd);
}

static void *run_waiter(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->tid, gettid(), __ATOMIC_RELEASE);
	w->ret = w->call(w);
	__atomic_store_n(&w->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool has_ended(struct waiter *w)
{
	return __atomic_load_n(&w->ended, __ATOMIC_ACQUIRE);
}

/* Returns true if the thread sleeps in a call. */
static bool sleeps(pid_t tid)
{
	char file[64], line[256] = "";
	char state = 0;
	FILE *f;

	snprintf(file, sizeof(file), "/proc/self/task/%d/stat", tid);
	f = fopen(file, "r");
	if (f && fgets(line, sizeof(line), f) && strrchr(line, ')'))
		sscanf(strrchr(line, ')'), ") %c", &state);
	if (f)
		fclose(f);
	return state == 'D' || state == 'S';
}

static void wait_until_it_sleeps(struct waiter *w)
{
	while (!has_ended(w)) {
		pid_t tid = __atomic_load_n(&w->tid, __ATOMIC_ACQUIRE);

		if (tid && sleeps(tid))
			break;
		sched_yield();
	}
}

/* 0, TOO_LATE, or a negated errno. */
static int others_go_on(struct waiter *w, struct memory *third)
{
	size_t length = third->r.length;
	int ret;

	wait_until_it_sleeps(w);
	if (!query(w->fd).out_abi_version)
		return -EPROTO;
	ret = memory_protect(w->fd, third, 0, length) ?:
	      memory_release(w->fd, third, 0, length);
	if (ret)
		return ret;
	return has_ended(w) ? TOO_LATE : 0;
}

/* The same while another thread ends all memory. */
static int locked_memory_is_told(struct waiter *w)
{
	struct waiter cleaner = { .fd = w->fd, .call = clean_up };
	struct uldma_lmm l;
	int ret;

	wait_until_it_sleeps(w);
	ret = -pthread_create(&cleaner.thread, NULL, run_waiter, &cleaner);
	if (ret)
		return ret;
	wait_until_it_sleeps(&cleaner);
	ret = lmm_ioctl(w->fd, 0, &l) ?: has_ended(w) ? TOO_LATE : 0;
	pthread_join(cleaner.thread, NULL);
	return ret;
}

static void on_signal(int number)
{
}

/* The same while another thread waits for its turn, and gets signals. */
static int turn_is_waited_for(struct waiter *w)
{
	struct sigaction act = { .sa_handler = on_signal };
	struct waiter next = *w;
	bool in_time;
	int ret;

	wait_until_it_sleeps(w);
	next.tid = 0;
	next.ended = false;
	ret = sigaction(SIGUSR1, &act, NULL) ? -errno :
	      -pthread_create(&next.thread, NULL, run_waiter, &next);
	if (ret)
		return ret;
	wait_until_it_sleeps(&next);
	in_time = !has_ended(w) && !has_ended(&next);
	while (!has_ended(w) && !has_ended(&next)) {
		pthread_kill(next.thread, SIGUSR1);
		sched_yield();
	}
	pthread_join(next.thread, NULL);
	if (next.ret == -EINTR)
		return next.ret;
	return in_time ? 0 : TOO_LATE;
}

int main(int argc, char **argv)
{
	struct waiter w = { .fd = uldma_open(0), .call = exchange };
	const char *how = argc > 2 ? argv[2] : "";
	int fifo = argc > 1 ? steps_open(argv[1]) : -EINVAL;
	size_t length = 2 * page_size();
	struct memory third;
	__u64 ticket;
	int ret;

	if (w.fd < 0 || fifo < 0)
		return 1;
	/* The transfer uses the memory until the device goes on. */
	ret = memory_create(w.fd, length, &w.one) ?:
	      memory_create(w.fd, length, &w.other) ?:
	      memory_create(w.fd, length, &third) ?:
	      memory_map(w.fd, &third) ?:
	      go_on(fifo, "ready") ?:
	      kernel_start(w.fd, w.one.r.handle, 0, w.other.r.handle, 0,
			   length, &ticket) ?:
	      go_on(fifo, "started") ?:
	      -pthread_create(&w.thread, NULL, run_waiter, &w);
	if (ret) {
		fprintf(stderr, "preparing: %s\n", strerror(-ret));
		return 1;
	}
	if (!strcmp(how, "cleanup"))
		ret = locked_memory_is_told(&w);
	else if (!strcmp(how, "signals"))
		ret = turn_is_waited_for(&w);
	else
		ret = others_go_on(&w, &third);
	pthread_join(w.thread, NULL);
	if (w.ret != -ETIMEDOUT) {
		fprintf(stderr, "the exchange returned %d\n", w.ret);
		return 1;
	}
	if (ret < 0)
		fprintf(stderr, "another call: %s\n", strerror(-ret));
	return ret < 0 ? 1 : ret;
}
