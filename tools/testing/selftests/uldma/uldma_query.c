// SPDX-License-Identifier: GPL-2.0
/*
 * Sizes and flags of every call's argument, and the results of a query; those of
 * connections are in uldma_conn_size.c.
 */
#include "uldma_calls.h"

#define NO_HANDLE 0x7fffffff
#define NO_NAME 0x6e6f2073756368ULL

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
	REGION_WINDOW,
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
		.asks = true,
		.args.query = { SIZED(query) },
		FIRST(query, out_nodes),
	},
	[REGION_REGISTER] = {
		.cmd = ULDMA_IOC_REGION_REGISTER,
		.args.region_register = {
			SIZED(region_register),
			.flags = RW,
			.addr = 4096,
			.length = 1,
		},
		FIRST(region_register, limit_us),
		RESERVED(region_register),
		.result = -EFAULT,
		.known_flags = RW | ULDMA_REGISTER_OPTIMISTIC | ULDMA_WAITS,
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
		FIRST(region_import, peer),
		RESERVED(region_import),
	},
	[REGION_QUERY] = {
		.cmd = ULDMA_IOC_REGION_QUERY,
		.asks = true,
		.args.region_query = {
			SIZED(region_query),
			.handle = NO_HANDLE,
		},
		.result = -ENOENT,
		RESERVED(region_query),
	},
	[REGION_CHARGE] = {
		.cmd = ULDMA_IOC_REGION_CHARGE,
		.asks = true,
		.args.region_charge = {
			SIZED(region_charge),
			.flags = RW,
			.addr = 4096,
			.length = 1,
		},
		.known_flags = RW | ULDMA_REGISTER_OPTIMISTIC | ULDMA_WAITS,
	},
	[REGION_BLOCKS] = {
		.cmd = ULDMA_IOC_REGION_BLOCKS,
		.asks = true,
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
	[REGION_WINDOW] = {
		.cmd = ULDMA_IOC_REGION_WINDOW,
		.args.region_window = {
			SIZED(region_window),
			.flags = RW,
			.length = 1ULL << 40,
		},
		.result = -ENOSPC,
		.known_flags = RW,
		RESERVED(region_window),
	},
	[LMM] = {
		.cmd = ULDMA_IOC_LMM,
		.asks = true,
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
		.asks = true,
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
		.asks = true,
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
		.asks = true,
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
		FIRST(segment_attach, peer),
		RESERVED_TWICE(segment_attach),
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
FIXTURE_VARIANT_ADD(call, region_window) { &calls[REGION_WINDOW] };
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

FIXTURE_VARIANT_ADD(flags, query) { &calls[QUERY] };
FIXTURE_VARIANT_ADD(flags, region_register) { &calls[REGION_REGISTER] };
FIXTURE_VARIANT_ADD(flags, region_export) { &calls[REGION_EXPORT] };
FIXTURE_VARIANT_ADD(flags, region_import) { &calls[REGION_IMPORT] };
FIXTURE_VARIANT_ADD(flags, region_query) { &calls[REGION_QUERY] };
FIXTURE_VARIANT_ADD(flags, region_charge) { &calls[REGION_CHARGE] };
FIXTURE_VARIANT_ADD(flags, region_blocks) { &calls[REGION_BLOCKS] };
FIXTURE_VARIANT_ADD(flags, region_window) { &calls[REGION_WINDOW] };
FIXTURE_VARIANT_ADD(flags, lmm) { &calls[LMM] };
FIXTURE_VARIANT_ADD(flags, context_create) { &calls[CONTEXT_CREATE] };
FIXTURE_VARIANT_ADD(flags, context_stats) { &calls[CONTEXT_STATS] };
FIXTURE_VARIANT_ADD(flags, map_out) { &calls[MAP_OUT] };
FIXTURE_VARIANT_ADD(flags, eventfd) { &calls[EVENTFD] };
FIXTURE_VARIANT_ADD(flags, dma) { &calls[DMA] };
FIXTURE_VARIANT_ADD(flags, dma_wait) { &calls[DMA_WAIT] };
FIXTURE_VARIANT_ADD(flags, segment_create) { &calls[SEGMENT_CREATE] };
FIXTURE_VARIANT_ADD(flags, segment_attach) { &calls[SEGMENT_ATTACH] };

FIXTURE_VARIANT_ADD(reserved, region_import) { &calls[REGION_IMPORT] };
FIXTURE_VARIANT_ADD(reserved, region_query) { &calls[REGION_QUERY] };
FIXTURE_VARIANT_ADD(reserved, region_blocks) { &calls[REGION_BLOCKS] };
FIXTURE_VARIANT_ADD(reserved, lmm) { &calls[LMM] };
FIXTURE_VARIANT_ADD(reserved, context_create) { &calls[CONTEXT_CREATE] };
FIXTURE_VARIANT_ADD(reserved, map_out) { &calls[MAP_OUT] };
FIXTURE_VARIANT_ADD(reserved, eventfd) { &calls[EVENTFD] };
FIXTURE_VARIANT_ADD(reserved, dma_wait) { &calls[DMA_WAIT] };
FIXTURE_VARIANT_ADD(reserved, segment_attach) { &calls[SEGMENT_ATTACH] };

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
	EXPECT_EQ(0, q.out_file_regions);
	EXPECT_EQ(0, q.out_mm_pinned);
	EXPECT_LE(2, q.out_nodes);
	EXPECT_LE(q.out_nodes, ULDMA_MAX_NODES);
	EXPECT_LT(q.out_node, q.out_nodes);
	EXPECT_EQ(0, q.out_peers & 1U << q.out_node);
	EXPECT_EQ(0, q.out_peers >> q.out_nodes);
	EXPECT_EQ(!!q.out_link, !!q.out_peers);
	EXPECT_LE(q.out_backend, ULDMA_BACKEND_LOOPBACK);
	/* Initiation from user level is what the engine adds. */
	EXPECT_EQ(q.out_backend == ULDMA_BACKEND_ADAPTER,
		  !!(q.out_methods & 1U << ULDMA_METHOD_EXTENDED_SHADOW));
	EXPECT_EQ(q.out_backend == ULDMA_BACKEND_ADAPTER, !!q.out_completion_ns);
	/* An interrupt and a thread, each at most what wakeup_us can set. */
	EXPECT_LE(q.out_completion_ns, 40000000);
}

TEST_F(query, unknown_calls)
{
	int value;

	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, _IO(ULDMA_TYPE, 0x7f), NULL));
	EXPECT_EQ(-ENOTTY, uldma_ioctl(self->fd, _IO(ULDMA_TYPE, 0x03), NULL));
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

/* The same call asks, or changes something. */
TEST_F(query, readonly_cache)
{
	int fd = open(uldma_node(), O_RDONLY | O_CLOEXEC);
	struct uldma_lmm arg = { SIZED(lmm), .flags = ULDMA_LMM_CACHE_ON };

	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, uldma_ioctl(fd, ULDMA_IOC_LMM, &arg));
	EXPECT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_LMM, &arg));
	close(fd);
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
	EXPECT_EQ(0, query(self->fd).out_file_regions);
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
