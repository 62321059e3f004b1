// SPDX-License-Identifier: MIT OR Apache-2.0

//! A library to preload: connect() and listen() of unmodified programs, over uldma.
//!
//! `uldma run` holds the connections to peers, and the program has a TCP connection to it by the
//! loopback interface. So only two calls are replaced: connect() asks `uldma run` for the connection
//! to the peer first, and then connects to it; listen() lets it listen for peers. Everything else
//! is the kernel's, and works as it does for any socket. `Documentation/uldma/sockets.rst` has the design.
//!
//! This is the only file with `unsafe`: the arguments of the two calls are those of C.

mod broker;
mod call;
#[allow(dead_code, reason = "`uldma run` uses the other half")]
mod protocol;

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void, sockaddr, socklen_t};
use nix::sys::socket::{getsockopt, sockopt, SockType, SockaddrLike, SockaddrStorage};

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;

/// The calls that these replace.
struct Next {
    connect: Connect,
    listen: Listen,
}

impl Next {
    /// Finds them, once.
    fn get() -> Option<&'static Self> {
        static NEXT: OnceLock<Option<Next>> = OnceLock::new();
        let find = || {
            let symbol = |name: &std::ffi::CStr| {
                // SAFETY: the name is a string of C; the linker only searches for it.
                let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
                (!found.is_null()).then_some(found)
            };
            let (connect, listen) = (symbol(c"connect")?, symbol(c"listen")?);
            // SAFETY: the symbols behind ours of these names are those of the C library, or of
            // another library that replaces them with the same types.
            let next = unsafe {
                Next {
                    connect: std::mem::transmute::<*mut c_void, Connect>(connect),
                    listen: std::mem::transmute::<*mut c_void, Listen>(listen),
                }
            };
            Some(next)
        };
        NEXT.get_or_init(find).as_ref()
    }
}

/// Returns true for a socket whose type is a stream; its family decides the rest.
fn is_stream(socket: RawFd) -> bool {
    if socket < 0 {
        return false;
    }
    // SAFETY: the number is only used until this returns. If no file has it, the call fails; the
    // caller has to keep it open, as for any call.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    getsockopt(&socket, sockopt::SockType) == Ok(SockType::Stream)
}

fn fail(errno: Errno) -> c_int {
    errno.set();
    -1
}

/// Replaces connect(2).
///
/// # Safety
///
/// That of connect(2): `address` has `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn connect(
    socket: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    let Some(next) = Next::get() else {
        return fail(Errno::ENOSYS);
    };
    // Reading the family of an address that is shorter, or null, is left to the kernel.
    let is_whole = !address.is_null() && length as usize >= size_of::<libc::sockaddr_in>();
    let to = (is_whole && is_stream(socket)).then(|| {
        // SAFETY: the caller promises that `address` has `length` bytes, which are at least those
        // of the shorter address of IP; a longer family is checked against `length`.
        let storage = unsafe { SockaddrStorage::from_raw(address, Some(length)) };
        storage.as_ref().and_then(call::from_storage)
    });
    let instead = match to.flatten() {
        Some(to) => call::connect(socket, to),
        None => Ok(None),
    };
    match instead {
        // SAFETY: the caller's promise.
        Ok(None) => unsafe { (next.connect)(socket, address, length) },
        Ok(Some(to)) => {
            let native = call::to_native(to);
            // SAFETY: `native` lives until the call returns, and has the length that it says.
            unsafe { (next.connect)(socket, native.as_ptr(), native.len()) }
        }
        Err(errno) => fail(errno),
    }
}

/// Replaces listen(2).
///
/// # Safety
///
/// None is needed: the arguments are numbers.
#[no_mangle]
pub unsafe extern "C" fn listen(socket: c_int, backlog: c_int) -> c_int {
    let Some(next) = Next::get() else {
        return fail(Errno::ENOSYS);
    };
    if is_stream(socket) {
        if let Err(errno) = call::listen(socket) {
            return fail(errno);
        }
    }
    // SAFETY: the arguments are numbers, which the kernel checks.
    unsafe { (next.listen)(socket, backlog) }
}
