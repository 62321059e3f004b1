// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tracer counts what happens in the section, all of it, and nothing else.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use uldma_papers::tracer::{tracer_main, Tracer};

fn count(section: impl FnOnce()) -> u64 {
    let tracer = Tracer::attach().unwrap();
    // Before and after the section, calls do not count.
    let _ = std::fs::metadata("/");
    let ((), count) = tracer.count(section);
    let _ = std::fs::metadata("/");
    count.unwrap().total
}

fn main() {
    tracer_main();
    match Tracer::attach() {
        Ok(tracer) => drop(tracer),
        // The policy of a container may forbid tracing.
        Err(error) => {
            println!("test sections_are_counted ... ignored, {error}");
            return;
        }
    }
    // A tracer that was dropped has detached.
    let mut sum = 0u64;
    assert_eq!(count(|| sum = black_box((0..1000).sum())), 0);
    assert_eq!(sum, 499_500);
    let three = || {
        for _ in 0..3 {
            black_box(std::os::unix::process::parent_id());
        }
    };
    assert_eq!(count(three), 3);
    let calls = uldma::measure::calls();
    let error = uldma::Device::open_path("/dev/null").unwrap_err();
    let own = uldma::measure::calls() - calls;
    assert!(error.errno().is_some());
    // The library's own count lacks only the call that it does not make itself: closing the file.
    let outside = count(|| drop(black_box(uldma::Device::open_path("/dev/null"))));
    assert!(
        outside >= own && outside <= own + 2,
        "{own} by own count, {outside} seen"
    );
    println!("sections of 0, 3 and {outside} system calls");
    println!("test sections_are_counted ... ok");
}
