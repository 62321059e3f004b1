// SPDX-License-Identifier: GPL-2.0
/*
 * The objects of a process end with its address space, by exit and by
 * exec, even if another process has the file open.
 */
#include "uldma_harness.h"
#include "uldma_conn.h"

#define PAGES 16
#define PORT 4711
#define NAME 0x656e64ULL
/* Number of times that the program executes itself. */
#define TIMES 20
#define AGAIN "--again"

/* Looking for what a work item does, in steps that leave it the processor. */
#define ROUNDS 3000
#define ROUND_US 10000

/* Counters of the machine and of the device for all processes; no padding. */
struct use {
	long long pins;
	__u64 regions;
	__u64 pages;
	__u64 contexts;
	__u64 window;
};

static struct use use_of(int fd)
{
	struct uldma_query q = query(fd);

	return (struct use){
		.pins = machine_pins(),
		.regions = q.out_regions,
		.pages = q.out_pages,
		.contexts = q.out_contexts_used,
		.window = q.out_window_used,
	};
}

/* Waits until no more is in use than there was; what is then. */
static struct use wait_for_use(int fd, const struct use *before)
{
	struct use now;

	for (int i = 0; i < ROUNDS; i++) {
		now = use_of(fd);
		if (!memcmp(&now, before, sizeof(now)))
			break;
		usleep(ROUND_US);
	}
	return now;
}

FIXTURE(end) {
	int fd;
	struct use before;
};

FIXTURE_SETUP(end)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->before = use_of(self->fd);
}

FIXTURE_TEARDOWN(end)
{
	close(self->fd);
}

static void expect_use(struct __test_metadata *_metadata,
		       struct _test_data_end *self)
{
	struct use now = wait_for_use(self->fd, &self->before);

	EXPECT_EQ(self->before.pins, now.pins);
	EXPECT_EQ(self->before.regions, now.regions);
	EXPECT_EQ(self->before.pages, now.pages);
	EXPECT_EQ(self->before.contexts, now.contexts);
	EXPECT_EQ(self->before.window, now.window);
}

/* Has something of each kind, and passes the file on. */
static long have_all(long sock, long verb, void *arg)
{
	char *buf = buffer(PAGES * page_size());
	int fd = uldma_open(0);
	struct context c;
	struct segment s;
	struct region r;
	int ret;

	if (!buf || fd < 0)
		return -ENOMEM;
	ret = region_register(fd, buf, PAGES * page_size(), RW, &r) ?:
	      region_export(fd, r.handle, RW, NAME) ?:
	      segment_create(fd, NAME, page_size(), &s) ?:
	      conn_listen(fd, PORT, 1);
	/* Where there is no engine, there are no contexts. */
	if (!ret && query(fd).out_methods)
		ret = context_create_as(fd, ULDMA_METHOD_KEY, 0, &c);
	return ret ?: send_file(sock, fd, 0);
}

/* A process passes its file, and exits; its memory is nowhere any more. */
TEST_F(end, passed_file)
{
	struct partner child;
	int socks[2], passed;
	__u32 value;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	ASSERT_EQ(0, partner_start(&child, have_all, NULL));
	ASSERT_EQ(0, partner_call(&child, socks[1], 0));
	passed = receive_file(socks[0], &value);
	ASSERT_LE(0, passed);
	EXPECT_EQ(1, query(passed).out_file_regions);
	EXPECT_EQ(self->before.pins + PAGES, machine_pins());
	EXPECT_EQ(0, partner_end(&child));

	expect_use(_metadata, self);
	EXPECT_EQ(0, query(passed).out_file_regions);
	EXPECT_EQ(0, query(passed).out_mm_pinned);
	/* No listener has that port, and no object has that name. */
	EXPECT_EQ(0, conn_listen(self->fd, PORT, 1));
	close(passed);
	expect_use(_metadata, self);
}

/* The program that was executed: once more, or the last time. */
static int again(const char *times, const char *out)
{
	char less[16];
	char *buf = buffer(PAGES * page_size());
	int fd = open(uldma_node(), O_RDWR);
	struct region r;
	int ret;

	ret = !buf ? -ENOMEM : fd < 0 ? -errno :
	      region_register(fd, buf, PAGES * page_size(), RW, &r);
	if (ret || atoi(times) <= 1) {
		if (write(atoi(out), &ret, sizeof(ret)) != sizeof(ret))
			return 1;
		for (;;)
			pause();
	}
	snprintf(less, sizeof(less), "%d", atoi(times) - 1);
	execl("/proc/self/exe", "uldma_end", AGAIN, less, out, NULL);
	return 1;
}

static void execute(int out, void *arg)
{
	char fd[16], times[16];

	snprintf(fd, sizeof(fd), "%d", out);
	snprintf(times, sizeof(times), "%d", TIMES);
	if (set_memlock(PAGES * page_size()))
		_exit(1);
	execl("/proc/self/exe", "uldma_end", AGAIN, times, fd, NULL);
}

/* A file for each time stays open, and memory only for the last. */
TEST_F(end, executed_again)
{
	struct use one = self->before;
	struct helper helper;
	int ret = -1;

	ASSERT_EQ(0, helper_start(&helper, execute, NULL));
	ASSERT_EQ(sizeof(ret), read(helper.fd, &ret, sizeof(ret)));
	ASSERT_EQ(0, ret);
	one.pins += PAGES;
	one.regions += 1;
	one.pages += PAGES;
	one = wait_for_use(self->fd, &one);
	EXPECT_EQ(self->before.pins + PAGES, one.pins);
	EXPECT_EQ(self->before.regions + 1, one.regions);
	EXPECT_EQ(self->before.pages + PAGES, one.pages);
	ASSERT_EQ(0, helper_kill(&helper));
	expect_use(_metadata, self);
}

/* Files that fork() leaves open in the child neither end nor keep objects. */
TEST_F(end, of_the_file_alone)
{
	char *buf = buffer(PAGES * page_size());
	struct helper child;
	struct region r;
	char byte;
	int fd;

	ASSERT_NE(NULL, buf);
	fd = uldma_open(0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, region_register(fd, buf, PAGES * page_size(), RW, &r));
	child.pid = fork();
	ASSERT_LE(0, child.pid);
	if (!child.pid)
		_exit(0);
	ASSERT_EQ(child.pid, waitpid(child.pid, NULL, 0));
	byte = buf[0];
	EXPECT_EQ(0, transfer(fd, BY_KERNEL, &r, 0, &r, page_size(), 1));
	EXPECT_EQ(byte, buf[0]);
	EXPECT_EQ(1, query(fd).out_file_regions);
	close(fd);
	expect_use(_metadata, self);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], AGAIN))
		return again(argv[2], argv[3]);
	return uldma_main(argc, argv);
}
