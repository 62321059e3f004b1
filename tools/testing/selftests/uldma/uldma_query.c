// SPDX-License-Identifier: GPL-2.0
/*
 * The calling convention, which is the same for every ioctl: sizes, flags,
 * reserved fields, bad pointers. And what a query says.
 */
#include <stddef.h>

#include "uldma_harness.h"

#define NO_HANDLE 0x7fffffff
#define NO_NAME 0x6e6f2073756368ULL

union uldma_args {
	__u32 size;
	struct {
		__u32 size;
		__u32 flags;
	} head;
	struct uldma_handle handle;
	struct uldma_query query;
	struct uldma_region_register region_register;
	struct uldma_region_export region_export;
	struct uldma_region_import region_import;
	struct uldma_region_query region_query;
	struct uldma_region_charge region_charge;
	struct uldma_region_blocks region_blocks;
	struct uldma_lmm lmm;
	struct uldma_context_create context_create;
	struct uldma_context_stats context_stats;
	struct uldma_map_out map_out;
	struct uldma_eventfd eventfd;
	struct uldma_dma dma;
	struct uldma_dma_wait dma_wait;
	struct uldma_segment_create segment_create;
	struct uldma_segment_attach segment_attach;
	__u8 bytes[256];
};

struct uldma_call {
	unsigned long cmd;
	union uldma_args args;
	/* What the arguments above get: an errno that no check of form gives. */
	int result;
	/* Undoes a success. */
	unsigned long undo;
	/* Asks the peer, so ENOTCONN without one. */
	bool peer;
	__u32 known_flags;
	size_t reserved_at;
};

