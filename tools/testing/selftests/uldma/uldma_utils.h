/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The uldma interface as functions. Each returns 0, or the negated errno, so
 * that a test reads ASSERT_EQ(-EINVAL, region_register(...)).
 */
#ifndef __SELFTEST_ULDMA_UTILS_H
#define __SELFTEST_ULDMA_UTILS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/uldma.h>

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

/* As in the kernel: exactly one access, of the whole width. */
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

#define RW (ULDMA_ACCESS_READ | ULDMA_ACCESS_WRITE)
#define SECOND 1000000000ULL
/* Long enough for a loaded emulator, shorter than the harness's patience. */
#define PATIENCE (20 * SECOND)
/* Milliseconds after which an event that has to come will not come. */
#define SOON 20000

static inline __u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND + now.tv_nsec;
}

static inline size_t page_size(void)
{
	return sysconf(_SC_PAGESIZE);
}

static inline const char *uldma_node(void)
{
	return getenv("ULDMA_DEVICE") ?: "/dev/uldma0";
}

static inline int uldma_open(int flags)
{
	int fd = open(uldma_node(), O_RDWR | O_CLOEXEC | flags);

	return fd < 0 ? -errno : fd;
}

static inline int uldma_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

static inline int handle_ioctl(int fd, unsigned long cmd, __u32 handle)
{
	struct uldma_handle arg = { .size = sizeof(arg), .handle = handle };

	return uldma_ioctl(fd, cmd, &arg);
}

/* All zero when the query fails, which no test takes for a good answer. */
static inline struct uldma_query query(int fd)
{
	struct uldma_query q = { .size = sizeof(q) };

	if (uldma_ioctl(fd, ULDMA_IOC_QUERY, &q))
		memset(&q, 0, sizeof(q));
	return q;
}

static inline bool link_up(int fd)
{
	return query(fd).out_link & ULDMA_LINK_UP;
}

static inline size_t pinned_pages(int fd)
{
	return query(fd).out_mm_pinned / page_size();
}

/**
 * struct region - a registration or an import
 * @handle: for system calls
 * @index: for size words
 * @first: offset of the first byte in the first shadow page
 * @length: bytes
 * @shadow_offset: where to map its shadow pages
 * @shadow_length: how many bytes of them there are
 * @shadow: where they are mapped, or NULL
 */
struct region {
	__u32 handle;
	__u32 index;
	size_t first;
	__u64 length;
	__u64 shadow_offset;
	__u64 shadow_length;
	char *shadow;
};

/* Registers memory; transfers wait for its pages for @limit_us. */
static inline int region_register_for(int fd, const void *addr, __u64 length,
				      __u32 access, __u32 limit_us,
				      struct region *r)
{
	struct uldma_region_register arg = {
		.size = sizeof(arg),
		.flags = access,
		.addr = (uintptr_t)addr,
		.length = length,
		.limit_us = limit_us,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_REGION_REGISTER, &arg);

	*r = (struct region){
		.handle = arg.out_handle,
		.index = arg.out_index,
		.first = (uintptr_t)addr % page_size(),
		.length = length,
		.shadow_offset = arg.out_shadow_offset,
		.shadow_length = arg.out_shadow_length,
	};
	return ret;
}

#define ULDMA_WAITS (ULDMA_REGISTER_LOOK_UP | ULDMA_REGISTER_PAGE_IN)

static inline int region_register(int fd, const void *addr, __u64 length,
				  __u32 access, struct region *r)
{
	__u32 limit = access & ULDMA_WAITS ? ULDMA_REGISTER_MAX_LIMIT_US : 0;

	return region_register_for(fd, addr, length, access, limit, r);
}

static inline int region_unregister(int fd, __u32 handle)
{
	return handle_ioctl(fd, ULDMA_IOC_REGION_UNREGISTER, handle);
}

static inline int region_export(int fd, __u32 handle, __u32 access, __u64 name)
{
	struct uldma_region_export arg = {
		.size = sizeof(arg),
		.flags = access,
		.handle = handle,
		.name = name,
	};

	return uldma_ioctl(fd, ULDMA_IOC_REGION_EXPORT, &arg);
}

