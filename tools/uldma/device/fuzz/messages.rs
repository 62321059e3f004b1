// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client that sends anything: commands, sizes, files, in any order, and leaves at any time.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::EventfdFlags;
use uldma_device::layout::{reg, BAR_CONTROL, BAR_SHADOW, BAR_WINDOW, ID_MAGIC};
use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;

use crate::common::raw::{Raw, DMA_MAP, DMA_UNMAP, REGION_READ, REGION_WRITE, SET_IRQS, VERSION};
use crate::common::{memfd, BASE, PAGE};
use crate::input::Input;

const HEADER: usize = 16;
/// Timeout of replies that this client does not need.
const GLANCE: Duration = Duration::from_millis(1);

fn file(input: &mut Input<'_>) -> File {
    match input.byte() % 4 {
        0 => File::open("/dev/null").unwrap(),
        1 => {
            let flags = EventfdFlags::CLOEXEC;
            File::from(rustix::event::eventfd(0, flags).unwrap())
        }
        _ => memfd(PAGE),
    }
}

/// Returns a body of the command's size, with random contents.
fn body(input: &mut Input<'_>, command: u16) -> Vec<u8> {
    let known = [BASE, PAGE, 0, 2, (1 << 5) | (1 << 2)];
    let words = |input: &mut Input<'_>, count: usize| {
        let words = (0..count).flat_map(|_| (input.number(&known) as u32).to_le_bytes());
        words.collect::<Vec<_>>()
    };
    match command {
        VERSION => [&input.word().to_le_bytes()[..4], b"{}\0"].concat(),
        DMA_MAP => words(input, 8),
        DMA_UNMAP => words(input, 6),
        SET_IRQS => words(input, 5),
        REGION_READ | REGION_WRITE => {
            let regions = [
                BAR_CONTROL,
                BAR_SHADOW,
                BAR_WINDOW,
                VFIO_PCI_CONFIG_REGION_INDEX,
                1,
                9,
            ];
            let region = input.one_of(&regions);
            let offset = input.number(&[0, 4, reg::CONTROL.offset() as u64, 0x1000]);
            let count = input.number(&[4, 8, 4096]) as u32;
            let mut body = Raw::access(region, offset, count);
            body.extend(input.take(8));
            body
        }
        _ => words(input, 4),
    }
}

/// Sends the messages of an input, and checks that the other node works.
pub(crate) fn run(bytes: &[u8], hostile: &Path, honest: &Path) {
    let mut input = Input::new(bytes);
    let mut raw = Raw::connect(hostile);
    raw.stream.set_write_timeout(Some(GLANCE)).unwrap();
    while !input.is_empty() {
        let command = match input.byte() {
            200.. => input.word() as u16,
            byte => u16::from(byte % 16),
        };
        let mut body = body(&mut input, command);
        if input.byte() < 16 {
            body.truncate(input.below(body.len() + 1));
        }
        let size = match input.byte() {
            0..8 => input.number(&[16]) as u32,
            _ => (HEADER + body.len()) as u32,
        };
        let files: Vec<_> = (0..input.byte().saturating_sub(240) % 16)
            .map(|_| file(&mut input))
            .collect();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        raw.send(command, size, &body, &files);
    }
    // The client reads no replies, and disconnects.
    drop(raw);
    let mut raw = Raw::negotiate(honest);
    raw.write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &[0x06, 0x04])
        .unwrap();
    let id = raw.read(BAR_CONTROL, reg::ID.offset() as u64, 4).unwrap();
    assert_eq!(id, ID_MAGIC.to_le_bytes());
}
