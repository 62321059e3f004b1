// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system calls that this crate makes, as safe functions: ioctl and a few small ones here, those
//! that map memory in the modules below.
//!
//! Every call is counted per thread ([`calls`]), so that programs can report the cost of an
//! operation.

mod mapping;
pub(crate) mod memlock;
mod shm;
pub mod uapi;

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::libc;

pub(crate) use mapping::Mapping;
pub(crate) use shm::ShmId;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// System calls that this crate has made on this thread so far.
///
/// This is the crate's own count. A tracer, as that of `tools/uldma/papers`, counts all calls.
pub fn calls() -> u64 {
    CALLS.get()
}

/// Counts one more system call of this thread, which a caller of this crate makes itself.
pub fn count_call() {
    CALLS.set(CALLS.get() + 1);
}

/// Enters and leaves the kernel through the driver and does nothing there.
pub(crate) fn nop(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    count_call();
    // SAFETY: the command takes no argument, so the kernel touches no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), uapi::request(uapi::ULDMA_CMD_NOP)) };
    Errno::result(result).map(drop)
}

macro_rules! ioctls {
    ($($(#[$doc:meta])* $name:ident($command:ident, $argument:ident);)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(
            fd: BorrowedFd<'_>,
            mut argument: uapi::$argument,
        ) -> Result<uapi::$argument, Errno> {
            argument.size = size_of::<uapi::$argument>() as u32;
            count_call();
            // SAFETY: `argument` is the structure that the command is defined with and contains its
            // own size, so the kernel stays within it; it lives until the call returns.
            let result = unsafe {
                libc::ioctl(
                    fd.as_raw_fd(),
                    uapi::request(uapi::$command),
                    std::ptr::from_mut(&mut argument),
                )
            };
            Errno::result(result).map(|_| argument)
        }
    )*};
}