#define SIZED(_type) .size = sizeof(struct uldma_##_type)
#define RESERVED(_type) \
	.reserved_at = offsetof(struct uldma_##_type, reserved)

enum call_id {
	QUERY,
	REGION_REGISTER,
	REGION_UNREGISTER,
	REGION_EXPORT,
	REGION_UNEXPORT,
	REGION_IMPORT,
	REGION_QUERY,
	REGION_CHARGE,
	REGION_BLOCKS,
	REGION_CLEANUP,
	LMM,
	CONTEXT_CREATE,
	CONTEXT_DESTROY,
	CONTEXT_STATS,
	MAP_OUT,
	EVENTFD,
	DMA,
	DMA_WAIT,
	SEGMENT_CREATE,
	SEGMENT_ATTACH,
	SEGMENT_DESTROY,
	DOORBELL,
};

static const struct uldma_call calls[] = {
	[QUERY] = {
		.cmd = ULDMA_IOC_QUERY,
		.args.query = { SIZED(query) },
	},
	[REGION_REGISTER] = {
		.cmd = ULDMA_IOC_REGION_REGISTER,
		.args.region_register = {
			SIZED(region_register),
			.flags = RW,
			.addr = 4096,
			.length = 1,
		},
		.result = -EFAULT,
		.known_flags = RW,
	},
	[REGION_UNREGISTER] = {
		.cmd = ULDMA_IOC_REGION_UNREGISTER,
		.args.handle = { SIZED(handle), .handle = NO_HANDLE },
		.result = -ENOENT,
	},
	[REGION_EXPORT] = {
		.cmd = ULDMA_IOC_REGION_EXPORT,
		.args.region_export = {
			SIZED(region_export),
			.flags = RW,
			.handle = NO_HANDLE,
			.name = NO_NAME,
		},
		.result = -ENOENT,
		.known_flags = RW,
		RESERVED(region_export),
	},
	[REGION_UNEXPORT] = {
		.cmd = ULDMA_IOC_REGION_UNEXPORT,
		.args.handle = { SIZED(handle), .handle = NO_HANDLE },
		.result = -ENOENT,
	},
	[REGION_IMPORT] = {
		.cmd = ULDMA_IOC_REGION_IMPORT,
		.args.region_import = {
			SIZED(region_import),
			.flags = RW,
			.name = NO_NAME,
			.timeout_ns = PATIENCE,
		},
		.result = -ENOENT,
		.peer = true,
		.known_flags = RW,
	},
	[REGION_QUERY] = {
		.cmd = ULDMA_IOC_REGION_QUERY,
		.args.region_query = {
			SIZED(region_query),
			.handle = NO_HANDLE,
		},
		.result = -ENOENT,
		RESERVED(region_query),
	},
	[REGION_CHARGE] = {
		.cmd = ULDMA_IOC_REGION_CHARGE,
		.args.region_charge = {
			SIZED(region_charge),
			.flags = RW,
			.addr = 4096,
			.length = 1,
		},
		.known_flags = RW,
	},
	[REGION_BLOCKS] = {
		.cmd = ULDMA_IOC_REGION_BLOCKS,
		.args.region_blocks = {
			SIZED(region_blocks),
			.handle = NO_HANDLE,
		},
		.result = -ENOENT,
		.known_flags = ULDMA_BLOCKS_PAGES,
		RESERVED(region_blocks),
	},
	[REGION_CLEANUP] = {
		.cmd = ULDMA_IOC_REGION_CLEANUP,
		.args.handle = { SIZED(handle) },
	},
	[LMM] = {
		.cmd = ULDMA_IOC_LMM,
		.args.lmm = { SIZED(lmm) },
		.known_flags = ULDMA_LMM_CACHE_ON | ULDMA_LMM_CACHE_OFF,
		RESERVED(lmm),
	},
	[CONTEXT_CREATE] = {
		.cmd = ULDMA_IOC_CONTEXT_CREATE,
		.args.context_create = { SIZED(context_create) },
		.undo = ULDMA_IOC_CONTEXT_DESTROY,
		.known_flags = ULDMA_CONTEXT_NO_DATA,
		RESERVED(context_create),
	},
	[CONTEXT_DESTROY] = {
		.cmd = ULDMA_IOC_CONTEXT_DESTROY,
		.args.handle = { SIZED(handle) },
		.result = -ENXIO,
	},
	[CONTEXT_STATS] = {
		.cmd = ULDMA_IOC_CONTEXT_STATS,
		.args.context_stats = { SIZED(context_stats) },
		.result = -ENXIO,
	},
	[MAP_OUT] = {
		.cmd = ULDMA_IOC_CONTEXT_MAP_OUT,
		.args.map_out = { SIZED(map_out), .src = NO_HANDLE },
		.result = -ENOENT,
		RESERVED(map_out),
	},
	[EVENTFD] = {
		.cmd = ULDMA_IOC_EVENTFD,
		.args.eventfd = { SIZED(eventfd), .fd = -1 },
		RESERVED(eventfd),
	},
	[DMA] = {
		.cmd = ULDMA_IOC_DMA,
		.args.dma = {
			SIZED(dma),
			.src = NO_HANDLE,
			.dst = NO_HANDLE,
			.length = 1,
		},
		.result = -ENOENT,
	},
	[DMA_WAIT] = {
		.cmd = ULDMA_IOC_DMA_WAIT,
		.args.dma_wait = { SIZED(dma_wait), .ticket = 1ULL << 60 },
		.result = -ENOENT,
		.known_flags = ULDMA_WAIT_CONTEXT,
		RESERVED(dma_wait),
	},
	[SEGMENT_CREATE] = {
		.cmd = ULDMA_IOC_SEGMENT_CREATE,
		.args.segment_create = {
			SIZED(segment_create),
			.name = NO_NAME,
			.length = 1ULL << 40,
		},
		.result = -ENOSPC,
		RESERVED(segment_create),
	},
	[SEGMENT_ATTACH] = {
		.cmd = ULDMA_IOC_SEGMENT_ATTACH,
		.args.segment_attach = {
			SIZED(segment_attach),
			.name = NO_NAME,
			.timeout_ns = PATIENCE,
		},
		.result = -ENOENT,
		.peer = true,
		RESERVED(segment_attach),
	},
	[SEGMENT_DESTROY] = {
		.cmd = ULDMA_IOC_SEGMENT_DESTROY,
		.args.handle = { SIZED(handle), .handle = NO_HANDLE },
		.result = -ENOENT,
	},
	[DOORBELL] = {
		.cmd = ULDMA_IOC_DOORBELL,
		.args.handle = { SIZED(handle), .handle = NO_HANDLE },
		.result = -ENOENT,
	},
};

/* Makes a call with changed arguments, and undoes what it did. */
static int try_call(int fd, const struct uldma_call *call, union uldma_args *args)
{
	int ret = uldma_ioctl(fd, call->cmd, args);

	if (!ret && call->undo)
		handle_ioctl(fd, call->undo, 0);
	return ret;
}

static int right_result(int fd, const struct uldma_call *call)
{
	return call->peer && !link_up(fd) ? -ENOTCONN : call->result;
}

FIXTURE(call) {
	int fd;
	union uldma_args args;
	int result;
};

FIXTURE_VARIANT(call) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(call)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->args = variant->call->args;
	self->result = right_result(self->fd, variant->call);
}

