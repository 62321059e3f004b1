// SPDX-License-Identifier: GPL-2.0

//! The user interface, generated from `include/uapi/linux/uldma.h` when the module is built.

#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    unreachable_pub,
    clippy::all
)]
mod generated {
    use zerocopy_derive::{
        FromBytes,
        Immutable,
        IntoBytes,
        KnownLayout, //
    };

    include!(env!("ULDMA_UAPI"));
}

pub(crate) use generated::*;
