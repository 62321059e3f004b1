// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation methods on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use uldma::Method;

/// Describes a method in a few words; none if it starts no transfers.
fn describe(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::Kernel => "A system call",
        Method::Shrimp1 => "One load from a page that is mapped out to another one",
        Method::Shrimp2 => "A store and a load, of any processes (not secure)",
        Method::Shrimp2Abort => "A store and a load, cleared at each context switch",
        Method::Flash => "A store and a load, where the driver reports the running context",
        Method::FlashSingle => "As flash, for one processor only (not secure)",
        Method::Pal => "A store and a load, restarted when interrupted (not secure)",
        Method::Key => "Three stores and a load, with a secret key",
        Method::ExtendedShadow => "A store and a load at addresses that name the process",
        Method::ExtendedShadowShared => "As extended-shadow, with one set of registers for all",
        Method::Repeated3 => "A load, a store, a load (not secure)",
        Method::Repeated4 => "A store, a load, a store, a load (not secure)",
        Method::Repeated5 => "As repeated-4, and one more load",
        Method::SingleStore => "One store",
        Method::Queue => "A descriptor in memory",
        _ => return None,
    })
}

/// Returns a parser for the names of methods that start transfers.
pub(crate) fn parser() -> impl TypedValueParser<Value = Method> {
    let values = Method::all().filter_map(|method| {
        let help = describe(method)?;
        Some(PossibleValue::new(method.name()).help(help))
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Method>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_start_transfers_are_there() {
        let missing: Vec<_> = Method::all()
            .filter(|&method| describe(method).is_none())
            .collect();
        assert_eq!(missing, [Method::FetchAdd]);
    }
}
