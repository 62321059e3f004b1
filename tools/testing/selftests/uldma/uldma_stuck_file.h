/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file of FUSE whose pages never come. The first read of a page fails, so that
 * the kernel reads it once more: by then it keeps the lock of the address space
 * that it reads the page for. The second read is not answered until the server
 * has ended.
 */
#ifndef __SELFTEST_ULDMA_STUCK_FILE_H
#define __SELFTEST_ULDMA_STUCK_FILE_H

#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "uldma_utils.h"

#define STUCK_FILE "/tmp/uldma-stuck-file"
#define STUCK_PAGES 17
/* More than the kernel asks a server to have room for. */
#define FUSE_REQUEST 262144

/**
 * struct stuck_file - the file, and its server
 * @fd: the file
 * @server: the process that serves it
 * @reads: how often each of its pages was read
 */
struct stuck_file {
	int fd;
	pid_t server;
	int *reads;
};

static inline int stuck_file_reads(const struct stuck_file *f, int page)
{
	return READ_ONCE(f->reads[page]);
}

static inline void fuse_answer(int fuse, __u64 unique, int error,
			       const void *data, size_t length)
{
	struct fuse_out_header out = {
		.len = sizeof(out) + length,
		.error = error,
		.unique = unique,
	};
	struct iovec iov[] = {
		{ &out, sizeof(out) },
		{ (void *)data, length },
	};

	/* A request that was interrupted takes no answer. */
	if (writev(fuse, iov, length ? 2 : 1) < 0)
		return;
}

static inline void stuck_file_answer(struct stuck_file *f, int fuse,
				     const struct fuse_in_header *in)
{
	const struct fuse_init_in *init = (const void *)(in + 1);
	const struct fuse_read_in *read = (const void *)(in + 1);
	struct fuse_attr_out attr = {
		.attr_valid = UINT32_MAX,
		.attr = {
			.ino = FUSE_ROOT_ID,
			.size = STUCK_PAGES * page_size(),
			.mode = S_IFREG | 0600,
			.nlink = 1,
		},
	};
	struct fuse_init_out begun = {
		.major = FUSE_KERNEL_VERSION,
		.max_write = page_size(),
	};
	struct fuse_open_out opened = { .open_flags = FOPEN_KEEP_CACHE };
	int *reads;

	switch (in->opcode) {
	case FUSE_INIT:
		begun.minor = init->minor;
		fuse_answer(fuse, in->unique, 0, &begun, sizeof(begun));
		break;
	case FUSE_GETATTR:
		fuse_answer(fuse, in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		fuse_answer(fuse, in->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		reads = &f->reads[read->offset / page_size() % STUCK_PAGES];
		if (!*reads)
			fuse_answer(fuse, in->unique, -EIO, NULL, 0);
		WRITE_ONCE(*reads, *reads + 1);
		break;
	case FUSE_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		fuse_answer(fuse, in->unique, -EOPNOTSUPP, NULL, 0);
	}
}

static inline void stuck_file_serve(struct stuck_file *f, int fuse)
{
	static char request[FUSE_REQUEST] __attribute__((aligned(8)));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		ssize_t len = read(fuse, request, sizeof(request));

		if (len < (ssize_t)sizeof(struct fuse_in_header)) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			_exit(1);
		}
		stuck_file_answer(f, fuse, (const void *)request);
	}
}

/* Mounts the file where other processes do not see it. */
static inline int stuck_file_mount(int fuse)
{
	int target = open(STUCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char options[64];

	if (target < 0 || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -errno;
	close(target);
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=100600,user_id=0,group_id=0", fuse);
	return mount("uldma", STUCK_FILE, "fuse", 0, options) ? -errno : 0;
}

/* Returns -EOPNOTSUPP if the kernel has no FUSE. */
static inline int stuck_file_open(struct stuck_file *f)
{
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct stat file;
	int ret;

	if (fuse < 0)
		return -EOPNOTSUPP;
	f->reads = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f->reads == MAP_FAILED)
		return -errno;
	/* The kernel wants the connection to be open when it is given. */
	ret = stuck_file_mount(fuse);
	if (ret)
		return ret;
	f->server = fork();
	if (!f->server)
		stuck_file_serve(f, fuse);
	/* The server's end ends the connection, and with it all reads. */
	close(fuse);
	f->fd = open(STUCK_FILE, O_RDWR | O_CLOEXEC);
	if (f->server < 0 || f->fd < 0 || fstat(f->fd, &file))
		return -errno;
	return file.st_size == STUCK_PAGES * page_size() ? 0 : -EPROTO;
}

/* Ends all reads. */
static inline void stuck_file_end(struct stuck_file *f)
{
	if (f->server > 0) {
		kill(f->server, SIGKILL);
		waitpid(f->server, NULL, 0);
	}
	unlink(STUCK_FILE);
}

#endif /* __SELFTEST_ULDMA_STUCK_FILE_H */
