// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts over plain memory: checks the stores and the library's own refusals.

use std::sync::atomic::Ordering;

use super::*;
use crate::mmio::RegisterAddress;
use crate::region::entry::Access;
use crate::region::shadow::ShadowAddress;
use crate::transfer::descriptor::Order;

/// Memory that emulates a device's.
pub(crate) struct Memory {
    shadow: Mapping,
    page: Mapping,
    status: Mapping,
    queue: Mapping,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let map = |length| Mapping::anonymous_shared(length).unwrap();
        Self {
            shadow: map(16384),
            page: map(4096),
            status: map(4096),
            queue: map(4096),
        }
    }

    /// Returns the address `offset` bytes from the start of a region that fills the memory.
    fn place(&self, offset: usize, access: Access) -> ShadowAddress<'_> {
        ShadowAddress {
            address: RegisterAddress::new(&self.shadow, offset),
            offset: offset as u64,
            index: 7,
            handle: 70,
            access,
        }
    }

    fn shadow(&self, offset: usize) -> u64 {
        self.shadow.word(offset).load(Ordering::Relaxed)
    }

    /// Completes transfers as the device does.
    fn complete(&self, ticket: u64) {
        self.status.word(0).store(ticket, Ordering::Release);
    }
}

fn context(method: Method, memory: &Memory) -> Context {
    context_of(Device::mute(), method, memory)
}

/// Makes a context of a device over this memory.
pub(crate) fn context_of(device: Device, method: Method, memory: &Memory) -> Context {
    Context {
        registers: Some(Registers {
            status: StatusPage::new(memory.status.again().unwrap()).unwrap(),
            page: Some(memory.page.again().unwrap()),
            key: 0xa51,
            ring: Some(Ring::new(memory.queue.again().unwrap()).unwrap()),
            restartable: RestartableThread::find(),
        }),
        method,
        number: 1,
        max_transfer: MAX_TRANSFER,
        options: ContextOptions {
            retries: 2,
            ..Default::default()
        },
        disturbed: Cell::default(),
        last: Cell::new(0),
        seen: Cell::new(0),
        poller: Cell::new(None),
        map_outs: RefCell::default(),
        device,
    }
}

const BOTH: Access = Access::ReadWrite;

#[test]
fn two_accesses_pass_the_size_word_and_return_the_ticket() {
    for method in [
        Method::ExtendedShadow,
        Method::ExtendedShadowShared,
        Method::Shrimp2,
        Method::Flash,
        Method::Pal,
    ] {
        if method == Method::Pal && RestartableThread::find().is_none() {
            continue;
        }
        let memory = Memory::new();
        memory.shadow.word(8192).store(42, Ordering::Relaxed);
        let context = context(method, &memory);
        let (from, to) = (
            memory.place(8195, Access::Read),
            memory.place(13, Access::Write),
        );
        assert_eq!(context.initiate(from, to, 100), Ok(Ticket(42)), "{method}");
        let word = 100 | (3 << 30) | (5 << 33) | (7 << 36) | (7 << 50);
        assert_eq!(memory.shadow(8), word, "{method}");
        let refused = context.initiate(to, from, 100);
        assert_eq!(refused, Err(Refusal::NoRight), "{method}");
        assert_eq!(context.initiate(from, to, 0), Err(Refusal::BadSize));
        memory
            .shadow
            .word(8192)
            .store(-8i64 as u64, Ordering::Relaxed);
        assert_eq!(context.initiate(from, to, 1), Err(Refusal::QueueFull));
        // Arguments that were lost are passed again, with a limit.
        memory
            .shadow
            .word(8192)
            .store(-1i64 as u64, Ordering::Relaxed);
        let before = context.disturbances().attempts;
        assert_eq!(context.initiate(from, to, 1), Err(Refusal::Contended));
        let attempts = context.disturbances().attempts - before;
        assert!(attempts >= 3, "{method}: {attempts}");
    }
}

#[test]
fn keys_are_stored_and_tickets_counted() {
    let memory = Memory::new();
    let context = context(Method::Key, &memory);
    let (from, to) = (memory.place(4096, BOTH), memory.place(0, Access::Write));
    assert_eq!(context.initiate(from, to, 64), Ok(Ticket(1)));
    assert_eq!(context.initiate(from, to, 64), Ok(Ticket(2)));
    assert_eq!((memory.shadow(4096), memory.shadow(0)), (0xa51, 0xa51));
    let word = memory.page.word(0).load(Ordering::Relaxed);
    assert_eq!(word, 64 | (7 << 36) | (7 << 50));
    let read_only = memory.place(4096, Access::Read);
    let refused = context.initiate(read_only, to, 64);
    assert_eq!(refused, Err(Refusal::SourceNotWritable));
}

