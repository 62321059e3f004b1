// SPDX-License-Identifier: GPL-2.0
/*
 * One hostile process per interface, against a victim: the attacker knows all that
 * the victim knows, handles, offsets, keys, and still reaches nothing. The
 * victim finds its memory as it stamped it, no transfer that it did not start,
 * and all that it has at work.
 *
 * The attacker is root, so that nothing but the device's own rules stops it.
 */
#include <sys/eventfd.h>
#include <sys/ptrace.h>

#include "uldma_harness.h"
#include "uldma_method.h"

#define NAME 0x646f6f72ULL
#define STAMP 77
#define INHERITED "--inherited"

/* Verbs of the victim. */
enum {
	/* Takes a context of a method, stamps its memory, reports its secrets. */
	BEGIN,
	/* Returns 0 if stamps, counts and transfers are right. */
	CHECK,
	/* Passes the file to a socket. */
	PASS,
};

/* Secrets of the victim that the attacker gets. */
struct secrets {
	struct party p;
	struct segment s;
	__u64 initiations;
};

/* In memory that both see; what addresses in it mean, the victim knows. */
static struct secrets *told;

static int victim_begin(__u32 method)
{
	struct party *p = &told->p;
	int ret = party_open(p) ?: party_context(p, method, 0) ?:
		  segment_create(p->fd, NAME, page_size(), &told->s) ?:
		  segment_map(p->fd, &told->s) ?:
		  region_export(p->fd, p->d.handle, RW, NAME);

	if (ret)
		return ret;
	pattern_fill(p->src, p->length, STAMP);
	pattern_fill(p->dst, p->length, STAMP + 1);
	*told->s.map = STAMP;
	told->initiations = context_stats(p->fd).out_initiations;
	return 0;
}

static int victim_check(void)
{
	struct party *p = &told->p;

	if (pattern_check(p->src, p->length, STAMP) >= 0 ||
	    pattern_check(p->dst, p->length, STAMP + 1) >= 0 ||
	    *told->s.map != STAMP)
		return -EILSEQ;
	if (context_stats(p->fd).out_initiations != told->initiations)
		return -EBADMSG;
	return party_works(p);
}

static long be_victim(long verb, long arg, void *data)
{
	switch (verb) {
	case BEGIN:
		return victim_begin(arg);
	case CHECK:
		return victim_check();
	case PASS:
		return send_file(arg, told->p.fd, 0);
	}
	return -EINVAL;
}

FIXTURE(door) {
	struct partner victim;
	/* The attacker's own, by the same method. */
	struct party own;
};

FIXTURE_VARIANT(door) {
	__u32 method;
};

FIXTURE_VARIANT_ADD(door, extended_shadow) {
	.method = ULDMA_METHOD_EXTENDED_SHADOW,
};

FIXTURE_VARIANT_ADD(door, key) {
	.method = ULDMA_METHOD_KEY,
};

FIXTURE_VARIANT_ADD(door, queue) {
	.method = ULDMA_METHOD_QUEUE,
};

FIXTURE_SETUP(door)
{
	int fd = uldma_open(0);

	ASSERT_LE(0, fd);
	if (!method_offered(fd, variant->method))
		SKIP(return, "the device has no such method");
	close(fd);
	told = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, told);
	ASSERT_EQ(0, partner_start(&self->victim, be_victim, NULL));
	ASSERT_EQ(0, partner_call(&self->victim, BEGIN, variant->method));
	ASSERT_EQ(0, party_open(&self->own));
	ASSERT_EQ(0, party_context(&self->own, variant->method, 0));
}

FIXTURE_TEARDOWN(door)
{
	EXPECT_EQ(0, partner_call(&self->victim, CHECK, 0));
	EXPECT_EQ(0, party_works(&self->own));
	EXPECT_EQ(0, partner_end(&self->victim));
	close(self->own.fd);
}

