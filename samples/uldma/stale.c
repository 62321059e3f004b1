// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The shortest C program that is notified when registered memory is unmapped.
 *
 * The region keeps the pages that were mapped when it was registered. After
 * the addresses were unmapped or mapped anew, the process cannot access these
 * pages any more, and should unregister the region.
 */
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/uldma.h>

#define LENGTH 0x100000

int main(void)
{
	struct uldma_region_register reg = {
		.size = sizeof(reg),
		.flags = ULDMA_ACCESS_READ | ULDMA_ACCESS_WRITE,
		.length = LENGTH,
	};
	struct uldma_handle handle = { .size = sizeof(handle) };
	int fd = open("/dev/uldma0", O_RDWR | O_CLOEXEC);
	struct uldma_event event;
	void *memory;

	if (fd < 0)
		err(1, "/dev/uldma0");
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "memory");
	reg.addr = (uintptr_t)memory;
	if (ioctl(fd, ULDMA_IOC_REGION_REGISTER, &reg))
		err(1, "register (ulimit -l?)");

	/* free() does the same with a large buffer. */
	munmap(memory, LENGTH);

	/* Other events may come first. A real program sleeps in poll(). */
	do {
		if (read(fd, &event, sizeof(event)) != sizeof(event))
			err(1, "event");
	} while (event.type != ULDMA_EVENT_STALE || event.handle != reg.out_handle);
	printf("%llu of %d bytes are stale\n", (unsigned long long)event.value, LENGTH);

	/* Until here the pages were pinned, and charged to RLIMIT_MEMLOCK. */
	handle.handle = reg.out_handle;
	if (ioctl(fd, ULDMA_IOC_REGION_UNREGISTER, &handle))
		err(1, "unregister");
	return 0;
}