#[test]
fn what_repeated_passing_cannot_do_is_said_before() {
    let memory = Memory::new();
    let context = context(Method::Repeated5, &memory);
    let from = memory.place(4096, Access::Read);
    let write_only = memory.place(0, Access::Write);
    let refused = context.initiate(from, write_only, 64);
    assert_eq!(refused, Err(Refusal::DestinationNotReadable));
    assert_eq!(context.disturbances(), Disturbances::default());
    // Memory answers FAIL.
    let to = memory.place(0, BOTH);
    assert_eq!(context.initiate(from, to, 64), Err(Refusal::Contended));
    let disturbed = context.disturbances();
    assert_eq!((disturbed.attempts, disturbed.fails), (3, 3));
    // The fallback is the kernel, which this memory does not emulate.
    let error = context.dma(from, to, 64).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOTTY));
}

#[test]
fn single_stores_are_limited_to_what_the_device_keeps() {
    let memory = Memory::new();
    let context = context(Method::SingleStore, &memory);
    let (from, to) = (
        memory.place(4104, Access::Read),
        memory.place(16, Access::Write),
    );
    for ticket in 1..=64 {
        assert_eq!(context.initiate(from, to, 24), Ok(Ticket(ticket)));
    }
    assert_eq!(memory.shadow(16), 3 | (513 << 18) | (7 << 36) | (7 << 50));
    memory.shadow.word(16).store(0, Ordering::Relaxed);
    assert_eq!(context.initiate(from, to, 24), Err(Refusal::QueueFull));
    assert_eq!(memory.shadow(16), 0);
    memory.complete(1);
    assert_eq!(context.initiate(from, to, 24), Ok(Ticket(65)));
    for (from, to, bytes) in [(4100, 16, 8), (4096, 20, 8), (4096, 16, 4)] {
        let (from, to) = (memory.place(from, BOTH), memory.place(to, BOTH));
        let refused = context.initiate(from, to, bytes);
        assert_eq!(refused, Err(Refusal::NotAligned));
    }
}

#[test]
fn a_page_goes_only_where_it_is_mapped_out_to() {
    let memory = Memory::new();
    let context = context(Method::Shrimp1, &memory);
    memory.shadow.word(4096 + 56).store(9, Ordering::Relaxed);
    let (from, to) = (
        memory.place(4096, Access::Read),
        memory.place(8192, Access::Write),
    );
    assert_eq!(context.initiate(from, to, 64), Err(Refusal::NotMappedOut));
    let mut map_outs = context.map_outs.borrow_mut();
    map_outs.set((70, 1), Some((70, 2)), 1);
    drop(map_outs);
    assert_eq!(context.initiate(from, to, 64), Ok(Ticket(9)));
    assert_eq!(context.initiate(from, to, 60), Err(Refusal::NotAligned));
    assert_eq!(context.initiate(from, to, 4104), Err(Refusal::Bounds));
    let inside = memory.place(4104, Access::Read);
    assert_eq!(context.initiate(inside, to, 64), Err(Refusal::NotAligned));
}

#[test]
fn a_word_is_added_to_by_a_load() {
    let memory = Memory::new();
    let context = context(Method::FetchAdd, &memory);
    memory.shadow.word(24).store(5, Ordering::Relaxed);
    assert_eq!(context.fetch_add(memory.place(24, BOTH)), Ok(5));
    let refused = [
        context.fetch_add(memory.place(24, Access::Read)),
        context.fetch_add(memory.place(25, BOTH)),
    ];
    assert_eq!(refused, [Err(Refusal::NoRight), Err(Refusal::NotAligned)]);
    let place = memory.place(0, BOTH);
    assert_eq!(context.initiate(place, place, 8), Err(Refusal::OtherMethod));
    let other = super::tests::context(Method::Key, &memory);
    assert_eq!(other.fetch_add(place), Err(Refusal::OtherMethod));
}