FIXTURE_TEARDOWN(call)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(call, query) { &calls[QUERY] };
FIXTURE_VARIANT_ADD(call, region_register) { &calls[REGION_REGISTER] };
FIXTURE_VARIANT_ADD(call, region_unregister) { &calls[REGION_UNREGISTER] };
FIXTURE_VARIANT_ADD(call, region_export) { &calls[REGION_EXPORT] };
FIXTURE_VARIANT_ADD(call, region_unexport) { &calls[REGION_UNEXPORT] };
FIXTURE_VARIANT_ADD(call, region_import) { &calls[REGION_IMPORT] };
FIXTURE_VARIANT_ADD(call, region_query) { &calls[REGION_QUERY] };
FIXTURE_VARIANT_ADD(call, region_charge) { &calls[REGION_CHARGE] };
FIXTURE_VARIANT_ADD(call, region_blocks) { &calls[REGION_BLOCKS] };
FIXTURE_VARIANT_ADD(call, region_cleanup) { &calls[REGION_CLEANUP] };
FIXTURE_VARIANT_ADD(call, lmm) { &calls[LMM] };
FIXTURE_VARIANT_ADD(call, context_create) { &calls[CONTEXT_CREATE] };
FIXTURE_VARIANT_ADD(call, context_destroy) { &calls[CONTEXT_DESTROY] };
FIXTURE_VARIANT_ADD(call, context_stats) { &calls[CONTEXT_STATS] };
FIXTURE_VARIANT_ADD(call, map_out) { &calls[MAP_OUT] };
FIXTURE_VARIANT_ADD(call, eventfd) { &calls[EVENTFD] };
FIXTURE_VARIANT_ADD(call, dma) { &calls[DMA] };
FIXTURE_VARIANT_ADD(call, dma_wait) { &calls[DMA_WAIT] };
FIXTURE_VARIANT_ADD(call, segment_create) { &calls[SEGMENT_CREATE] };
FIXTURE_VARIANT_ADD(call, segment_attach) { &calls[SEGMENT_ATTACH] };
FIXTURE_VARIANT_ADD(call, segment_destroy) { &calls[SEGMENT_DESTROY] };
FIXTURE_VARIANT_ADD(call, doorbell) { &calls[DOORBELL] };

/* The size that the caller was compiled with decides what is looked at. */
TEST_F(call, size)
{
	__u32 size = variant->call->args.size;
	union uldma_args before;

	EXPECT_EQ(self->result, try_call(self->fd, variant->call, &self->args));

	for (__u32 wrong = 0; wrong < size; wrong += 4) {
		self->args = variant->call->args;
		self->args.size = wrong;
		before = self->args;
		EXPECT_EQ(-EINVAL, try_call(self->fd, variant->call, &self->args))
			TH_LOG("size %u", wrong);
		EXPECT_EQ(0, memcmp(&before, &self->args, sizeof(before)));
	}
	self->args.size = size - 1;
	EXPECT_EQ(-EINVAL, try_call(self->fd, variant->call, &self->args));
}

/* A newer program may leave what this kernel does not know at zero. */
TEST_F(call, tail)
{
	__u32 size = variant->call->args.size;

	self->args.size = sizeof(self->args);
	EXPECT_EQ(self->result, try_call(self->fd, variant->call, &self->args));

	self->args = variant->call->args;
	self->args.size = size + 1;
	self->args.bytes[size] = 1;
	EXPECT_EQ(-E2BIG, try_call(self->fd, variant->call, &self->args));

	self->args = variant->call->args;
	self->args.size = sizeof(self->args);
	self->args.bytes[sizeof(self->args) - 1] = 0x80;
	EXPECT_EQ(-E2BIG, try_call(self->fd, variant->call, &self->args));
}

