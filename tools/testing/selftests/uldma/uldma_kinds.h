/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kinds of memory, and its state in /proc. Each map_*() returns readable
 * and writable memory, or NULL and the reason in why_not.
 */
#ifndef __SELFTEST_ULDMA_KINDS_H
#define __SELFTEST_ULDMA_KINDS_H

#include <stdarg.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "uldma_utils.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x4U
#endif

#define HUGE (2UL << 20)
#define EXT4 "/mnt/ext4"

static char why_not[128];

__attribute__((format(printf, 1, 2)))
static inline void *no_memory(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why_not, sizeof(why_not), format, args);
	va_end(args);
	return NULL;
}

/* Writes to a file of the kernel, which root may: 0 or a negated errno. */
static inline int put(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* In an entry of the page map: a page is mapped; which frame that is. */
#define ENTRY_PRESENT 0x8000000000000000ULL
#define ENTRY_FRAME 0x007fffffffffffffULL

/*
 * The frames of pages, 0 for none; needs root. Returns how many pages
 * are mapped.
 */
static inline size_t frames_of(const void *addr, size_t pages, __u64 *frames)
{
	off_t at = (uintptr_t)addr / page_size() * sizeof(__u64);
	size_t length = pages * sizeof(__u64), mapped = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	if (fd < 0 || pread(fd, frames, length, at) != length)
		memset(frames, 0, length);
	close(fd);
	for (size_t i = 0; i < pages; i++) {
		bool is_mapped = frames[i] & ENTRY_PRESENT;

		mapped += is_mapped;
		frames[i] = is_mapped ? frames[i] & ENTRY_FRAME : 0;
	}
	return mapped;
}

static inline __u64 frame(const void *addr)
{
	__u64 frame;

	frames_of(addr, 1, &frame);
	return frame;
}

/* Pages that are in memory, whether mapped or not. */
static inline size_t resident(void *addr, size_t length)
{
	size_t pages = length / page_size(), count = 0;
	unsigned char *in = calloc(pages, 1);

	if (in && !mincore(addr, length, in))
		for (size_t i = 0; i < pages; i++)
			count += in[i] & 1;
	free(in);
	return count;
}

/* A number of smaps for the mapping that an address belongs to, in bytes. */
static inline long long mapping_has(const void *addr, const char *name)
{
	unsigned long first, last, at = (uintptr_t)addr;
	long long value = -1;
	bool here = false;
	char line[256];
	FILE *f;

	f = fopen("/proc/self/smaps", "r");
	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			here = first <= at && at < last;
		else if (here && !strncmp(line, name, strlen(name)))
			value = strtoll(line + strlen(name) + 1, NULL, 10);
	}
	fclose(f);
	return value < 0 ? -1 : value * 1024;
}

static inline void *map_or_why(size_t length, int flags, int fd)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

	return p == MAP_FAILED ? no_memory("mmap: %s", strerror(errno)) : p;
}

static inline void *map_anonymous(size_t length)
{
	return map_or_why(length, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static inline void *map_shared(size_t length)
{
	return map_or_why(length, MAP_SHARED | MAP_ANONYMOUS, -1);
}

/* Memory for large pages, at an address that they can have; untouched. */
static inline void *map_aligned(size_t length)
{
	char *p = map_or_why(length + HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *at = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));

	if (!p)
		return NULL;
	if (at > p)
		munmap(p, at - p);
	munmap(at + length, p + HUGE - at);
	if (madvise(at, length, MADV_HUGEPAGE))
		return no_memory("MADV_HUGEPAGE: %s", strerror(errno));
	return at;
}

static inline void *map_thp(size_t length)
{
	char *p = map_aligned(length);

	if (!p)
		return NULL;
	memset(p, 0, length);
	if (mapping_has(p, "AnonHugePages:") < (long long)length)
		return no_memory("the kernel had no large pages to give");
	return p;
}

/* A file without a name: descriptor, or a negated errno. */
static inline int file_in(const char *directory, size_t length)
{
	char name[128];
	int fd;

	snprintf(name, sizeof(name), "%s/uldma-XXXXXX", directory);
	fd = mkstemp(name);
	if (fd < 0)
		return -errno;
	unlink(name);
	if (ftruncate(fd, length)) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* Takes the descriptor. */
static inline void *map_file(int fd, size_t length, int flags)
{
	void *p;

	if (fd < 0)
		return no_memory("no such file: %s", strerror(-fd));
	p = map_or_why(length, flags, fd);
	close(fd);
	return p;
}

static inline int memfd(size_t length, unsigned int flags)
{
	int fd = memfd_create("uldma", flags);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, length)) {
		close(fd);
		return -errno;
	}
	return fd;
}

static inline void *map_memfd(size_t length)
{
	return map_file(memfd(length, 0), length, MAP_SHARED);
}

static inline void *map_memfd_private(size_t length)
{
	return map_file(memfd(length, 0), length, MAP_PRIVATE);
}

static inline void *map_tmpfs(size_t length)
{
	return map_file(file_in("/dev/shm", length), length, MAP_SHARED);
}

static inline void *map_posix_shm(size_t length)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "/uldma-%d", getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return no_memory("shm_open: %s", strerror(errno));
	shm_unlink(name);
	if (ftruncate(fd, length)) {
		close(fd);
		return no_memory("ftruncate: %s", strerror(errno));
	}
	return map_file(fd, length, MAP_SHARED);
}

/* Returns true if the machine has a file system that tracks dirty pages. */
static inline bool has_ext4(void)
{
	struct statfs fs;

	return !statfs(EXT4, &fs) && fs.f_type == EXT4_SUPER_MAGIC;
}

static inline void *map_ext4_private(size_t length)
{
	if (!has_ext4())
		return no_memory("no ext4 at " EXT4);
	return map_file(file_in(EXT4, length), length, MAP_PRIVATE);
}

static inline void *map_sysv(size_t length)
{
	int id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600);
	void *p;

	if (id < 0)
		return no_memory("shmget: %s", strerror(errno));
	p = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	return p == (void *)-1 ? no_memory("shmat: %s", strerror(errno)) : p;
}

#define HUGETLB_COUNT "/proc/sys/vm/nr_hugepages"

static bool hugepages_added;

static inline void *map_huge_file(size_t length, int flags, bool file)
{
	if (file)
		return map_file(memfd(length, MFD_HUGETLB), length, flags);
	return map_or_why(length, flags | MAP_ANONYMOUS | MAP_HUGETLB, -1);
}

/* Where there are no large pages, root may ask for some here and now. */
static inline void *map_huge(size_t length, int flags, bool file)
{
	void *p = map_huge_file(length, flags, file);

	if (p || hugepages_added || put(HUGETLB_COUNT, "4"))
		return p;
	hugepages_added = true;
	return map_huge_file(length, flags, file);
}

static inline void *map_hugetlb(size_t length)
{
	return map_huge(length, MAP_PRIVATE, false);
}

static inline void *map_hugetlb_shared(size_t length)
{
	return map_huge(length, MAP_SHARED, false);
}

static inline void *map_hugetlb_memfd(size_t length)
{
	return map_huge(length, MAP_SHARED, true);
}

static inline void *map_hugetlb_memfd_private(size_t length)
{
	return map_huge(length, MAP_PRIVATE, true);
}

/* Gives what was asked for back; pages in use go with their use. */
static inline void hugepages_done(void)
{
	if (hugepages_added)
		put(HUGETLB_COUNT, "0");
}

#endif /* __SELFTEST_ULDMA_KINDS_H */
