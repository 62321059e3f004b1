// SPDX-License-Identifier: GPL-2.0

//! The file operations of `/dev/uldmaN`.

use kernel::{
    fs::{
        file::flags,
        File, //
    },
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        poll::PollTable,
        Arc,
        ArcBorrow, //
    },
    uaccess::UserSliceWriter, //
};
use zerocopy::IntoBytes;

use crate::{
    device::Shared,
    kernel_ext::{
        chardev::{
            FileOperations,
            MappingRights,
            Readiness, //
        },
        compat::this_module,
        mapping::SharedMapping,
        vma::{
            Fault,
            FaultError,
            NewMapping,
            Served, //
        },
        wait::{
            self,
            Deadline,
            EndedBy, //
        }, //
    },
    mem::lmm::range::pages_to_bytes,
    uapi::uldma_event,
    user::{
        ioctl,
        open_file::{
            Object,
            OpenFile, //
        }, //
    }, //
};

// SAFETY: An open file keeps its `Shared`, which owns the one mapping of the device.
unsafe impl FileOperations for OpenFile {
    type Device = Shared;

    const MODULE: &'static ThisModule = this_module!();

    fn mapping(device: &Shared) -> &SharedMapping {
        device.mmap_offsets.mapping()
    }

    fn open(device: ArcBorrow<'_, Shared>) -> Result<Arc<Self>> {
        OpenFile::open(device.into())
    }

    fn release(this: Arc<Self>) {
        this.close();
    }

    fn ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        let how = file.flags();
        let mode = ioctl::Mode {
            nonblock: how & flags::O_NONBLOCK != 0,
            writable: matches!(how & flags::O_ACCMODE, flags::O_WRONLY | flags::O_RDWR),
        };
        ioctl::dispatch(this, cmd, arg, mode)
    }

    fn mmap(this: ArcBorrow<'_, Self>, mapping: &NewMapping<'_>) -> Result<MappingRights> {
        this.check_space()?;
        let _guard = this.shared.gate.try_enter()?;
        let (first, pages) = (mapping.first_page(), mapping.pages());
        let shared = &this.shared;
        shared
            .mmap_offsets
            .check(this.number, &*shared.hw, first, pages)
    }

    fn fault(this: ArcBorrow<'_, Self>, fault: &Fault<'_>) -> Result<Served, FaultError> {
        let shared = &this.shared;
        let served = shared
            .mmap_offsets
            .fault(this.number, &shared.gate, fault)?;
        // A thread whose wait has timed out does not wait again for this access.
        if served == Served::Later && fault.is_retry() && this.has_given_up() {
            return Err(FaultError::Bus);
        }
        Ok(served)
    }

    fn wait_for_fault(this: ArcBorrow<'_, Self>, signals: EndedBy) {
        let shared = &this.shared;
        let (gate, offsets) = (&shared.gate, &shared.mmap_offsets);
        let always = Deadline::after(u64::MAX);
        let contexts = &shared.contexts;
        match contexts.wait_for_registers(gate, offsets, this.number, always, signals) {
            Ok(()) => (),
            // The signal is handled before the page is accessed again.
            Err(err) if wait::is_interrupted(err) => (),
            Err(_) => this.give_up(),
        }
    }

    fn poll(
        this: ArcBorrow<'_, Self>,
        file: &File,
        table: &PollTable<'_>,
        may_sleep: bool,
    ) -> Readiness {
        let (event, gone) = this.events.poll(file, table, &*this.shared);
        match this.attachment.readiness(may_sleep) {
            None => Readiness {
                readable: event,
                hung_up: gone,
                error: gone,
                ..Readiness::default()
            },
            Some(connection) => {
                this.shared.conn_ctx().work_if_polling();
                this.shared.worker.poll_now();
                Readiness {
                    readable: connection.readable,
                    writable: connection.writable,
                    urgent: event,
                    ended: connection.ended,
                    hung_up: connection.hung_up || gone,
                    error: connection.reset || gone,
                }
            }
        }
    }

    fn read(this: ArcBorrow<'_, Self>, file: &File, buf: &mut UserSliceWriter) -> Result<usize> {
        const SIZE: usize = size_of::<uldma_event>();
        if buf.len() < SIZE {
            return Err(EINVAL);
        }
        this.check_space()?;
        let nonblock = file.flags() & flags::O_NONBLOCK != 0;
        let mut done = 0;
        while buf.len() >= SIZE {
            // Waits for the first event only.
            let event = this.events.take(nonblock || done > 0, &*this.shared);
            let copied = event.and_then(|event| {
                buf.write_slice(event.as_bytes())
                    .inspect_err(|_| this.events.put_back(&event))
            });
            match copied {
                Ok(()) => done += SIZE,
                Err(_) if done > 0 => break,
                Err(err) => return Err(err),
            }
        }
        Ok(done)
    }

    fn show_fdinfo(this: ArcBorrow<'_, Self>, m: &SeqFile) {
        let pinned = pages_to_bytes(this.space.locked_pages());
        let objects = this.objects.lock();
        let regions = objects.handles.iter().filter_map(|object| match object {
            Object::Region(region) => Some(region.length()),
            Object::Segment(_) | Object::Endpoint(_) => None,
        });
        let (count, bytes) = regions.fold((0u32, 0u64), |(n, sum), length| (n + 1, sum + length));
        seq_print!(m, "uldma-regions:\t{count}\n");
        seq_print!(m, "uldma-region-bytes:\t{bytes}\n");
        seq_print!(m, "uldma-pinned-bytes:\t{pinned}\n");
        match &objects.context {
            Some(context) => seq_print!(m, "uldma-context:\t{}\n", context.vctx.number()),
            None => seq_print!(m, "uldma-context:\tnone\n"),
        }
    }
}
