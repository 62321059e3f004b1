// SPDX-License-Identifier: MIT OR Apache-2.0

//! Progress on standard error: a bar on a terminal, or lines where the user wants them.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{Common, ProgressArgs};
use crate::failure::complain;

/// Smaller inputs end before a progress display can be read.
const WORTH_SHOWING: u64 = 8 << 20;
const WORTH_WAITING: Duration = Duration::from_secs(1);
/// Time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Style of the progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Hidden,
    /// A bar that is redrawn.
    Bar,
    /// Lines, for outputs that are not a terminal.
    Lines,
}

impl Style {
    /// Returns the style for the options. With --json, standard error is for programs.
    pub(crate) fn new(common: &Common, args: &ProgressArgs) -> Self {
        Self::choose(args.progress, common.json, std::io::stderr().is_terminal())
    }

    fn choose(asked: bool, json: bool, terminal: bool) -> Self {
        match (asked, json, terminal) {
            (true, _, false) => Self::Lines,
            (true, _, true) | (false, false, true) => Self::Bar,
            _ => Self::Hidden,
        }
    }
}

/// Bytes on their way.
#[derive(Debug)]
pub(crate) struct Progress {
    style: Style,
    what: &'static str,
    bar: ProgressBar,
    state: Mutex<ProgressState>,
}

#[derive(Debug, Default)]
struct ProgressState {
    /// Time of the first bytes.
    start: Option<Instant>,
    /// The bar is drawn.
    drawn: bool,
    /// Time of the last line, from the start.
    line: Duration,
}

impl ProgressState {
    /// Returns the time since the first bytes.
    fn time(&mut self) -> Duration {
        self.start.get_or_insert_with(Instant::now).elapsed()
    }
}

impl Progress {
    /// Creates a display, which shows nothing until the bytes are worth it.
    pub(crate) fn new(style: Style, what: &'static str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => "{prefix:>10} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}",
            None => "{prefix:>10} {bytes} {bytes_per_sec}",
        };
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self {
            style,
            what,
            bar: bar.with_prefix(what),
            state: Mutex::default(),
        }
    }

    /// Returns true if the total number of bytes is known.
    pub(crate) fn has_total(&self) -> bool {
        self.bar.length().is_some()
    }

    /// Adds a number of bytes.
    pub(crate) fn inc(&self, bytes: usize) {
        if self.style == Style::Hidden {
            return;
        }
        self.bar.inc(bytes as u64);
        let mut state = self.state();
        let time = state.time();
        let worth = self.bar.position() >= WORTH_SHOWING || time >= WORTH_WAITING;
        if self.style == Style::Bar && !state.drawn && worth {
            state.drawn = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.style == Style::Lines && time >= state.line + LINE_INTERVAL {
            state.line = time;
            self.line(time);
        }
    }

    /// Ends the display: removes the bar, or prints a last line with the total.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        if self.style == Style::Lines {
            let time = self.state().time();
            self.line(time);
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, time: Duration) {
        let text = words(self.what, self.bar.position(), self.bar.length(), time);
        complain(text);
    }
}

fn words(what: &str, bytes: u64, total: Option<u64>, time: Duration) -> String {
    let of = total.map_or_else(String::new, |total| format!(" of {total}"));
    let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
    format!("{what}: {bytes}{of} bytes, {}/s", HumanBytes(rate as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_nothing_unless_asked_for() {
        assert_eq!(Style::choose(false, false, false), Style::Hidden);
        assert_eq!(Style::choose(false, true, true), Style::Hidden);
        assert_eq!(Style::choose(false, false, true), Style::Bar);
        assert_eq!(Style::choose(true, true, true), Style::Bar);
        assert_eq!(Style::choose(true, true, false), Style::Lines);
    }

    #[test]
    fn what_is_short_is_not_drawn() {
        let progress = Progress::new(Style::Bar, "send", Some(100 << 20));
        progress.inc(1000);
        assert!(!progress.state().drawn);
        progress.inc(8 << 20);
        assert!(progress.state().drawn);
    }

    #[test]
    fn lines_have_what_there_is() {
        let second = Duration::from_secs(2);
        assert_eq!(
            words("send", 4096, Some(8192), second),
            "send: 4096 of 8192 bytes, 2.00 KiB/s"
        );
        assert_eq!(words("carry", 0, None, second), "carry: 0 bytes, 0 B/s");
    }
}
