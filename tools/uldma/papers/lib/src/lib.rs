// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the papers compare, beside the library: programs that only use the device need none of it.
//!
//! | to | use |
//! | --- | --- |
//! | lock memory under the names of the paper on PCI Communication | [`lmm`] |
//! | lock memory in the three ways of the paper on System V shared memory | [`registrar`] |
//! | prove that a section makes no system calls | [`tracer`] |

mod failure;
pub mod lmm;
pub mod registrar;
pub mod tracer;
