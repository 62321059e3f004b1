// SPDX-License-Identifier: MIT OR Apache-2.0

//! What *User-Level DMA without Operating System Kernel Modification* measured, and what it counts:
//! DEC Alpha 3000/300 at 150 MHz, a board on a TurboChannel at 12.5 MHz.

use uldma::Method;

/// Table 1: microseconds for one initiation; none for what it did not measure.
pub(crate) fn time(method: Method) -> Option<f64> {
    match method {
        Method::Kernel => Some(25.1),
        Method::ExtendedShadow => Some(1.5),
        Method::Repeated5 => Some(4.6),
        Method::Key => Some(4.4),
        _ => None,
    }
}

/// Stores and loads of one initiation that a process makes: of the paper's methods the paper's, of
/// others what the user interface says.
pub(crate) fn accesses(method: Method) -> (f64, f64) {
    match method {
        Method::Kernel | Method::Queue => (0.0, 0.0),
        Method::Key => (3.0, 1.0),
        Method::Repeated3 => (1.0, 2.0),
        Method::Repeated4 => (2.0, 2.0),
        Method::Repeated5 => (2.0, 3.0),
        Method::SingleStore => (1.0, 0.0),
        Method::Shrimp1 | Method::FetchAdd => (0.0, 1.0),
        _ => (1.0, 1.0),
    }
}

/// Stores and loads that the kernel makes for one initiation (fig. 1).
pub(crate) const KERNEL_ACCESSES: (f64, f64) = (3.0, 1.0);

/// §4.4: errors, and returns of FAIL, each second of about 100 switches: the least and the most.
pub(crate) const ERRORS: (f64, f64) = (112.0, 115.0);
/// See [`ERRORS`].
pub(crate) const FAILS: (f64, f64) = (93.0, 97.0);

/// The same per 100 switches where the printed machine is simulated, and where one is that takes a
/// store that does not match for the first of a new attempt.
pub(crate) const SIMULATED: (f64, f64) = (111.5, 96.0);
/// See [`SIMULATED`].
pub(crate) const REARMING: (f64, f64) = (103.5, 48.0);