TEST_F(call, pointer)
{
	char *page = buffer(2 * page_size());
	char *edge = page + page_size();
	union uldma_args *args;

	ASSERT_NE(NULL, page);
	ASSERT_EQ(0, munmap(edge, page_size()));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, NULL));
	EXPECT_EQ(-EFAULT,
		  uldma_ioctl(self->fd, variant->call->cmd, (void *)(~0UL - 64)));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, edge));

	/* The size can be read, the rest cannot. */
	memcpy(edge - 4, &variant->call->args, 4);
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, edge - 4));

	/* Up to the very end of what is mapped is good. */
	args = (union uldma_args *)(edge - variant->call->args.size);
	memcpy(args, &variant->call->args, variant->call->args.size);
	EXPECT_EQ(self->result, try_call(self->fd, variant->call, args));
}

FIXTURE(flags) {
	int fd;
};

FIXTURE_VARIANT(flags) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(flags)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(flags)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(flags, query) { &calls[QUERY] };
FIXTURE_VARIANT_ADD(flags, region_register) { &calls[REGION_REGISTER] };
FIXTURE_VARIANT_ADD(flags, region_export) { &calls[REGION_EXPORT] };
FIXTURE_VARIANT_ADD(flags, region_import) { &calls[REGION_IMPORT] };
FIXTURE_VARIANT_ADD(flags, region_query) { &calls[REGION_QUERY] };
FIXTURE_VARIANT_ADD(flags, region_charge) { &calls[REGION_CHARGE] };
FIXTURE_VARIANT_ADD(flags, region_blocks) { &calls[REGION_BLOCKS] };
FIXTURE_VARIANT_ADD(flags, lmm) { &calls[LMM] };
FIXTURE_VARIANT_ADD(flags, context_create) { &calls[CONTEXT_CREATE] };
FIXTURE_VARIANT_ADD(flags, context_stats) { &calls[CONTEXT_STATS] };
FIXTURE_VARIANT_ADD(flags, map_out) { &calls[MAP_OUT] };
FIXTURE_VARIANT_ADD(flags, eventfd) { &calls[EVENTFD] };
FIXTURE_VARIANT_ADD(flags, dma) { &calls[DMA] };
FIXTURE_VARIANT_ADD(flags, dma_wait) { &calls[DMA_WAIT] };
FIXTURE_VARIANT_ADD(flags, segment_create) { &calls[SEGMENT_CREATE] };
FIXTURE_VARIANT_ADD(flags, segment_attach) { &calls[SEGMENT_ATTACH] };

TEST_F(flags, unknown)
{
	for (int bit = 0; bit < 32; bit++) {
		union uldma_args args = variant->call->args;

		if (variant->call->known_flags & 1U << bit)
			continue;
		args.head.flags |= 1U << bit;
		EXPECT_EQ(-EOPNOTSUPP, try_call(self->fd, variant->call, &args))
			TH_LOG("bit %d", bit);
	}
}

FIXTURE(reserved) {
	int fd;
};

FIXTURE_VARIANT(reserved) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(reserved)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(reserved)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(reserved, region_export) { &calls[REGION_EXPORT] };
FIXTURE_VARIANT_ADD(reserved, region_query) { &calls[REGION_QUERY] };
FIXTURE_VARIANT_ADD(reserved, region_blocks) { &calls[REGION_BLOCKS] };
FIXTURE_VARIANT_ADD(reserved, lmm) { &calls[LMM] };
FIXTURE_VARIANT_ADD(reserved, context_create) { &calls[CONTEXT_CREATE] };
FIXTURE_VARIANT_ADD(reserved, map_out) { &calls[MAP_OUT] };
FIXTURE_VARIANT_ADD(reserved, eventfd) { &calls[EVENTFD] };
FIXTURE_VARIANT_ADD(reserved, dma_wait) { &calls[DMA_WAIT] };
FIXTURE_VARIANT_ADD(reserved, segment_create) { &calls[SEGMENT_CREATE] };
FIXTURE_VARIANT_ADD(reserved, segment_attach) { &calls[SEGMENT_ATTACH] };

TEST_F(reserved, must_be_zero)
{
	for (int bit = 0; bit < 32; bit++) {
		union uldma_args args = variant->call->args;
		__u32 value = 1U << bit;

		memcpy(args.bytes + variant->call->reserved_at, &value, 4);
		EXPECT_EQ(-EINVAL, try_call(self->fd, variant->call, &args))
			TH_LOG("bit %d", bit);
	}
}