/* Maps what is the victim's, by a file of the attacker. */
static int map_theirs(struct _test_data_door *self, __u64 offset, int prot)
{
	void *at;

	return map(self->own.fd, offset, page_size(), prot, MAP_SHARED, &at);
}

TEST_F(door, shadow_page)
{
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.s.shadow_offset,
				      PROT_READ));
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.d.shadow_offset,
				      PROT_READ | PROT_WRITE));
}

/* Indices of the victim's regions, through the attacker's shadow pages. */
TEST_F(door, region_index)
{
	struct party *own = &self->own;
	__s64 got;

	if (variant->method != ULDMA_METHOD_EXTENDED_SHADOW)
		SKIP(return, "a size word is of two accesses");
	got = shadow_pass(shadow_of(&own->d, 0), shadow_of(&own->s, 0), 64,
			  told->p.d.index, own->s.index);
	EXPECT_EQ(-ULDMA_DMA_NOT_OWNER, got);
	got = shadow_pass(shadow_of(&own->d, 0), shadow_of(&own->s, 0), 64,
			  own->d.index, told->p.s.index);
	EXPECT_EQ(-ULDMA_DMA_NOT_OWNER, got);
}

/* The secret itself is of no use without the victim's shadow pages. */
TEST_F(door, secret)
{
	struct party *own = &self->own;
	__u64 bad;

	if (variant->method != ULDMA_METHOD_KEY)
		SKIP(return, "the method has no key");
	bad = context_stats(own->fd).out_bad_keys;
	/* One bit of the key is wrong; the device counts it for the guessing context. */
	device_store(shadow_of(&own->d, 0) & ~7UL, told->p.c.key ^ 1UL << 40);
	device_store(shadow_of(&own->s, 0) & ~7UL, told->p.c.key ^ 1UL << 40);
	EXPECT_EQ(bad + 2, context_stats(own->fd).out_bad_keys);
	/* Arguments for the victim's context name pages of another space. */
	device_store(shadow_of(&own->d, 0) & ~7UL, told->p.c.key);
	device_store(shadow_of(&own->s, 0) & ~7UL, told->p.c.key);
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.c.page_offset, PROT_WRITE));
}

/* A handle means an object of the file that it is used with. */
TEST_F(door, handle)
{
	int other = uldma_open(0);
	__u64 ticket;

	ASSERT_LE(0, other);
	EXPECT_EQ(-ENOENT, region_unregister(other, told->p.s.handle));
	EXPECT_EQ(-ENOENT, region_export(other, told->p.s.handle, RW, 1));
	EXPECT_EQ(-ENOENT, region_unexport(other, told->p.d.handle));
	EXPECT_EQ(-ENOENT, kernel_start(other, told->p.d.handle, 0,
					told->p.s.handle, 0, 64, &ticket));
	EXPECT_EQ(-ENOENT, map_out(other, told->p.s.handle, 0,
				   told->p.d.handle, 0, 1));
	EXPECT_EQ(-ENOENT, segment_destroy(other, told->s.handle));
	EXPECT_EQ(-ENOENT, doorbell(other, told->s.handle));
	close(other);
}

/* A name is for peers, and is taken. */
TEST_F(door, import_name)
{
	struct region r;
	int ret = region_import(self->own.fd, NAME, RW, &r);

	EXPECT_TRUE(ret == -ENOENT || ret == -ENOTCONN)
		TH_LOG("got %d", ret);
	EXPECT_EQ(-EEXIST, region_export(self->own.fd, self->own.s.handle, RW,
					 NAME));
}

TEST_F(door, window_offset)
{
	struct segment s;

	EXPECT_EQ(-EINVAL, map_theirs(self, told->s.offset, PROT_READ));
	EXPECT_EQ(-EINVAL, map_theirs(self, told->s.offset,
				      PROT_READ | PROT_WRITE));
	EXPECT_EQ(-EEXIST, segment_create(self->own.fd, NAME, page_size(),
					  &s));
}

TEST_F(door, context_page)
{
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.c.page_offset,
				      PROT_READ | PROT_WRITE));
}

