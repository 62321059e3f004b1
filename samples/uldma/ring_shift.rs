// SPDX-License-Identifier: MIT OR Apache-2.0

//! A ring of processes: in each step, each sends its block to the next and receives the block of the
//! previous one, by a technique of choice. After as many steps as processes each has its own again.
//!
//! Run `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example ring_shift`, for each
//! rank, with `TECHNIQUE RANK COUNT NEXT`: NEXT is the node of the next rank; with `ULDMA_DEVICE` set
//! if the device is not `/dev/uldma0`.

use std::ops::DerefMut;
use std::time::Duration;
use uldma::{
    Access, Buffer, ConnectOptions, Device, MessageConnection, MessageListener, MessageOptions,
    SendTechnique,
};

const PORT: u32 = 830;
const BLOCK: usize = 48 * 1024;
const ROUNDS: u32 = 20;
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [technique, numbers @ ..] = arguments.as_slice() else {
        panic!("usage: ring_shift TECHNIQUE RANK COUNT NEXT");
    };
    let numbers: Vec<u32> = numbers.iter().flat_map(|number| number.parse()).collect();
    let &[rank, count, next] = numbers.as_slice() else {
        panic!("usage: ring_shift TECHNIQUE RANK COUNT NEXT");
    };
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    // This one is the receiver's alone.
    let sending = match technique.as_str() {
        "redirect" => SendTechnique::CopyDma,
        other => other.parse()?,
    };
    let options = MessageOptions {
        sending,
        receiving: technique.parse()?,
        slot: BLOCK,
        ..Default::default()
    };
    let listener = MessageListener::new(&device, PORT + rank, 1, options)?;
    let connect = || {
        let wait = ConnectOptions {
            retry: true,
            timeout: TIMEOUT,
            ..Default::default()
        };
        let port = PORT + (rank + 1) % count;
        MessageConnection::connect(&device, next, port, options, wait)
    };
    // A connection needs both sides at the same time, so one has to begin.
    let (next, previous) = if rank == 0 {
        (connect()?, listener.accept(TIMEOUT)?.0)
    } else {
        let previous = listener.accept(TIMEOUT)?.0;
        (connect()?, previous)
    };
    let ring = Ring {
        rank,
        count,
        next,
        previous,
    };
    match sending {
        SendTechnique::PexDma => ring.shift(device.exchangeable(BLOCK)?)?,
        SendTechnique::V2pDma => ring.shift_posted()?,
        SendTechnique::DirectDma => ring.shift_registered()?,
        _ => ring.shift(vec![0; BLOCK])?,
    }
    println!("{ROUNDS} rounds of {count} shifts by {technique}");
    Ok(())
}

struct Ring {
    rank: u32,
    count: u32,
    next: MessageConnection,
    previous: MessageConnection,
}

impl Ring {
    /// Techniques with the semantics of sockets: the block may be overwritten when it is sent.
    fn shift(mut self, mut block: impl DerefMut<Target = [u8]>) -> uldma::Result<()> {
        fill(&mut block, self.rank);
        for step in 1..=ROUNDS * self.count {
            self.next.send(&block, TIMEOUT)?;
            self.previous.receive(&mut block, TIMEOUT)?;
            self.check(&block, step);
        }
        self.finish()
    }

    /// V2P_DMA: a buffer has to be posted before the block arrives, and one that is sent cannot be
    /// used until the device has read it.
    fn shift_posted(mut self) -> uldma::Result<()> {
        let mut block = Buffer::new(BLOCK)?;
        fill(&mut block, self.rank);
        self.previous.post(Buffer::new(BLOCK)?)?;
        for step in 1..=ROUNDS * self.count {
            let sent = self.next.send_buffer(block, TIMEOUT)?;
            (block, _) = self.previous.receive_buffer(TIMEOUT)?;
            self.check(&block, step);
            let free = self.next.reclaim(sent, TIMEOUT)?;
            self.previous.post(free)?;
        }
        self.finish()
    }

    /// DIRECT_DMA: the memory is registered once, and cannot be written until the device has read it.
    /// The block goes to a place in the next process's memory, which is not asked.
    fn shift_registered(mut self) -> uldma::Result<()> {
        let mut block = Buffer::new(BLOCK)?;
        fill(&mut block, self.rank);
        let region = self.next.device().register(block, Access::Read)?;
        let mut arrived = vec![0; BLOCK];
        // As many places as puts that the next process has not asked for, in turns.
        let places = self.next.outbound().map_or(1, |area| area.puts);
        for step in 1..=ROUNDS * self.count {
            let place = u64::from(step % places) * BLOCK as u64;
            let sent = self
                .next
                .start_put(&region, 0..BLOCK as u64, place, TIMEOUT)?;
            let put = self.previous.receive_put(TIMEOUT)?;
            if let Some(memory) = self.previous.inbound() {
                memory.read(put.offset, &mut arrived)?;
            }
            self.check(&arrived, step);
            self.next.wait_sent(&sent, TIMEOUT)?;
            region.write(0, &arrived)?;
        }
        self.finish()
    }

    /// Checks that a block is that of the process which is `step` places before this one.
    fn check(&self, block: &[u8], step: u32) {
        let owner = (self.rank + self.count * ROUNDS - step) % self.count;
        let mut expected = vec![0; BLOCK];
        fill(&mut expected, owner);
        assert!(*block == *expected, "step {step}: not the block of {owner}");
    }

    /// Ends when the next process has received all.
    fn finish(mut self) -> uldma::Result<()> {
        self.next.flush(TIMEOUT)
    }
}

/// Makes a block that of a process.
fn fill(block: &mut [u8], rank: u32) {
    for (byte, number) in block.iter_mut().zip(0u32..) {
        *byte = (number ^ (number >> 8) ^ (rank * 73)) as u8;
    }
}
