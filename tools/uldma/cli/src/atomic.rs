// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma atomic`: changes a word of the peer's memory atomically.

use serde::Serialize;
use uldma::method::Refusal;
use uldma::transfer::Order;
use uldma::{Access, ContextOptions, Method, Spin};

use crate::args::{Atomic, Common};
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    name: String,
    offset: u64,
    /// The word's old value.
    before: u64,
    /// True if the word has changed.
    changed: bool,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Atomic) -> Result<()> {
    let device = common.open()?;
    let context = device.context_with(Method::Queue, ContextOptions::default())?;
    let import = device.import_from(
        args.node.peer(),
        args.name,
        Access::ReadWrite,
        common.timeout,
    )?;
    let shadow = context.shadow(&import)?;
    let word = shadow.at(args.offset)?;
    let Some(queue) = context.queue() else {
        return Err(Failure::new(Kind::Failed, "the context has no queue"));
    };
    let pushed = match (args.swap, args.expect) {
        (Some(new), Some(expected)) => queue.compare_swap(word, expected, new, Order::NONE),
        _ => queue.fetch_add(word, args.add.unwrap_or(0), Order::NONE),
    };
    let ticket = pushed.map_err(|refusal: Refusal| uldma::Error::from(refusal))?;
    queue.submit();
    let before = context.wait(ticket, Spin::Adaptive, common.timeout)?.bytes;
    let changed = match (args.expect, args.swap) {
        (Some(expected), Some(new)) => before == expected && before != new,
        _ => args.add.is_some_and(|add| add != 0),
    };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        name: args.name.to_string(),
        offset: args.offset,
        before,
        changed,
    };
    output::print(common.json, &report, |report| {
        let changed = if report.changed { "" } else { ", and still is" };
        format!(
            "the word at byte {} of {} was {}{changed}",
            report.offset, report.name, report.before
        )
    })
}