TEST_F(door, status_page)
{
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.c.status_offset,
				      PROT_READ));
	EXPECT_NE(0, map_theirs(self, told->p.c.status_offset,
				PROT_READ | PROT_WRITE));
}

TEST_F(door, descriptors)
{
	if (variant->method != ULDMA_METHOD_QUEUE)
		SKIP(return, "the method has no queue");
	EXPECT_EQ(-EINVAL, map_theirs(self, told->p.c.queue_offset,
				      PROT_READ | PROT_WRITE));
}

/* The file itself, in another address space. */
TEST_F(door, passed_descriptor)
{
	struct uldma_eventfd arg = { .size = sizeof(arg) };
	struct uldma_event event;
	struct region r;
	struct context c;
	struct segment s;
	int socks[2], fd;
	__u64 ticket;
	__u32 value;
	void *at;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	/* The victim was started before there was the socket. */
	ASSERT_EQ(0, partner_end(&self->victim));
	ASSERT_EQ(0, partner_start(&self->victim, be_victim, NULL));
	ASSERT_EQ(0, partner_call(&self->victim, BEGIN, variant->method));
	ASSERT_EQ(0, partner_call(&self->victim, PASS, socks[1]));
	fd = receive_file(socks[0], &value);
	ASSERT_LE(0, fd);

	EXPECT_EQ(-EPERM, region_register(fd, self->own.src, 64, RW, &r));
	EXPECT_EQ(-EPERM, region_unregister(fd, told->p.s.handle));
	EXPECT_EQ(-EPERM, region_export(fd, told->p.s.handle, RW, NAME + 1));
	EXPECT_EQ(-EPERM, region_unexport(fd, told->p.d.handle));
	EXPECT_EQ(-EPERM, region_import(fd, NAME, RW, &r));
	EXPECT_EQ(-EPERM, handle_ioctl(fd, ULDMA_IOC_REGION_CLEANUP, 0));
	EXPECT_EQ(-EPERM, kernel_start(fd, told->p.d.handle, 0,
				       told->p.s.handle, 0, 64, &ticket));
	EXPECT_EQ(-EPERM, context_create(fd, &c));
	EXPECT_EQ(-EPERM, context_destroy(fd));
	EXPECT_EQ(-EPERM, map_out(fd, told->p.s.handle, 0, told->p.d.handle, 0,
				  1));
	EXPECT_EQ(-EPERM, segment_create(fd, NAME + 1, page_size(), &s));
	EXPECT_EQ(-EPERM, segment_destroy(fd, told->s.handle));
	EXPECT_EQ(-EPERM, doorbell(fd, told->s.handle));
	EXPECT_EQ(-EPERM, map(fd, told->p.c.page_offset, page_size(),
			      PROT_READ | PROT_WRITE, MAP_SHARED, &at));
	EXPECT_EQ(-EPERM, map(fd, told->p.d.shadow_offset, page_size(),
			      PROT_READ | PROT_WRITE, MAP_SHARED, &at));
	EXPECT_EQ(-EPERM, map(fd, told->s.offset, page_size(), PROT_READ,
			      MAP_SHARED, &at));
	/* Where its events go, and the events. */
	arg.fd = eventfd(0, EFD_NONBLOCK);
	ASSERT_LE(0, arg.fd);
	EXPECT_EQ(-EPERM, uldma_ioctl(fd, ULDMA_IOC_EVENTFD, &arg));
	EXPECT_EQ(-1, read(fd, &event, sizeof(event)));
	EXPECT_EQ(EPERM, errno);
	close(fd);
}