#[test]
fn a_queue_never_has_more_than_its_places_and_wakes_who_sleeps() {
    let memory = Memory::new();
    let context = context(Method::Queue, &memory);
    let queue = context.queue().unwrap();
    let (from, to) = (memory.place(3, Access::Read), memory.place(4096, BOTH));
    assert_eq!(queue.copy(from, to, 5, Order::FENCE), Ok(Ticket(1)));
    queue.submit();
    let woken = || memory.page.word(0).swap(0, Ordering::Relaxed);
    assert_eq!(woken(), 0);
    memory.status.word(24).store(1, Ordering::Relaxed);
    // As `dma` does, too.
    assert_eq!(context.initiate(from, to, 5), Ok(Ticket(2)));
    assert_eq!(woken(), 1);
    memory.status.word(24).store(0, Ordering::Relaxed);
    let words: Vec<_> = (0..8)
        .map(|index| memory.queue.word(64 + 8 * index).load(Ordering::Relaxed))
        .collect();
    assert_eq!(words, [1, 1 << 32, (7 << 32) | 7, 3, 4096, 5, 0, 0]);

    assert_eq!(queue.fetch_add(to, 4, Order::NONE), Ok(Ticket(3)));
    assert_eq!(queue.compare_swap(to, 4, 9, Order::LINK), Ok(Ticket(4)));
    let word = |place: usize, index: usize| {
        memory
            .queue
            .word(64 * place + 8 * index)
            .load(Ordering::Relaxed)
    };
    assert_eq!([word(3, 1), word(3, 6), word(3, 7)], [1, 4, 0]);
    assert_eq!([word(4, 1), word(4, 6), word(4, 7)], [2 | (2 << 32), 9, 4]);
    assert_eq!(queue.fetch_add(from, 1, Order::NONE), Err(Refusal::NoRight));

    assert_eq!(queue.room(), 60);
    let copies = [(from, to, 8); 61];
    assert_eq!(queue.copy_vectored(&copies), Err(Refusal::QueueFull));
    assert_eq!(queue.room(), 60);
    let batch = queue.copy_vectored(&copies[..60]).unwrap();
    assert_eq!((batch.first, batch.last), (Ticket(5), Ticket(64)));
    assert_eq!([word(63, 1), word(0, 1)], [2 << 32, 0]);
    assert_eq!(queue.nop(Order::NONE), Err(Refusal::QueueFull));
    memory.complete(64);
    assert_eq!(queue.nop(Order::NONE), Ok(Ticket(65)));
    assert_eq!(queue.copy_vectored(&[]), Err(Refusal::BadSize));
}

#[test]
fn a_batch_fails_for_the_reason_of_its_first_failure() {
    let memory = Memory::new();
    let context = context(Method::Queue, &memory);
    let queue = context.queue().unwrap();
    let copies = [(memory.place(0, BOTH), memory.place(8, BOTH), 8); 3];
    let batch = queue.copy_vectored(&copies).unwrap();
    for (ticket, status) in [
        (1, 0),
        (2, uapi::ULDMA_DMA_REMOTE),
        (3, uapi::ULDMA_DMA_ABORTED),
    ] {
        let record = 64 + 24 * ticket;
        memory
            .status
            .word(record)
            .store(ticket as u64, Ordering::Relaxed);
        memory
            .status
            .word(record + 16)
            .store(status.into(), Ordering::Relaxed);
    }
    memory.complete(3);
    let error = queue
        .wait(batch, Spin::Adaptive, Duration::ZERO)
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Transfer {
            ticket: 2,
            status: Refusal::Remote,
            ..
        }
    ));
}

#[test]
fn without_a_context_only_the_kernel_starts_transfers() {
    let memory = Memory::new();
    let mut context = context(Method::Kernel, &memory);
    context.registers = None;
    let place = memory.place(0, BOTH);
    assert_eq!(context.initiate(place, place, 8), Err(Refusal::NoContext));
    let error = context.dma(place, place, 8).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOTTY));
    assert!(context.ended(Ticket(1)).is_err());
    assert!(context.queue().is_none());
}

#[test]
fn a_caller_that_adapts_polls_for_what_the_device_costs() {
    let memory = Memory::new();
    // Longer than a wake-up by a timer can be.
    let completion = Duration::from_secs(1);
    let context = context_of(Device::mute_after(completion), Method::Queue, &memory);
    assert_eq!(context.poll(Spin::Adaptive, || Some(())), Some(()));
    let limit = context.poller.get().map(|poller| poller.limit());
    assert_eq!(limit, Some(crate::wait::ticks::of(completion)));
}
