// SPDX-License-Identifier: GPL-2.0

//! Error codes that `kernel::error::code` lacks; functions, as [`Error`] cannot be made in a
//! constant outside of the `kernel` crate.

use kernel::{
    bindings,
    error::Error,
    prelude::*, //
};

macro_rules! declare_err {
    ($($name:ident = $code:ident: $doc:literal,)*) => {
        $(
            #[doc = $doc]
            pub(crate) fn $name() -> Error {
                Error::from_errno(-(bindings::$code as c_int))
            }
        )*
    };
}

declare_err! {
    eaddrinuse = EADDRINUSE: "Address already in use.",
    econnrefused = ECONNREFUSED: "Connection refused.",
    econnreset = ECONNRESET: "Connection reset by peer.",
    edquot = EDQUOT: "Quota exceeded.",
    eisconn = EISCONN: "Transport endpoint is already connected.",
    emsgsize = EMSGSIZE: "Message too long.",
    enotconn = ENOTCONN: "Transport endpoint is not connected.",
    eopnotsupp = EOPNOTSUPP: "Operation not supported on transport endpoint.",
    eproto = EPROTO: "Protocol error.",
    eprotonosupport = EPROTONOSUPPORT: "Protocol not supported.",
    eprototype = EPROTOTYPE: "Protocol wrong type for socket.",
    eremoteio = EREMOTEIO: "Remote I/O error.",
    estale = ESTALE: "Stale file handle.",
}
