# SPDX-License-Identifier: GPL-2.0
"""Values that the papers print."""

# User-Level DMA without Operating System Kernel Modification, on a DEC Alpha 3000/300 at 150 MHz
# with a board on a TurboChannel at 12.5 MHz.

# Table 1: microseconds of one initiation.
INITIATION = {"kernel": 25.1, "extended-shadow": 1.5, "repeated-5": 4.6, "key": 4.4}
# Stores and loads of one initiation by the kernel (fig. 1).
KERNEL_ACCESSES = (3.0, 1.0)
# Stores and loads of one initiation by a process, of methods that need not one of each: of the
# paper's methods as in the paper, of others as in the user interface.
_ACCESSES = {
    "kernel": (0.0, 0.0),
    "queue": (0.0, 0.0),
    "key": (3.0, 1.0),
    "repeated-3": (1.0, 2.0),
    "repeated-4": (2.0, 2.0),
    "repeated-5": (2.0, 3.0),
    "single-store": (1.0, 0.0),
    "shrimp-1": (0.0, 1.0),
    "fetch-add": (0.0, 1.0),
}
# Section 1: how often a word crosses the memory bus.
TOUCHES = {"remote_write": 2.0, "dma": 1.0}
# Section 4.4: errors, and returns of FAIL, of each second with about 100 switches: least and most.
ERRORS = (112.0, 115.0)
FAILS = (93.0, 97.0)
# Errors and FAILs per 100 switches of the printed machine, simulated, and of one that takes a
# store that does not match for the first of a new attempt: of two processes. A test of
# tools/uldma/papers/interleave compares them with its simulator.
SIMULATED = (112.0, 96.0)
REARMING = (103.7, 48.1)

# The paper of the locked memory manager, on a Pentium III at 450 MHz with Linux 2.4.0:
# microseconds for shared memory of 4 KiB to 16 MiB, in powers of two.

# Table 1: another process has registered the memory.
SECOND_REGISTER = (
    *(6.9, 8.4, 10.8, 15.8, 25.5, 47.2, 87.8),
    *(177.0, 340.0, 697.0, 1371.0, 2739.0, 5414.0),
)
SECOND_DEREGISTER = (
    *(4.4, 4.7, 5.3, 6.7, 9.3, 14.8, 25.9),
    *(49.5, 98.8, 205.0, 409.0, 814.0, 1646.0),
)
# Table 2: no process has registered it.
FIRST_REGISTER = (
    *(7.4, 8.8, 11.4, 16.4, 26.1, 49.5, 86.8),
    *(167.0, 334.0, 668.0, 1373.0, 2841.0, 5507.0),
)
FIRST_DEREGISTER = (
    *(4.5, 4.9, 7.5, 7.2, 9.8, 15.6, 26.5),
    *(49.2, 101.0, 206.0, 409.0, 815.0, 1650.0),
)


# "On the Design and Semantics of User-Space Communication Subsystems", on two Pentium II at 350 MHz
# with Myrinet on a PCI bus of 133 MB/s; the curves of figures 2 and 3 cannot be read.

SEMANTICS_MACHINE = (
    "two Pentium II at 350 MHz, BX chipset (ASUS P2B-LS), 128 MB, Myrinet, a PCI bus of 133 MB/s, "
    "Linux 2.0.35"
)
# Figure 2: most MB/s of a sender alone, and figure 3: of a receiver alone.
SEND_PEAKS = {
    "pio": 50.0,
    "copy-dma": 91.0,
    "direct-dma": 92.0,
    "v2p-dma": 87.0,
    "pex-dma": 87.0,
}
RECEIVE_PEAKS = {"copy-dma": 99.0, "direct-dma": 99.0, "v2p-dma": 91.0, "pex-dma": 99.0}
# Section 4: bytes up to which PIO is faster than DMA.
PIO_AHEAD = 1024

# "The Optimistic Direct Access File System", on a Pentium III at 800 MHz with FreeBSD 4.3, and with
# an i960 at 66 MHz on the adapter: microseconds of section VI-B.
EXCEPTION = 15.0
# Of an RPC that reads 64 bytes from the cache, which the client needs after an exception.
INLINE_RPC = 70.0


def accesses(method: str) -> tuple[float, float]:
    """Returns the stores and loads of one initiation by a process."""
    return _ACCESSES.get(method, (1.0, 1.0))
