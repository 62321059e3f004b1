// SPDX-License-Identifier: MIT OR Apache-2.0

//! Command lines that are wrong, and those that ask for help.

use std::process::ExitCode;

use crate::failure::{Failure, Kind};

/// Prints help or the version where the user asked for it, and what is wrong otherwise.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && json_asked_for() {
        return failure(&error.render().to_string()).report(true);
    }
    // The streams may be closed: the exit code still tells.
    let _ = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Whether the command line, which is wrong, has `--json` among its options.
fn json_asked_for() -> bool {
    std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json")
}

/// The failure that clap's text tells: paragraphs, of which the first says what is wrong, the last
/// where help is, and one between them begins with "Usage:".
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
