// SPDX-License-Identifier: MIT OR Apache-2.0

//! A progress bar on standard error, where somebody can see it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Below this many bytes it is over before it can be read.
const WORTH_SHOWING: u64 = 8 << 20;

/// A bar over `bytes` bytes; hidden with `quiet`, without a terminal, and for what is short.
pub(crate) fn bar(bytes: u64, what: &'static str, quiet: bool) -> ProgressBar {
    let show = !quiet && bytes >= WORTH_SHOWING && std::io::stderr().is_terminal();
    let target = if show {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), target).with_prefix(what);
    let template = "{prefix:>10} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
