# SPDX-License-Identifier: GPL-2.0
"""What /dev/kvm of this machine can, asked by a guest of a few instructions.

Where the processor does not execute a guest's kernel itself, KVM may yet be there and emulate its
instructions one by one, as far as it knows them; a stock kernel has more. So the guest has 64 bits
and full rights, as a kernel has, and executes what processors know and KVM's emulator does not. All
of it takes milliseconds.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path

PYTHON = sys.executable
DEVICE = Path("/dev/kvm")
CPUINFO = Path("/proc/cpuinfo")
# A deadline, for a KVM that hangs; whether it can is known in milliseconds.
TIMEOUT = 20.0

API_VERSION = 12
GET_API_VERSION = 0xAE00
CREATE_VM = 0xAE01
GET_VCPU_MMAP_SIZE = 0xAE04
GET_SUPPORTED_CPUID = 0xC008AE05
CREATE_VCPU = 0xAE41
SET_USER_MEMORY_REGION = 0x4020AE46
RUN = 0xAE80
SET_REGS = 0x4090AE82
GET_SREGS = 0x8138AE83
SET_SREGS = 0x4138AE84
SET_CPUID2 = 0x4008AE90

# struct kvm_run: why the guest stopped, and by which port.
EXIT_REASON = 8
EXIT_PORT = 34
EXIT_IO = 2
EXIT_INTERNAL_ERROR = 17

# struct kvm_cpuid2
CPUID_ENTRIES = 256
CPUID_HEAD = struct.Struct("<II")
CPUID_ENTRY_SIZE = 40

# struct kvm_sregs: eight segments, two tables, then the control registers.
SREGS_SIZE = 312
SEGMENT = struct.Struct("<QIH10B")
DATA_SEGMENTS = range(1, 6)
CONTROL = struct.Struct("<QQQQQQ")
CONTROL_OFFSET = 224
CR0 = 0x80050033  # paging, protection
CR4 = 0x20  # page tables of 64 bits
EFER = 0x500  # 64 bits
REGS_SIZE = 144
RIP, RFLAGS = 16 * 8, 17 * 8

MEMORY = 0x10000
CODE, TABLES = 0x1000, (0x2000, 0x3000, 0x4000)
PRESENT, LARGE = 0x3, 0x80
PORT = 0x10
# shlx %edx,%r8d,%r8d: of BMI2, so that kernels that were built for every processor execute it, too,
# where they unpack themselves.
SHLX = bytes.fromhex("c4 42 69 f7 c0")
# out %al,$PORT
STOP = bytes((0xE6, PORT))


def _segment(selector: int, kind: int, code: int) -> bytes:
    """A segment of all memory: of code with 64 bits, or of data."""
    return SEGMENT.pack(0, 0xFFFFFFFF, selector, kind, 1, 0, 1 - code, 1, code, 1, 0, 0, 0)


def _set_cpuid(kvm: int, vcpu: int) -> None:
    """Give the guest all features that KVM has."""
    table = bytearray(CPUID_HEAD.size + CPUID_ENTRIES * CPUID_ENTRY_SIZE)
    CPUID_HEAD.pack_into(table, 0, CPUID_ENTRIES, 0)
    fcntl.ioctl(kvm, GET_SUPPORTED_CPUID, table)
    count, _ = CPUID_HEAD.unpack_from(table)
    fcntl.ioctl(vcpu, SET_CPUID2, table[: CPUID_HEAD.size + count * CPUID_ENTRY_SIZE])


def _code() -> bytes:
    """What the guest executes: what the processor knows and the emulator does not, then the end."""
    return (SHLX if "bmi2" in CPUINFO.read_text().split() else b"") + STOP


def _enter_64_bits(vcpu: int) -> None:
    """Let the guest begin where a kernel is when it has left the firmware's modes behind."""
    state = bytearray(SREGS_SIZE)
    fcntl.ioctl(vcpu, GET_SREGS, state)
    state[0 : SEGMENT.size] = _segment(0x10, 11, 1)
    for number in DATA_SEGMENTS:
        state[SEGMENT.size * number : SEGMENT.size * (number + 1)] = _segment(0x18, 3, 0)
    CONTROL.pack_into(state, CONTROL_OFFSET, CR0, 0, TABLES[0], CR4, 0, EFER)
    fcntl.ioctl(vcpu, SET_SREGS, state)
    registers = bytearray(REGS_SIZE)
    struct.pack_into("<Q", registers, RIP, CODE)
    struct.pack_into("<Q", registers, RFLAGS, 2)
    fcntl.ioctl(vcpu, SET_REGS, registers)


def unusable_reason() -> str:
    """Why KVM cannot run a stock kernel; empty if nothing is known against it."""
    kvm = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    if (version := fcntl.ioctl(kvm, GET_API_VERSION, 0)) != API_VERSION:
        return f"its interface is version {version} and not {API_VERSION}"
    machine = fcntl.ioctl(kvm, CREATE_VM, 0)
    vcpu = fcntl.ioctl(machine, CREATE_VCPU, 0)

    memory = mmap.mmap(-1, MEMORY)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    region = struct.pack("<IIQQQ", 0, 0, 0, MEMORY, address)
    fcntl.ioctl(machine, SET_USER_MEMORY_REGION, region)
    entries = [TABLES[1] | PRESENT, TABLES[2] | PRESENT, LARGE | PRESENT]
    for table, entry in zip(TABLES, entries, strict=True):
        struct.pack_into("<Q", memory, table, entry)
    code = _code()
    memory[CODE : CODE + len(code)] = code
    _set_cpuid(kvm, vcpu)
    _enter_64_bits(vcpu)

    shared = mmap.mmap(vcpu, fcntl.ioctl(kvm, GET_VCPU_MMAP_SIZE, 0))
    fcntl.ioctl(vcpu, RUN, 0)
    [reason] = struct.unpack_from("<I", shared, EXIT_REASON)
    if reason == EXIT_INTERNAL_ERROR:
        return "it emulates kernels instead of running them, and not every instruction"
    if reason != EXIT_IO or struct.unpack_from("<H", shared, EXIT_PORT) != (PORT,):
        return f"a guest of two instructions ended for reason {reason}"
    return ""


def ask() -> str:
    """The same, by a process of its own, since it could hang."""
    command = [PYTHON, "-m", "nodes.kvm"]
    top = Path(__file__).parent.parent
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=top
        )
    except subprocess.TimeoutExpired:
        return f"a guest of two instructions did not end within {TIMEOUT:.0f} s"
    if done.returncode:
        return f"the kernel's answer was a signal or an error: {done.stderr.strip()[-200:]}"
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        print(unusable_reason())
    except OSError as error:
        print(f"the kernel refuses it: {error}")