FIXTURE(query) {
	int fd;
};

FIXTURE_SETUP(query)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(query)
{
	close(self->fd);
}

TEST_F(query, says_what_is_there)
{
	struct uldma_query q;

	memset(&q, 0xff, sizeof(q));
	q.size = sizeof(q);
	q.flags = 0;
	ASSERT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_QUERY, &q));
	EXPECT_EQ(sizeof(q), q.size);
	EXPECT_EQ(ULDMA_ABI_VERSION, q.out_abi_version);
	EXPECT_EQ(0, q.out_link & ~ULDMA_LINK_UP);
	if (q.out_link)
		EXPECT_NE(0, q.out_link_generation);
	EXPECT_LT(0, q.out_contexts);
	EXPECT_LE(q.out_contexts_used, q.out_contexts);
	EXPECT_EQ(page_size(), 1UL << q.out_page_shift);
	EXPECT_LT(q.out_page_shift, q.out_shadow_window_shift);
	EXPECT_LT(0, q.out_max_transfer);
	EXPECT_LE(q.out_max_transfer, ULDMA_SIZE_WORD_BYTES_MASK);
	EXPECT_LT(0, q.out_max_regions);
	EXPECT_LE(q.out_max_regions, ULDMA_SIZE_WORD_REGION_MASK + 1);
	EXPECT_LE(q.out_regions, q.out_max_regions);
	EXPECT_LE(q.out_pages, q.out_max_pages);
	EXPECT_LT(0, q.out_window_size);
	EXPECT_LE(q.out_window_used, q.out_window_size);
	EXPECT_EQ(0, q.out_opener_regions);
	EXPECT_EQ(0, q.out_opener_pinned);
	EXPECT_TRUE(q.out_methods & 1U << ULDMA_METHOD_EXTENDED_SHADOW);
}

TEST_F(query, unknown_calls)
{
	int value;

	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, _IO(ULDMA_TYPE, 0x7f), NULL));
	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, _IO(ULDMA_TYPE, 0x02), NULL));
	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, _IO(0xba, 0x01), NULL));
	EXPECT_EQ(-ENOTTY,
		  uldma_ioctl(self->fd,
			      _IOWR(ULDMA_TYPE, ULDMA_CMD_QUERY, __u64), NULL));
	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, 0x5401 /* TCGETS */, &value));
}

TEST_F(query, nop_takes_anything)
{
	EXPECT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_NOP, NULL));
	EXPECT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_NOP, (void *)~0UL));
}

/* The answer cannot be delivered, so the call must not have happened. */
TEST_F(query, answer_to_readonly_memory)
{
	struct uldma_query before = query(self->fd);
	union uldma_args *args = buffer(page_size());
	char *memory = buffer(page_size());
	struct context context;

	ASSERT_NE(NULL, args);
	ASSERT_NE(NULL, memory);

	args->query = (struct uldma_query){ SIZED(query) };
	ASSERT_EQ(0, mprotect(args, page_size(), PROT_READ));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, ULDMA_IOC_QUERY, args));

	ASSERT_EQ(0, mprotect(args, page_size(), PROT_READ | PROT_WRITE));
	args->region_register = (struct uldma_region_register){
		SIZED(region_register),
		.flags = RW,
		.addr = (uintptr_t)memory,
		.length = 1,
	};
	ASSERT_EQ(0, mprotect(args, page_size(), PROT_READ));
	EXPECT_EQ(-EFAULT,
		  uldma_ioctl(self->fd, ULDMA_IOC_REGION_REGISTER, args));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, query(self->fd).out_opener_regions);
	EXPECT_EQ(before.out_regions, query(self->fd).out_regions);

	ASSERT_EQ(0, mprotect(args, page_size(), PROT_READ | PROT_WRITE));
	args->context_create = (struct uldma_context_create){
		SIZED(context_create)
	};
	ASSERT_EQ(0, mprotect(args, page_size(), PROT_READ));
	EXPECT_EQ(-EFAULT,
		  uldma_ioctl(self->fd, ULDMA_IOC_CONTEXT_CREATE, args));
	EXPECT_EQ(before.out_contexts_used, query(self->fd).out_contexts_used);
	EXPECT_EQ(0, context_create(self->fd, &context));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