static inline int region_unexport(int fd, __u32 handle)
{
	return handle_ioctl(fd, ULDMA_IOC_REGION_UNEXPORT, handle);
}

static inline int region_import(int fd, __u64 name, __u32 access,
				struct region *r)
{
	struct uldma_region_import arg = {
		.size = sizeof(arg),
		.flags = access,
		.name = name,
		.timeout_ns = PATIENCE,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_REGION_IMPORT, &arg);

	*r = (struct region){
		.handle = arg.out_handle,
		.index = arg.out_index,
		.length = arg.out_length,
		.shadow_offset = arg.out_shadow_offset,
		.shadow_length = arg.out_shadow_length,
	};
	return ret;
}

/* mmap() that returns the negated errno, else 0 and the address. */
static inline int map(int fd, __u64 offset, size_t length, int prot, int flags,
		      void *addr)
{
	void *p = mmap(NULL, length, prot, flags, fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	*(void **)addr = p;
	return 0;
}

static inline int region_map(int fd, struct region *r, int prot)
{
	return map(fd, r->shadow_offset, r->shadow_length, prot, MAP_SHARED,
		   &r->shadow);
}

static inline int region_unmap(struct region *r)
{
	return munmap(r->shadow, r->shadow_length) ? -errno : 0;
}

/* The shadow address of a byte of a region. */
static inline uintptr_t shadow_of(const struct region *r, size_t offset)
{
	return (uintptr_t)r->shadow + r->first + offset;
}

/**
 * struct context - a register context and its pages
 * @number: which of the device's
 * @method: how transfers are started through it
 * @key: what ULDMA_METHOD_KEY has to store
 * @page: device registers
 * @status: status of the device
 * @queue: the descriptors of ULDMA_METHOD_QUEUE, or NULL
 * @ticket: the last one, where the method does not return it
 */
struct context {
	__u32 number;
	__u32 method;
	__u64 key;
	__u64 page_offset;
	__u64 status_offset;
	__u64 queue_offset;
	__u32 page_length;
	__u64 *page;
	struct uldma_status_page *status;
	struct uldma_descriptor *queue;
	__u64 ticket;
};

static inline int context_create_as(int fd, __u32 method, __u32 flags,
				    struct context *c)
{
	struct uldma_context_create arg = {
		.size = sizeof(arg),
		.flags = flags,
		.method = method,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_CONTEXT_CREATE, &arg);

	*c = (struct context){
		.number = arg.out_context,
		.method = method,
		.key = arg.out_key,
		.page_offset = arg.out_page_offset,
		.status_offset = arg.out_status_offset,
		.queue_offset = arg.out_queue_offset,
		.page_length = arg.out_page_length,
	};
	return ret;
}

static inline int context_create(int fd, struct context *c)
{
	return context_create_as(fd, ULDMA_METHOD_EXTENDED_SHADOW, 0, c);
}

static inline int context_map(int fd, struct context *c)
{
	int prot = PROT_READ | PROT_WRITE;
	int ret = map(fd, c->page_offset, c->page_length, prot, MAP_SHARED,
		      &c->page) ?:
		  map(fd, c->status_offset, c->page_length, PROT_READ,
		      MAP_SHARED, &c->status);

	if (ret || !c->queue_offset)
		return ret;
	return map(fd, c->queue_offset, c->page_length, prot, MAP_SHARED,
		   &c->queue);
}

static inline int context_unmap(struct context *c)
{
	if (munmap(c->page, c->page_length) ||
	    munmap(c->status, c->page_length))
		return -errno;
	if (c->queue && munmap(c->queue, c->page_length))
		return -errno;
	return 0;
}

static inline int context_destroy(int fd)
{
	return handle_ioctl(fd, ULDMA_IOC_CONTEXT_DESTROY, 0);
}

static inline struct uldma_context_stats context_stats(int fd)
{
	struct uldma_context_stats s = { .size = sizeof(s) };

	if (uldma_ioctl(fd, ULDMA_IOC_CONTEXT_STATS, &s))
		memset(&s, 0xff, sizeof(s));
	return s;
}

static inline __u64 size_word(__u64 bytes, unsigned int src_low,
			      unsigned int dst_low, __u32 src, __u32 dst)
{
	return bytes | (__u64)src_low << ULDMA_SIZE_WORD_SRC_LOW_SHIFT |
	       (__u64)dst_low << ULDMA_SIZE_WORD_DST_LOW_SHIFT |
	       (__u64)src << ULDMA_SIZE_WORD_SRC_REGION_SHIFT |
	       (__u64)dst << ULDMA_SIZE_WORD_DST_REGION_SHIFT;
}

/*
 * One store and one load: a ticket, or a negated enum uldma_dma_status. The
 * region indices need not be those of the regions that are mapped.
 */
static inline __s64 shadow_pass(uintptr_t dst, uintptr_t src, __u64 bytes,
				__u32 dst_index, __u32 src_index)
{
	__u64 *store = (__u64 *)(dst & ~7UL);
	__u64 *load = (__u64 *)(src & ~7UL);

	WRITE_ONCE(*store,
		   size_word(bytes, src & 7, dst & 7, src_index, dst_index));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return (__s64)READ_ONCE(*load);
}

static inline __s64 shadow_start(const struct region *dst, size_t dst_offset,
				 const struct region *src, size_t src_offset,
				 __u64 bytes)
{
	return shadow_pass(shadow_of(dst, dst_offset),
			   shadow_of(src, src_offset), bytes, dst->index,
			   src->index);
}

static inline int kernel_start(int fd, __u32 dst, __u64 dst_offset, __u32 src,
			       __u64 src_offset, __u64 bytes, __u64 *ticket)
{
	struct uldma_dma arg = {
		.size = sizeof(arg),
		.src = src,
		.dst = dst,
		.src_offset = src_offset,
		.dst_offset = dst_offset,
		.length = bytes,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_DMA, &arg);

	*ticket = arg.out_ticket;
	return ret;
}

static inline int dma_wait(int fd, __u32 flags, __u64 ticket, __u64 timeout,
			   struct uldma_dma_wait *result)
{
	*result = (struct uldma_dma_wait){
		.size = sizeof(*result),
		.flags = flags,
		.ticket = ticket,
		.timeout_ns = timeout,
	};
	return uldma_ioctl(fd, ULDMA_IOC_DMA_WAIT, result);
}

/* Ways to start a transfer. */
enum how {
	BY_KERNEL,
	BY_SHADOW,
};

/*
 * Starts a transfer: 0 and a ticket; a negated errno when the kernel, a
 * positive enum uldma_dma_status when the device refuses.
 */
static inline int transfer_start(int fd, enum how how,
				 const struct region *dst, size_t dst_offset,
				 const struct region *src, size_t src_offset,
				 __u64 bytes, __u64 *ticket)
{
	__s64 got;

	if (how == BY_KERNEL)
		return kernel_start(fd, dst->handle, dst_offset, src->handle,
				    src_offset, bytes, ticket);
	got = shadow_start(dst, dst_offset, src, src_offset, bytes);
	*ticket = got;
	return got > 0 ? 0 : got ? -got : -EPROTO;
}

/* Waits for a transfer: as transfer_start(). -EPROTO: fewer bytes, no error. */
static inline int transfer_wait(int fd, enum how how, __u64 ticket,
				__u64 bytes)
{
	struct uldma_dma_wait result;
	int ret = dma_wait(fd, how == BY_SHADOW ? ULDMA_WAIT_CONTEXT : 0,
			   ticket, PATIENCE, &result);

	if (ret)
		return ret;
	if (!result.out_status && result.out_bytes != bytes)
		return -EPROTO;
	return result.out_status;
}

static inline int transfer(int fd, enum how how,
			   const struct region *dst, size_t dst_offset,
			   const struct region *src, size_t src_offset,
			   __u64 bytes)
{
	__u64 ticket;
	int ret = transfer_start(fd, how, dst, dst_offset, src, src_offset,
				 bytes, &ticket);

	return ret ?: transfer_wait(fd, how, ticket, bytes);
}

/**
 * struct segment - a part of a window, of this node or of the peer
 * @handle: its handle
 * @offset: where to map it
 * @length: how much of it there is
 * @map: where it is mapped
 */
struct segment {
	__u32 handle;
	__u64 offset;
	__u64 length;
	__u64 *map;
};

static inline int segment_create(int fd, __u64 name, __u64 length,
				 struct segment *s)
{
	struct uldma_segment_create arg = {
		.size = sizeof(arg),
		.name = name,
		.length = length,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_SEGMENT_CREATE, &arg);

	*s = (struct segment){
		.handle = arg.out_handle,
		.offset = arg.out_offset,
		.length = arg.out_length,
	};
	return ret;
}

static inline int segment_attach(int fd, __u64 name, struct segment *s)
{
	struct uldma_segment_attach arg = {
		.size = sizeof(arg),
		.name = name,
		.timeout_ns = PATIENCE,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_SEGMENT_ATTACH, &arg);

	*s = (struct segment){
		.handle = arg.out_handle,
		.offset = arg.out_offset,
		.length = arg.out_length,
	};
	return ret;
}

static inline int segment_map(int fd, struct segment *s)
{
	return map(fd, s->offset, s->length, PROT_READ | PROT_WRITE,
		   MAP_SHARED, &s->map);
}

static inline int segment_destroy(int fd, __u32 handle)
{
	return handle_ioctl(fd, ULDMA_IOC_SEGMENT_DESTROY, handle);
}

static inline int doorbell(int fd, __u32 handle)
{
	return handle_ioctl(fd, ULDMA_IOC_DOORBELL, handle);
}

static inline int map_out(int fd, __u32 src, __u32 src_page, __u32 dst,
			  __u32 dst_page, __u32 pages)
{
	struct uldma_map_out arg = {
		.size = sizeof(arg),
		.src = src,
		.dst = dst,
		.src_page = src_page,
		.dst_page = dst_page,
		.pages = pages,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONTEXT_MAP_OUT, &arg);
}

/* POLLIN and its like within the time given, or 0. */
static inline short poll_for(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0 ? p.revents : 0;
}

/* Sleeps for an event of a type, and passes over others: 0 or -ETIMEDOUT. */
static inline int event_wait(int fd, __u32 type, int timeout_ms,
			     struct uldma_event *event)
{
	while (poll_for(fd, timeout_ms) & POLLIN) {
		if (read(fd, event, sizeof(*event)) != sizeof(*event))
			return -errno;
		if (event->type == type)
			return 0;
	}
	return -ETIMEDOUT;
}

static inline void *buffer(size_t length)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A pattern without repetition, so that data from a wrong place shows. */
static inline __u64 pattern_at(__u64 seed, __u64 word)
{
	__u64 x = (seed << 40) + word + 1;

	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static inline void pattern_fill(void *buf, size_t length, __u64 seed)
{
	size_t i, n;
	__u64 word;

	for (i = 0; i < length; i += n) {
		n = length - i < sizeof(word) ? length - i : sizeof(word);
		word = pattern_at(seed, i / sizeof(word));
		memcpy((char *)buf + i, &word, n);
	}
}

/* Offset of the first byte that differs from the pattern, or -1. */
static inline long pattern_check(const void *buf, size_t length, __u64 seed)
{
	const unsigned char *p = buf;
	__u64 word = 0;
	size_t i;

	for (i = 0; i < length; i++, word >>= 8) {
		if (!(i % sizeof(word)))
			word = htole64(pattern_at(seed, i / sizeof(word)));
		if (p[i] != (unsigned char)word)
			return i;
	}
	return -1;
}

#endif /* __SELFTEST_ULDMA_UTILS_H */
