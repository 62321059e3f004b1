// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two accesses of [`super::extended_shadow`], restarted when the thread was interrupted
//! (§2.7).
//!
//! The paper's machine has uninterruptible routines that an administrator installs and any program
//! may call. Linux has restartable sequences instead, which are *cooperative*: programs that use
//! them do not disturb each other, but programs that do not use them are not stopped.

use crate::method::refusal::Refusal;
use crate::mmio::{Register, RegisterAddress, RestartableThread};

/// Limit of interruptions in a row.
const MOST: u32 = 1000;

/// Starts a transfer. Returns the ticket or a negated status, and the number of interruptions.
///
/// # Errors
///
/// [`Refusal::Contended`] after [`MOST`] interruptions in a row.
#[inline]
pub(crate) fn initiate(
    thread: RestartableThread,
    destination: RegisterAddress<'_>,
    source: RegisterAddress<'_>,
    size_word: u64,
) -> Result<(i64, u32), Refusal> {
    destination.begin();
    for interrupted in 0..MOST {
        if let Ok(answer) = thread.store_load(destination, source, size_word) {
            return Ok((answer, interrupted));
        }
    }
    Err(Refusal::Contended)
}
