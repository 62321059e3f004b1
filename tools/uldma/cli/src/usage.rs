// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports wrong command lines, and prints help.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::failure::{Failure, Kind};
use crate::standard;

/// Prints help or the version if the user requested it, and a usage error otherwise.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && json_asked_for() {
        return failure(&error.render().to_string()).report(true);
    }
    if error.use_stderr() {
        // Standard error may be closed; the exit code reports the error anyway.
        let _ = error.print();
        return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    match help(error) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::output(&error).report(json_asked_for()),
    }
}

/// Prints help or the version.
fn help(error: &clap::Error) -> io::Result<()> {
    let text = error.render();
    let plain = !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let text = match plain {
        true => text.to_string(),
        false => text.ansi().to_string(),
    };
    standard::output()?.write_all(text.as_bytes())
}

/// Returns true if the wrong command line has `--json` among its options.
fn json_asked_for() -> bool {
    std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json")
}

/// Parses clap's text: paragraphs, of which the first is the error, the last refers to help, and
/// one in between begins with "Usage:".
fn failure(text: &str) -> Failure {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.trim().split("\n\n");
    let first = one_line(paragraphs.next().unwrap_or_default());
    Failure {
        hint: paragraphs
            .map(one_line)
            .find(|paragraph| paragraph.starts_with("Usage:")),
        ..Failure::new(Kind::Usage, first.strip_prefix("error: ").unwrap_or(&first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_and_the_usage_are_told() {
        let text =
            "error: these were not provided:\n  <PORT>\n\n  tip: a tip\n\nUsage: uldma listen \
                    <PORT>\n\nFor more information, try '--help'.\n";
        let failure = failure(text);
        assert_eq!(failure.message, "these were not provided: <PORT>");
        assert_eq!(failure.hint.unwrap(), "Usage: uldma listen <PORT>");
    }
}
