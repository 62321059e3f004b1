// SPDX-License-Identifier: GPL-2.0
/*
 * The processes of the fuzzer that make the calls, and what of the kernel's
 * code they reach, where it has KCOV.
 */
#include <pthread.h>
#include <linux/capability.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "uldma_fuzz_model.h"
#include "uldma_process.h"

/* A worker that does not answer for so long is stuck. */
#define STUCK_MS 60000
/* Interval of the signals that interrupt waiting calls. */
#define INTERRUPT_US 4000

#define KCOV_PATH "/sys/kernel/debug/kcov"
#define KCOV_INIT_TRACE _IOR('c', 1, unsigned long)
#define KCOV_ENABLE _IO('c', 100)
#define KCOV_DISABLE _IO('c', 101)
#define KCOV_TRACE_PC 0
#define COVERAGE_WORDS (64 << 10)
#define COVERAGE_BITS 0x100000

/* A bit for each place in the kernel that any worker has reached. */
static unsigned char *reached;
static unsigned int reached_count;
static unsigned long *trace;
static int trace_fd = -1;

bool coverage_is_there(void)
{
	return !access(KCOV_PATH, F_OK);
}

/* Before workers are started, which share it. */
void coverage_start(void)
{
	if (!coverage_is_there())
		return;
	reached = mmap(NULL, COVERAGE_BITS / 8 + sizeof(unsigned int), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (reached == MAP_FAILED)
		reached = NULL;
}

static unsigned int *reached_total(void)
{
	return (unsigned int *)(reached + COVERAGE_BITS / 8);
}

/* Returns the number of code blocks that ran for the first time since the last call. */
unsigned int coverage_new(void)
{
	unsigned int total = reached ? READ_ONCE(*reached_total()) : 0;
	unsigned int new = total - reached_count;

	reached_count = total;
	return new;
}

static void coverage_open(void)
{
	if (!reached)
		return;
	trace_fd = open(KCOV_PATH, O_RDWR | O_CLOEXEC);
	if (trace_fd < 0 || ioctl(trace_fd, KCOV_INIT_TRACE, COVERAGE_WORDS))
		return;
	trace = mmap(NULL, COVERAGE_WORDS * sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED,
		     trace_fd, 0);
	if (trace == MAP_FAILED || ioctl(trace_fd, KCOV_ENABLE, KCOV_TRACE_PC))
		trace = NULL;
}

static void coverage_begin(void)
{
	if (trace)
		__atomic_store_n(&trace[0], 0, __ATOMIC_RELAXED);
}

static void coverage_note(void)
{
	unsigned long count, bit;

	if (!trace)
		return;
	count = __atomic_load_n(&trace[0], __ATOMIC_RELAXED);
	for (unsigned long i = 0; i < count && i + 1 < COVERAGE_WORDS; i++) {
		bit = (trace[i + 1] * 0x9e3779b97f4a7c15UL) >> 44;
		if (!(__atomic_fetch_or(&reached[bit / 8], 1 << bit % 8, __ATOMIC_RELAXED) &
		      1 << bit % 8))
			__atomic_fetch_add(reached_total(), 1, __ATOMIC_RELAXED);
	}
}

/* The mappings, by slot. */
static struct {
	void *at;
	size_t length;
} maps[MAPPINGS];

static void interrupted(int signal)
{
}

static void interrupts(bool on)
{
	struct itimerval timer = { };

	if (on) {
		timer.it_value.tv_usec = INTERRUPT_US;
		timer.it_interval.tv_usec = INTERRUPT_US;
	}
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void arena_make(void)
{
	mmap((void *)ARENA, ARENA_PAGES * page_size(), PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static long error_or(long ret)
{
	return ret < 0 ? -errno : ret;
}

static int take_from(pid_t from, int fd)
{
	int pidfd = syscall(SYS_pidfd_open, from, 0);
	int got;

	if (pidfd < 0)
		return -errno;
	got = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	if (got < 0)
		got = -errno;
	close(pidfd);
	return got;
}

/* Puts a file where the open file's place is. */
static int place(int got, int fd)
{
	int ret;

	if (got < 0)
		return got;
	ret = dup3(got, fd, O_CLOEXEC);
	ret = ret < 0 ? -errno : 0;
	close(got);
	return ret;
}

/* The structure, where it is to be: each thread has pages of its own. */
static void *put(const struct order *o, char *pages)
{
	size_t page = page_size();
	char *at = pages;

	switch (o->where) {
	case AT_NULL:
		return NULL;
	case AT_KERNEL:
		return (void *)(~0UL - 4 * page);
	case AT_EDGE:
		/* Only the size can be read. */
		at = pages + 2 * page - sizeof(__u32);
		memcpy(at, &o->args, sizeof(__u32));
		return at;
	case AT_READ_ONLY:
		mprotect(pages, page, PROT_READ | PROT_WRITE);
		memset(pages, 0, page);
		memcpy(pages, &o->args, sizeof(o->args));
		mprotect(pages, page, PROT_READ);
		return pages;
	default:
		mprotect(pages, page, PROT_READ | PROT_WRITE);
		memset(pages, 0, page);
		memcpy(at, &o->args, sizeof(o->args));
		return at;
	}
}

/* Two pages, and one behind that cannot be accessed or mapped over. */
static char *argument_pages(void)
{
	size_t page = page_size();
	char *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (pages == MAP_FAILED)
		_exit(99);
	mprotect(pages + 2 * page, page, PROT_NONE);
	return pages;
}

static void do_ioctl(const struct order *o, struct reply *r, char *pages)
{
	void *at = put(o, pages);

	r->ret = error_or(ioctl(FIRST_FD + o->open_file, o->cmd, at));
	if (o->where == AT_MEMORY || o->where == AT_READ_ONLY)
		memcpy(&r->args, at, sizeof(r->args));
}

static void do_in_child(const struct order *o, struct reply *r, char *pages)
{
	struct reply *shared = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (shared == MAP_FAILED)
		_exit(98);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		interrupts(o->interrupt);
		do_ioctl(o, shared, pages);
		_exit(0);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*r = *shared;
	munmap(shared, sizeof(*r));
}

static long do_memory(enum memory what, __u64 first, __u64 count)
{
	void *at = (void *)(ARENA + first * page_size());
	size_t length = count * page_size();
	int prot = PROT_READ | PROT_WRITE;

	switch (what) {
	case MEMORY_FRESH:
		return mmap(at, length, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
				       MAP_FAILED ? -errno : 0;
	case MEMORY_GONE:
		return error_or(munmap(at, length));
	case MEMORY_READ_ONLY:
		return error_or(mprotect(at, length, PROT_READ));
	case MEMORY_WRITABLE:
		return error_or(mprotect(at, length, prot));
	default:
		return error_or(madvise(at, length, MADV_DONTNEED));
	}
}

static long do_mmap(const struct order *o)
{
	int prot = o->args.head.size;
	int flags = o->args.head.flags;
	void *at = mmap(NULL, o->b, prot, flags, FIRST_FD + o->open_file, o->a);

	if (at == MAP_FAILED)
		return -errno;
	maps[o->c].at = at;
	maps[o->c].length = o->b;
	return 0;
}

static long do_touch(const struct order *o)
{
	size_t offset = o->b % maps[o->a].length & ~7UL;

	return touch((char *)maps[o->a].at + offset, o->c ? STORE : LOAD);
}

static long do_reset(void)
{
	close_range(FIRST_FD, FIRST_FD + OPEN_FILES - 1, 0);
	for (int i = 0; i < MAPPINGS; i++) {
		if (maps[i].at)
			munmap(maps[i].at, maps[i].length);
		maps[i].at = NULL;
	}
	arena_make();
	return vm_pin();
}

static void perform(const struct order *o, struct reply *r, char *pages)
{
	struct pollfd p = { .fd = FIRST_FD + o->open_file, .events = ~0 };
	int fd = FIRST_FD + o->open_file;

	r->args = o->args;
	switch (o->op) {
	case OP_OPEN:
		r->ret = place(error_or(open((const char *)o->args.bytes, O_RDWR | o->a)), fd);
		break;
	case OP_CLOSE:
		r->ret = error_or(close(fd));
		break;
	case OP_SHARE:
		r->ret = place(take_from(o->from, fd), fd);
		break;
	case OP_IOCTL:
		if (o->in_child)
			do_in_child(o, r, pages);
		else
			do_ioctl(o, r, pages);
		break;
	case OP_MMAP:
		r->ret = do_mmap(o);
		break;
	case OP_MUNMAP:
		r->ret = error_or(munmap(maps[o->a].at, maps[o->a].length));
		maps[o->a].at = NULL;
		break;
	case OP_TOUCH:
		r->ret = do_touch(o);
		break;
	case OP_MEMORY:
		r->ret = do_memory(o->c, o->a, o->b);
		break;
	case OP_READ:
		r->ret = error_or(read(fd, put(o, pages), o->a));
		break;
	case OP_POLL:
		r->ret = error_or(poll(&p, 1, 0));
		break;
	case OP_RESET:
		r->ret = do_reset();
		break;
	default:
		_exit(0);
	}
}

struct racer {
	pthread_t thread;
	struct order order;
	struct reply reply;
};

static void *race(void *arg)
{
	struct racer *racer = arg;
	char *pages = argument_pages();

	for (int i = 0; i < racer->order.repeat; i++) {
		perform(&racer->order, &racer->reply, pages);
		if (racer->order.op == OP_MMAP && !racer->reply.ret)
			munmap(maps[racer->order.c].at, maps[racer->order.c].length);
	}
	munmap(pages, 3 * page_size());
	return NULL;
}

/* Orders that come together are done at the same time, by threads. */
static void perform_all(const struct order *orders, struct reply *replies, int count)
{
	struct racer racers[RACERS];
	sigset_t alarm;

	for (int i = 0; i < count; i++) {
		racers[i].order = orders[i];
		if (pthread_create(&racers[i].thread, NULL, race, &racers[i]))
			_exit(97);
	}
	/* For callers that may wait; this one may not. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	interrupts(true);
	for (int i = 0; i < count; i++) {
		pthread_join(racers[i].thread, NULL);
		replies[i] = racers[i].reply;
	}
	interrupts(false);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
}

static void become_poor(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { };
	struct rlimit limit = {
		.rlim_cur = POOR_PAGES * page_size(),
		.rlim_max = POOR_PAGES * page_size(),
	};

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || syscall(SYS_capset, &header, data))
		_exit(96);
}

static bool whole(int fd, void *data, size_t length, bool out)
{
	ssize_t done;

	for (size_t at = 0; at < length; at += done) {
		done = out ? send(fd, (char *)data + at, length - at, MSG_NOSIGNAL) :
			     read(fd, (char *)data + at, length - at);
		if (done < 0 && errno == EINTR)
			done = 0;
		else if (done <= 0)
			return false;
	}
	return true;
}

static void serve(int fd)
{
	struct sigaction act = { .sa_handler = interrupted };
	struct order orders[RACERS];
	struct reply replies[RACERS];
	char *pages = argument_pages();
	int event = eventfd(0, 0), pipes[2], count;

	sigaction(SIGALRM, &act, NULL);
	if (dup2(event, EVENT_FD) < 0 || pipe(pipes) || dup2(pipes[0], OTHER_FD) < 0)
		_exit(95);
	close(event);
	arena_make();
	coverage_open();
	while (whole(fd, &count, sizeof(count), false) &&
	       whole(fd, orders, count * sizeof(*orders), false)) {
		memset(replies, 0, sizeof(replies));
		if (count > 1 || orders[0].repeat) {
			perform_all(orders, replies, count);
		} else {
			interrupts(orders[0].interrupt);
			coverage_begin();
			perform(&orders[0], &replies[0], pages);
			coverage_note();
			interrupts(false);
		}
		if (!whole(fd, replies, count * sizeof(*replies), true))
			break;
	}
	_exit(0);
}

int worker_start(struct worker *w, bool poor)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -errno;
	w->pid = fork();
	if (w->pid < 0)
		return -errno;
	if (!w->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		if (poor)
			become_poor();
		serve(fds[1]);
	}
	close(fds[1]);
	w->fd = fds[0];
	return 0;
}

void worker_end(struct worker *w)
{
	kill(w->pid, SIGKILL);
	close(w->fd);
	waitpid(w->pid, NULL, 0);
}

int worker_tell(struct worker *w, const struct order *o, int count)
{
	return whole(w->fd, &count, sizeof(count), true) &&
		       whole(w->fd, (void *)o, count * sizeof(*o), true) ? 0 : -EPIPE;
}

int worker_answer(struct worker *w, struct reply *r, int count)
{
	if (!poll_for(w->fd, STUCK_MS))
		return -ETIMEDOUT;
	return whole(w->fd, r, count * sizeof(*r), false) ? 0 : -EPIPE;
}
