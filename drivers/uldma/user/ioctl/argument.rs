// SPDX-License-Identifier: GPL-2.0

//! The structures of the ioctls, in user memory.

use kernel::{
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

use crate::{
    kernel_ext::{
        plain::Plain,
        wait::{
            self,
            Deadline, //
        }, //
    },
    uapi::*, //
};

/// A structure of the user interface.
pub(super) trait Argument: FromBytes + IntoBytes + Immutable + Copy {
    /// Size as first published: the minimum that a caller may pass.
    const FIRST: usize;
}

macro_rules! arguments {
    ($($name:ident $(up to $field:ident)?),* $(,)?) => { $(
        impl Argument for $name {
            const FIRST: usize = arguments!(@first $name $($field)?);
        }
    )* };
    (@first $name:ident) => { size_of::<$name>() };
    (@first $name:ident $field:ident) => { core::mem::offset_of!($name, $field) };
}

arguments!(
    uldma_handle,
    uldma_query up to out_nodes,
    uldma_peer_query up to out_doorbell_ns,
    uldma_region_register up to limit_us,
    uldma_region_export,
    uldma_region_import up to peer,
    uldma_region_query,
    uldma_region_charge,
    uldma_region_blocks,
    uldma_region_window,
    uldma_lmm,
    uldma_context_create,
    uldma_context_stats,
    uldma_map_out,
    uldma_eventfd,
    uldma_dma,
    uldma_dma_wait,
    uldma_segment_create,
    uldma_segment_attach up to peer,
    uldma_conn_listen up to offer,
    uldma_conn_accept,
    uldma_conn_connect up to offer,
    uldma_conn_buffer,
    uldma_conn_range,
    uldma_conn_query up to out_offer,
    uldma_conn_stream,
    uldma_conn_ring,
    uldma_endpoint_create,
    uldma_endpoint_connect,
    uldma_endpoint_wait,
    uldma_msg_slots,
    uldma_msg_send,
    uldma_msg_recv,
    uldma_exchange_create,
    uldma_exchange_range,
    uldma_exchange_swap,
);

/// A structure of a call that waits for at most the time that it names.
pub(super) trait Timed: Argument {
    /// The place of that time.
    const AT: usize;

    /// Returns that time in nanoseconds.
    fn timeout_ns(&self) -> u64;
}

macro_rules! timed {
    ($($name:ident),* $(,)?) => { $(
        impl Timed for $name {
            const AT: usize = core::mem::offset_of!($name, timeout_ns);

            fn timeout_ns(&self) -> u64 {
                self.timeout_ns
            }
        }

        // Every caller has it.
        const _: () = assert!($name::AT + size_of::<u64>() <= $name::FIRST);
    )* };
}

timed!(
    uldma_region_import,
    uldma_dma_wait,
    uldma_segment_attach,
    uldma_conn_connect,
    uldma_conn_stream,
    uldma_endpoint_wait,
    uldma_msg_send,
    uldma_msg_recv,
);

/// A structure in user memory.
pub(super) struct User {
    ptr: UserPtr,
}

impl User {
    /// Names the structure at an address that the caller has passed.
    pub(super) fn at(addr: usize) -> Self {
        Self {
            ptr: UserPtr::from_addr(addr),
        }
    }

    /// Reads a structure whose first field is its size, as the header defines.
    pub(super) fn read<T: Argument>(&self) -> Result<T> {
        // The usual caller has the structure as it is, which one copy finds out. That fails if a
        // caller has less memory than that, and another error may be due then.
        let mut reader = UserSlice::new(self.ptr, size_of::<T>()).reader();
        if let Ok(Plain(value)) = reader.read::<Plain<T>>() {
            if declared_size(&value) == Ok(size_of::<T>()) {
                return Ok(value);
            }
        }
        self.read_other::<T>()
    }

    /// Reads a structure of an older or newer caller, or a wrong one.
    fn read_other<T: Argument>(&self) -> Result<T> {
        let mut reader = UserSlice::new(self.ptr, size_of::<u32>()).reader();
        let size = usize::try_from(reader.read::<u32>()?)?;
        if size < T::FIRST {
            return Err(EINVAL);
        }
        if size > kernel::page::PAGE_SIZE {
            return Err(E2BIG);
        }
        let mut reader = UserSlice::new(self.ptr, size).reader();
        // Fields that an older caller does not have are zero.
        let mut value = T::new_zeroed();
        let known = size.min(size_of::<T>());
        let bytes = value.as_mut_bytes().get_mut(..known).ok_or(EINVAL)?;
        reader.read_slice(bytes)?;
        while !reader.is_empty() {
            if reader.read::<u8>()? != 0 {
                return Err(E2BIG);
            }
        }
        Ok(value)
    }

    /// Writes the structure back, up to the size that the caller has.
    pub(super) fn write<T: Argument>(&self, value: &T) -> Result {
        let bytes = value.as_bytes();
        let known = declared_size(value)?.min(bytes.len());
        let mut writer = UserSlice::new(self.ptr, known).writer();
        // Of a size that the compiler knows, the kernel need not find the object on the stack.
        if known == bytes.len() {
            return writer.write(Plain::of(value));
        }
        writer.write_slice(bytes.get(..known).ok_or(EINVAL)?)
    }

    /// Calls `f`, which waits until its deadline. If a signal ends that, writes what is left of the
    /// time to the structure: the kernel makes the call anew if the process was only stopped, and
    /// must not give it the whole time again.
    ///
    /// A restart block would have to name a function of this module, which can be gone by then.
    pub(super) fn wait<T: Timed, R>(
        &self,
        arg: &T,
        f: impl FnOnce(Deadline) -> Result<R>,
    ) -> Result<R> {
        let deadline = Deadline::after(arg.timeout_ns());
        f(deadline).inspect_err(|err| {
            if wait::is_interrupted(*err) {
                let place = self.ptr.wrapping_byte_add(T::AT);
                let mut writer = UserSlice::new(place, size_of::<u64>()).writer();
                // A caller whose structure cannot be written has the whole time again.
                let _ = writer.write(&deadline.left());
            }
        })
    }
}

/// Returns the size that a structure says it has.
fn declared_size<T: Argument>(value: &T) -> Result<usize> {
    let size = value.as_bytes().first_chunk().ok_or(EINVAL)?;
    Ok(usize::try_from(u32::from_ne_bytes(*size))?)
}
