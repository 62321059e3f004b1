// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of a process that nothing pins, which other nodes use while the runner stops
 * the process, limits its memory or lets it be killed:
 *
 *	uldma_misses own FIFO NAME PAGES FILLED LIMIT [serve]
 *	uldma_misses read NODE NAME WAY FIRST COUNT
 *	uldma_misses write NODE NAME WAY FIRST COUNT
 *	uldma_misses use NODE NAME
 *	uldma_misses flood NODE NAME
 *
 * The owner exports the pages three times, under NAME and the two numbers after it, one
 * for each WAY: transfers that miss one end at once, wait for a look-up, or wait until
 * it is paged in, for LIMIT microseconds. It has touched the first FILLED pages; with "serve" it
 * handles faults at the others itself. When FIFO lets it go on, it takes memory
 * until it is killed.
 */
#include <pthread.h>

#include <linux/userfaultfd.h>
#include <sys/syscall.h>

#include "uldma_kinds.h"
#include "uldma_optimistic.h"
#include "uldma_process.h"
#include "uldma_steps.h"

#define WAYS 3
#define STEP (256 * page_size())
#define FLOODS 3
/* Misses of one that floods, before it says so. */
#define MANY 100
/* Instead of a status: a page was never touched, or is none of the owner's. */
#define ZEROES 1000
#define WRONG 1001

static const __u32 ways[WAYS] = { 0, ULDMA_REGISTER_LOOK_UP,
				  ULDMA_REGISTER_PAGE_IN };

static void fill_page(void *page, __u64 name, size_t number)
{
	pattern_fill(page, page_size(), name + number);
}

static int look_at(const void *page, __u64 name, size_t number)
{
	const __u64 *words = page;

	if (pattern_check(page, page_size(), name + number) == -1)
		return 0;
	for (size_t i = 0; i < page_size() / sizeof(*words); i++)
		if (words[i])
			return WRONG;
	return ZEROES;
}

/**
 * struct served - memory whose faults this process handles
 * @fd: tells of them
 * @at: the memory
 * @name: of what the pages have
 */
struct served {
	int fd;
	char *at;
	__u64 name;
};

static void *serve(void *arg)
{
	struct served *s = arg;
	char *data = buffer(page_size());
	struct uffd_msg msg;

	while (data && read(s->fd, &msg, sizeof(msg)) == sizeof(msg)) {
		struct uffdio_copy copy = {
			.dst = msg.arg.pagefault.address & ~(page_size() - 1),
			.src = (uintptr_t)data,
			.len = page_size(),
		};

		fill_page(data, s->name,
			  (copy.dst - (uintptr_t)s->at) / page_size());
		/* Another fault may have brought the page. */
		if (ioctl(s->fd, UFFDIO_COPY, &copy) && errno != EEXIST)
			break;
	}
	fprintf(stderr, "no more faults: %s\n", strerror(errno));
	return NULL;
}

static int serve_start(struct served *s, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)s->at, length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	pthread_t thread;

	s->fd = syscall(__NR_userfaultfd, O_CLOEXEC);
	if (s->fd < 0 || ioctl(s->fd, UFFDIO_API, &api) ||
	    ioctl(s->fd, UFFDIO_REGISTER, &range))
		return -errno;
	return -pthread_create(&thread, NULL, serve, s);
}

static int export_all(void *at, size_t length, __u64 name, __u32 limit)
{
	int fd = uldma_open(0), ret = fd < 0 ? fd : 0;
	struct region r;

	for (int i = 0; i < WAYS && !ret; i++)
		ret = region_register_for(fd, at, length,
					  RW | ULDMA_REGISTER_OPTIMISTIC |
						  ways[i],
					  ways[i] ? limit : 0, &r) ?:
		      region_export(fd, r.handle, RW, name + i);
	return ret;
}

static int own(int fifo, __u64 name, size_t pages, size_t filled, __u32 limit,
	       bool serves)
{
	size_t length = pages * page_size();
	struct served s = { .at = map_anonymous(length), .name = name };
	int ret;

	if (!s.at || madvise(s.at, length, MADV_NOHUGEPAGE))
		return -ENOMEM;
	for (size_t p = 0; p < filled; p++)
		fill_page(s.at + p * page_size(), name, p);
	ret = (serves ? serve_start(&s, length) : 0) ?:
	      export_all(s.at, length, name, limit) ?: go_on(fifo, "ready");
	while (!ret) {
		char *more = map_anonymous(STEP);

		if (!more)
			return -ENOMEM;
		memset(more, 1, STEP);
	}
	return ret;
}

/**
 * struct user - of memory of another node
 * @fd: the device
 * @r: that memory
 * @name: of it
 * @buf: a page of this node
 * @to: its region
 */
struct user {
	int fd;
	struct region r;
	__u64 name;
	char *buf;
	struct region to;
};

/* The number of the owner's node; the name is of the owner's first export. */
static int user_make(struct user *u, __u32 node, __u64 name, int way)
{
	struct uldma_region_import arg = {
		.size = sizeof(arg),
		.flags = RW,
		.name = name + way,
		.timeout_ns = PATIENCE,
		.peer = node + 1,
	};
	int ret;

	u->name = name;
	u->fd = uldma_open(0);
	u->buf = buffer(page_size());
	if (u->fd < 0 || !u->buf)
		return -ENODEV;
	ret = uldma_ioctl(u->fd, ULDMA_IOC_REGION_IMPORT, &arg) ?:
	      region_register(u->fd, u->buf, page_size(), RW, &u->to);
	u->r = (struct region){
		.handle = arg.out_handle,
		.index = arg.out_index,
		.length = arg.out_length,
	};
	return ret;
}