ioctls! {
    /// Queries the device.
    query(ULDMA_CMD_QUERY, uldma_query);
    /// Pins memory and names it.
    region_register(ULDMA_CMD_REGION_REGISTER, uldma_region_register);
    /// Ends a region or an import.
    region_unregister(ULDMA_CMD_REGION_UNREGISTER, uldma_handle);
    /// Offers a region to the peer.
    region_export(ULDMA_CMD_REGION_EXPORT, uldma_region_export);
    /// Ends an export.
    region_unexport(ULDMA_CMD_REGION_UNEXPORT, uldma_handle);
    /// Gains access to a region of the peer.
    region_import(ULDMA_CMD_REGION_IMPORT, uldma_region_import);
    /// Queries a region.
    region_query(ULDMA_CMD_REGION_QUERY, uldma_region_query);
    /// Queries the charge of a registration.
    region_charge(ULDMA_CMD_REGION_CHARGE, uldma_region_charge);
    /// Ends all regions and imports of the open file.
    region_cleanup(ULDMA_CMD_REGION_CLEANUP, uldma_handle);
    /// Creates a region in this node's section of the window.
    region_window(ULDMA_CMD_REGION_WINDOW, uldma_region_window);
    /// Queries the locked memory of the open file's address space, and switches the pin cache.
    lmm(ULDMA_CMD_LMM, uldma_lmm);
    /// Allocates a register context.
    context_create(ULDMA_CMD_CONTEXT_CREATE, uldma_context_create);
    /// Frees the register context.
    context_destroy(ULDMA_CMD_CONTEXT_DESTROY, uldma_handle);
    /// The device's counters of this open file's context.
    context_stats(ULDMA_CMD_CONTEXT_STATS, uldma_context_stats);
    /// Maps pages out.
    context_map_out(ULDMA_CMD_CONTEXT_MAP_OUT, uldma_map_out);
    /// Sets the eventfd that pending events signal.
    eventfd(ULDMA_CMD_EVENTFD, uldma_eventfd);
    /// Starts a transfer through the kernel.
    dma(ULDMA_CMD_DMA, uldma_dma);
    /// Sleeps until a transfer has ended.
    dma_wait(ULDMA_CMD_DMA_WAIT, uldma_dma_wait);
    /// Allocates a part of this node's inbound window.
    segment_create(ULDMA_CMD_SEGMENT_CREATE, uldma_segment_create);
    /// Reaches a segment of the peer.
    segment_attach(ULDMA_CMD_SEGMENT_ATTACH, uldma_segment_attach);
    /// Ends a segment or an attachment.
    segment_destroy(ULDMA_CMD_SEGMENT_DESTROY, uldma_handle);
    /// Wakes the other side of a segment.
    doorbell(ULDMA_CMD_DOORBELL, uldma_handle);
    /// The link to one peer.
    peer_query(ULDMA_CMD_PEER_QUERY, uldma_peer_query);
    /// Waits for peers to connect.
    conn_listen(ULDMA_CMD_CONN_LISTEN, uldma_conn_listen);
    /// Accepts a connection that waits at a listener.
    conn_accept(ULDMA_CMD_CONN_ACCEPT, uldma_conn_accept);
    /// Connects to a listener of a peer.
    conn_connect(ULDMA_CMD_CONN_CONNECT, uldma_conn_connect);
    /// Ends the connection, or stops to listen.
    conn_disconnect(ULDMA_CMD_CONN_DISCONNECT, uldma_handle);
    /// Posts memory to receive into.
    conn_prepost(ULDMA_CMD_CONN_PREPOST, uldma_conn_buffer);
    /// Posts memory to send.
    conn_send(ULDMA_CMD_CONN_SEND, uldma_conn_buffer);
    /// Gets received memory back.
    conn_recv(ULDMA_CMD_CONN_RECV, uldma_conn_range);
    /// Gets sent memory back.
    conn_recycle(ULDMA_CMD_CONN_RECYCLE, uldma_conn_range);
    /// Moves the data of a connection by endpoints, and waits.
    conn_stream(ULDMA_CMD_CONN_STREAM, uldma_conn_stream);
    /// Maps a ring of the open file's connection.
    conn_ring(ULDMA_CMD_CONN_RING, uldma_conn_ring);
    /// Creates an endpoint of message connections.
    endpoint_create(ULDMA_CMD_ENDPOINT_CREATE, uldma_endpoint_create);
    /// Connects an endpoint to that of a peer.
    endpoint_connect(ULDMA_CMD_ENDPOINT_CONNECT, uldma_endpoint_connect);
    /// Ends an endpoint.
    endpoint_destroy(ULDMA_CMD_ENDPOINT_DESTROY, uldma_handle);
    /// Sleeps until messages have arrived.
    endpoint_wait(ULDMA_CMD_ENDPOINT_WAIT, uldma_endpoint_wait);
    /// Queries the open file's connection.
    conn_query(ULDMA_CMD_CONN_QUERY, uldma_conn_query);
    /// Creates message slots of the driver.
    msg_slots(ULDMA_CMD_MSG_SLOTS, uldma_msg_slots);
    /// Copies a message to a slot of the driver, and sends it.
    msg_send(ULDMA_CMD_MSG_SEND, uldma_msg_send);
    /// Copies a message out of a slot of the driver.
    msg_recv(ULDMA_CMD_MSG_RECV, uldma_msg_recv);
    /// Creates exchangeable memory.
    exchange_create(ULDMA_CMD_EXCHANGE_CREATE, uldma_exchange_create);
    /// Begins a send from exchangeable memory.
    exchange_protect(ULDMA_CMD_EXCHANGE_PROTECT, uldma_exchange_range);
    /// Ends a send from exchangeable memory.
    exchange_release(ULDMA_CMD_EXCHANGE_RELEASE, uldma_exchange_range);
    /// Exchanges pages of exchangeable memory.
    exchange_swap(ULDMA_CMD_EXCHANGE_SWAP, uldma_exchange_swap);
}

/// The bus addresses of a region, as many as `blocks` has room for.
pub(crate) fn region_blocks(
    fd: BorrowedFd<'_>,
    mut argument: uapi::uldma_region_blocks,
    blocks: &mut [uapi::uldma_block],
) -> Result<uapi::uldma_region_blocks, Errno> {
    argument.size = size_of::<uapi::uldma_region_blocks>() as u32;
    argument.capacity = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    argument.blocks = blocks.as_mut_ptr() as u64;
    count_call();
    // SAFETY: as for the other commands; and the kernel writes at most `capacity` blocks to
    // `blocks`, which has as many and is borrowed exclusively.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            uapi::request(uapi::ULDMA_CMD_REGION_BLOCKS),
            std::ptr::from_mut(&mut argument),
        )
    };
    Errno::result(result).map(|_| argument)
}

/// Has calls on the file wait, or not.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno> {
    count_call();
    let mut flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    flags.set(OFlag::O_NONBLOCK, nonblocking);
    count_call();
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(drop)
}

/// An argument for the commands that take a handle only.
pub(crate) fn handle(handle: u32) -> uapi::uldma_handle {
    uapi::uldma_handle { size: 0, handle }
}

/// Returns an unguessable number, never zero.
pub(crate) fn random() -> Result<u64, Errno> {
    loop {
        let mut bytes = [0u8; 8];
        count_call();
        // SAFETY: the pointer and the length are those of the buffer.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if Errno::result(got)? == 8 && bytes != [0; 8] {
            return Ok(u64::from_ne_bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }

    #[test]
    fn calls_are_counted() {
        let before = calls();
        drop(Mapping::anonymous(4096).unwrap());
        assert_eq!(calls() - before, 3);
    }
}