/* Pages of the device cannot be read as memory of a process. */
TEST_F(door, proc_mem)
{
	__u64 word = size_word(64, 0, 0, told->p.s.index, told->p.d.index);
	char file[64];
	int fd;

	snprintf(file, sizeof(file), "/proc/%d/mem", self->victim.pid);
	fd = open(file, O_RDWR);
	if (fd < 0)
		SKIP(return, "%s: %s", file, strerror(errno));
	EXPECT_EQ(-1, pwrite(fd, &word, sizeof(word),
			     (uintptr_t)told->p.d.shadow));
	EXPECT_EQ(-1, pread(fd, &word, sizeof(word),
			    (uintptr_t)told->p.s.shadow));
	EXPECT_EQ(-1, pwrite(fd, &word, sizeof(word),
			     (uintptr_t)told->p.c.page));
	close(fd);
}

TEST_F(door, ptrace)
{
	pid_t pid = self->victim.pid;
	int status;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL))
		SKIP(return, "ptrace: %s", strerror(errno));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(-1, ptrace(PTRACE_POKEDATA, pid, told->p.d.shadow,
			     (void *)64));
	errno = 0;
	EXPECT_EQ(-1, ptrace(PTRACE_PEEKDATA, pid, told->p.s.shadow, NULL));
	EXPECT_NE(0, errno);
	EXPECT_EQ(-1, ptrace(PTRACE_POKEDATA, pid, told->p.c.page,
			     (void *)64));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
}

/* A descriptor that the victim's own child inherits and executes with. */
static int execute_with_file(void *arg)
{
	char fd[16], src[16], dst[16];

	snprintf(fd, sizeof(fd), "%d", *(int *)arg);
	snprintf(src, sizeof(src), "%u", told->p.s.handle);
	snprintf(dst, sizeof(dst), "%u", told->p.d.handle);
	if (fcntl(*(int *)arg, F_SETFD, 0))
		return -errno;
	execl("/proc/self/exe", "uldma_isolation", INHERITED, fd, src, dst,
	      NULL);
	return -errno;
}

static int inherited(char **argv)
{
	int fd = atoi(argv[0]);
	__u32 src = atoi(argv[1]), dst = atoi(argv[2]);
	struct context c;
	struct region r;
	__u64 ticket;
	int ret = 0;

	ret |= kernel_start(fd, dst, 0, src, 0, 64, &ticket) != -EPERM;
	ret |= context_create(fd, &c) != -EPERM;
	ret |= region_register(fd, &ret, 4, RW, &r) != -EPERM;
	ret |= region_unregister(fd, src) != -EPERM;
	return ret ? EPROTO : 0;
}

TEST_F(door, executed)
{
	int socks[2], fd;
	__u32 value;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	ASSERT_EQ(0, partner_end(&self->victim));
	ASSERT_EQ(0, partner_start(&self->victim, be_victim, NULL));
	ASSERT_EQ(0, partner_call(&self->victim, BEGIN, variant->method));
	ASSERT_EQ(0, partner_call(&self->victim, PASS, socks[1]));
	fd = receive_file(socks[0], &value);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, in_child(execute_with_file, &fd));
	close(fd);
}

struct former {
	__u32 region[2];
	__u32 count;
};

/* Leaves regions behind, by indices that are soon those of others. */
static int be_former(void *arg)
{
	struct former *former = arg;
	struct party p;
	int ret = party_open(&p);

	former->region[0] = p.s.index;
	former->region[1] = p.d.index;
	return ret;
}

/* New spaces get the numbers of ended spaces, and none of their rights. */
TEST_F(door, reused_space)
{
	struct former *former = (struct former *)(told + 1);
	struct party *own = &self->own;

	if (variant->method != ULDMA_METHOD_EXTENDED_SHADOW)
		SKIP(return, "a size word is of two accesses");
	for (int i = 0; i < 20; i++) {
		struct party next;

		ASSERT_EQ(0, in_child(be_former, former));
		for (int n = 0; n < 2; n++)
			EXPECT_GT(0, shadow_pass(shadow_of(&own->d, 0),
						 shadow_of(&own->s, 0), 64,
						 former->region[n],
						 own->s.index));
		ASSERT_EQ(0, party_open(&next));
		close(next.fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], INHERITED))
		return inherited(argv + 2);
	return uldma_main(argc, argv);
}