/* Reads a page: how that ended, ZEROES or WRONG. */
static int read_page(struct user *u, size_t number)
{
	__u64 bytes;
	int ret = copy(u->fd, &u->to, 0, &u->r, number * page_size(),
		       page_size(), &bytes);

	return ret ?: look_at(u->buf, u->name, number);
}

static int write_page(struct user *u, size_t number)
{
	__u64 bytes;

	return copy(u->fd, &u->r, number * page_size(), &u->to, 0, page_size(),
		    &bytes);
}

/* Reads pages, or writes them, one at a time. */
static int access_pages(__u32 node, __u64 name, int way, size_t first,
			size_t count, bool write)
{
	struct user u;
	int ret = user_make(&u, node, name, way);

	for (size_t p = first; p < first + count && !ret; p++) {
		if (write)
			fill_page(u.buf, name, p);
		printf("%d\n", write ? write_page(&u, p) : read_page(&u, p));
	}
	return ret;
}

/* Whether the memory is there, be a page missing or not. */
static bool goes_on(int status)
{
	return !status || status == ULDMA_DMA_NOT_RESIDENT ||
	       status == ULDMA_DMA_NO_MAPPING || status == ULDMA_DMA_NOT_LOCKED;
}

/* Reads a page, and writes it back as it was. */
static int use_page(struct user *u, size_t number)
{
	return read_page(u, number) ?: write_page(u, number);
}

/* Uses the memory in all ways until it is no more. */
static int use(__u32 node, __u64 name)
{
	int last[WAYS] = { }, ret = 0, left = WAYS;
	unsigned long used[WAYS] = { };
	struct user users[WAYS];
	bool said = false;

	for (int i = 0; i < WAYS && !ret; i++)
		ret = user_make(&users[i], node, name, i);
	for (size_t p = 0; !ret && left; p++) {
		/* What has to be there first is brought first. */
		for (int i = WAYS - 1; i >= 0; i--) {
			if (!goes_on(last[i]))
				continue;
			last[i] = use_page(&users[i], p % (users[i].r.length /
							   page_size()));
			used[i] += !last[i];
			left -= !goes_on(last[i]);
		}
		/* What ends at once may come too late each time. */
		if (!said && used[1] && used[2]) {
			printf("using\n");
			fflush(stdout);
			said = true;
		}
	}
	if (!ret)
		printf("ended %d %d %d\n", last[0], last[1], last[2]);
	return ret;
}

/* Misses pages without a pause, in one way. */
static int miss(int fd, struct user *u)
{
	size_t pages = u->r.length / page_size();
	int ret = 0;

	for (size_t i = 0; !ret || goes_on(ret) || ret == ZEROES; i++) {
		if (i == MANY && write(fd, "", 1) != 1)
			return -EPIPE;
		ret = read_page(u, i * 7 % pages);
	}
	return ret;
}

struct flood {
	__u32 node;
	__u64 name;
	int way;
};

static void flood_on(int fd, void *arg)
{
	struct flood *flood = arg;
	struct user u;
	int ret = user_make(&u, flood->node, flood->name, flood->way) ?:
		  miss(fd, &u);

	fprintf(stderr, "no flood: %d\n", ret);
	_exit(1);
}

/* All by transfers that bring no page. */
static int flood(__u32 node, __u64 name)
{
	struct helper h[2 * FLOODS];
	int ret = 0;
	char byte;

	for (int i = 0; i < 2 * FLOODS && !ret; i++) {
		struct flood f = { node, name, i % 2 };

		ret = helper_start(&h[i], flood_on, &f);
	}
	for (int i = 0; i < 2 * FLOODS && !ret; i++)
		ret = read(h[i].fd, &byte, 1) == 1 ? 0 : -EPIPE;
	if (ret)
		return ret;
	printf("flooding\n");
	fflush(stdout);
	/* They end with this process, and not before. */
	return wait(NULL) > 0 ? -EPIPE : -errno;
}

static __u64 number(const char *text)
{
	return strtoull(text, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	int ret = -EINVAL;

	if (!strcmp(verb, "own") && argc >= 7)
		ret = own(steps_open(argv[2]), number(argv[3]), number(argv[4]),
			  number(argv[5]), number(argv[6]), argc > 7);
	else if ((!strcmp(verb, "read") || !strcmp(verb, "write")) && argc == 7)
		ret = access_pages(number(argv[2]), number(argv[3]),
				   number(argv[4]), number(argv[5]),
				   number(argv[6]), *verb == 'w');
	else if (!strcmp(verb, "use") && argc == 4)
		ret = use(number(argv[2]), number(argv[3]));
	else if (!strcmp(verb, "flood") && argc == 4)
		ret = flood(number(argv[2]), number(argv[3]));
	if (ret)
		fprintf(stderr, "%s: %s\n", verb, strerror(-ret));
	return !!ret;
}
