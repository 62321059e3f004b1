// SPDX-License-Identifier: GPL-2.0

//! Character devices with what `kernel::miscdevice` lacks: an owner, so that an open file keeps the
//! module loaded, `poll`, per-device data, one address space for all mappings, and page faults.

use core::marker::PhantomData;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    seq_file::SeqFile,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::PollTable,
        Arc,
        ArcBorrow, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    }, //
};

use super::{
    mapping::SharedMapping,
    vma::{
        Caching,
        Fault,
        FaultError,
        NewMapping,
        Notify,
        Patience,
        Served, //
    },
    wait::EndedBy, //
};

/// The decision of [`FileOperations::mmap`] about a mapping.
pub(crate) struct MappingRights {
    /// Cache mode of all of its pages.
    pub(crate) caching: Caching,
    /// True if it may be written, now or after `mprotect()`.
    pub(crate) writable: bool,
    /// The accesses that fault.
    pub(crate) notify: Notify,
}

/// The result of [`FileOperations::poll`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// `EPOLLIN`.
    pub(crate) readable: bool,
    /// `EPOLLOUT`.
    pub(crate) writable: bool,
    /// `EPOLLPRI`.
    pub(crate) urgent: bool,
    /// `EPOLLRDHUP`.
    pub(crate) ended: bool,
    /// `EPOLLHUP`.
    pub(crate) hung_up: bool,
    /// `EPOLLERR`.
    pub(crate) error: bool,
}

/// The operations of an open file; `Self` is its private data.
///
/// # Safety
///
/// What `mapping` returns for the device of a file must live until `release` of the file has been
/// called, and must be the same for all files of one device.
pub(crate) unsafe trait FileOperations: Sized + Send + Sync + 'static {
    /// The data that all files of one device share.
    type Device: Send + Sync + 'static;

    /// The module that the operations are part of.
    const MODULE: &'static ThisModule;

    /// The address space of all mappings of the device.
    fn mapping(device: &Self::Device) -> &SharedMapping;

    /// Makes the private data of a file that is being opened. Called under a lock of all misc
    /// devices: must not wait for what a user can hold, such as `mmap_lock` or a charge.
    fn open(device: ArcBorrow<'_, Self::Device>) -> Result<Arc<Self>>;

    /// Ends the file: no call is running and no mapping is left.
    fn release(this: Arc<Self>);

    /// `unlocked_ioctl`, and `compat_ioctl` with the pointer converted.
    fn ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize>;

    /// `mmap`: checks a new mapping, whose pages come from [`FileOperations::fault`].
    fn mmap(this: ArcBorrow<'_, Self>, mapping: &NewMapping<'_>) -> Result<MappingRights>;

    /// Puts a page into a mapping. `mmap_lock` is held: no user copies, no pinning, no waiting. The page
    /// table of the page is there.
    fn fault(this: ArcBorrow<'_, Self>, fault: &Fault<'_>) -> Result<Served, FaultError>;

    /// Waits until [`FileOperations::fault`], which is called again then, can succeed.
    fn wait_for_fault(this: ArcBorrow<'_, Self>, signals: EndedBy);

    /// `poll`: registers on `table` and returns the current state. The caller sleeps if nothing is
    /// ready and it `may_sleep`.
    fn poll(
        this: ArcBorrow<'_, Self>,
        file: &File,
        table: &PollTable<'_>,
        may_sleep: bool,
    ) -> Readiness;

    /// `read` of at most `buf.len()` bytes. Returns the number of bytes that were written.
    fn read(this: ArcBorrow<'_, Self>, file: &File, buf: &mut UserSliceWriter) -> Result<usize>;

    /// Prints lines for `/proc/PID/fdinfo/FD`.
    fn show_fdinfo(this: ArcBorrow<'_, Self>, m: &SeqFile);
}

/// Numbers of registered devices: bit N is set while N is taken.
static NUMBERS: Numbers = Numbers(Atomic::new(0));

struct Numbers(Atomic<u64>);

impl Numbers {
    /// Takes the lowest free number.
    fn take(&self) -> Result<u32> {
        self.update(|taken| taken.checked_add(1).map(|next| taken | next))
            .map(u64::trailing_ones)
            .ok_or(ENOSPC)
    }

    /// Replaces the numbers by the result of `f`, if any. Returns the old numbers.
    fn update(&self, f: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut old = self.0.load(Relaxed);
        loop {
            match self.0.cmpxchg(old, f(old)?, Relaxed) {
                Ok(old) => return Some(old),
                Err(found) => old = found,
            }
        }
    }

    fn give_back(&self, number: u32) {
        self.update(|taken| Some(taken & !1u64.checked_shl(number)?));
    }
}

/// A registered character device. After it is dropped, the device cannot be opened any more.
///
/// Open files stay open, and keep the shared data alive.
pub(crate) struct Registration<'bound, T: FileOperations> {
    inner: KBox<Inner<T>>,
    number: u32,
    _parent: PhantomData<&'bound Device<Bound>>,
}

/// # Invariants
///
/// `misc` is registered as long as this object is part of a [`Registration`].
#[repr(C)]
struct Inner<T: FileOperations> {
    misc: Opaque<bindings::miscdevice>,
    name: CString,
    device: Arc<T::Device>,
}

// SAFETY: `miscdevice` may be deregistered from any thread; the rest is `Send`.
unsafe impl<T: FileOperations> Send for Registration<'_, T> {}

impl<'bound, T: FileOperations> Registration<'bound, T> {
    /// Registers `/dev/{prefix}N` with the lowest N that is free.
    pub(crate) fn new(
        parent: &'bound Device<Bound>,
        prefix: &CStr,
        device: Arc<T::Device>,
    ) -> Result<Self> {
        let number = NUMBERS.take()?;
        Self::with_number(parent, prefix, device, number).inspect_err(|_| NUMBERS.give_back(number))
    }

    fn with_number(
        parent: &'bound Device<Bound>,
        prefix: &CStr,
        device: Arc<T::Device>,
        number: u32,
    ) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{}{number}", prefix.to_str()?))?;
        let inner = KBox::new(
            Inner::<T> {
                misc: Opaque::new(bindings::miscdevice {
                    minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                    fops: &Vtable::<T>::FOPS,
                    // CAST: `Device` is `#[repr(transparent)]` over `Opaque<struct device>`.
                    parent: core::ptr::from_ref(parent).cast_mut().cast(),
                    ..pin_init::zeroed()
                }),
                name,
                device,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The structure is not registered yet, so no other thread accesses it.
        unsafe { (*inner.misc.get()).name = inner.name.as_char_ptr() };
        // SAFETY: The structure is set up and, being boxed, does not move until it is deregistered.
        to_result(unsafe { bindings::misc_register(inner.misc.get()) })?;
        // INVARIANT: It is registered from here on.
        Ok(Self {
            inner,
            number,
            _parent: PhantomData,
        })
    }

    /// The N of `/dev/{prefix}N`.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl<T: FileOperations> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the invariant of `Inner` it is registered. `misc_open` holds the mutex that
        // this takes, so no open uses `inner` afterwards.
        unsafe { bindings::misc_deregister(self.inner.misc.get()) };
        NUMBERS.give_back(self.number);
    }
}

/// The C side of [`FileOperations`].
struct Vtable<T: FileOperations>(PhantomData<T>);

impl<T: FileOperations> Vtable<T> {
    const FOPS: bindings::file_operations = bindings::file_operations {
        owner: T::MODULE.as_ptr(),
        open: Some(Self::open),
        release: Some(Self::release),
        unlocked_ioctl: Some(Self::ioctl),
        compat_ioctl: bindings::compat_ptr_ioctl,
        mmap: Some(Self::mmap),
        poll: Some(Self::poll),
        read: Some(Self::read),
        llseek: Some(bindings::noop_llseek),
        show_fdinfo: Some(Self::show_fdinfo),
        ..pin_init::zeroed()
    };

    const VM_OPS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        fault: Some(Self::fault),
        may_split: Some(Self::may_split),
        mremap: Some(Self::mremap),
        ..pin_init::zeroed()
    };

    const NOTIFY_WRITES: bindings::vm_operations_struct = bindings::vm_operations_struct {
        fault: Some(Self::fault),
        pfn_mkwrite: Some(Self::fault),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `file` must be a file that [`Self::open`] succeeded on and that is not released.
    unsafe fn private<'a>(file: *mut bindings::file) -> ArcBorrow<'a, T> {
        // SAFETY: `open` put a foreign `Arc<T>` there, which only `release` takes away.
        unsafe { Arc::<T>::borrow((*file).private_data) }
    }

    /// # Safety
    ///
    /// Called by the VFS for a file that is being opened, by `misc_open`.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `misc_open` left a pointer to our `miscdevice` in the private data, and holds
        // the mutex that keeps it registered. `misc` is the first field of `Inner`.
        let inner = unsafe { &*(*file).private_data.cast::<Inner<T>>() };
        match T::open(inner.device.as_arc_borrow()) {
            Ok(private) => {
                // SAFETY: The file is being opened, so no other thread accesses it yet. `T::mapping`
                // outlives it by contract.
                unsafe {
                    (*file).f_mapping = T::mapping(&inner.device).as_raw();
                    (*file).private_data = private.into_foreign();
                }
                0
            }
            Err(err) => err.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the VFS, once, for a file that [`Self::open`] succeeded on.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` put a foreign `Arc<T>` there, and this is the last use of the file.
        T::release(unsafe { Arc::<T>::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// Called by the VFS for an open file.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: The VFS calls this for open files.
        let private = unsafe { Self::private(file) };
        // SAFETY: The file is valid for this call. The position is not used.
        let file = unsafe { File::from_raw_file(file) };
        match T::ioctl(private, file, cmd, arg) {
            Ok(ret) => ret,
            Err(err) => err.to_errno() as c_long,
        }
    }

    /// # Safety
    ///
    /// Called by the VFS for an open file, with a VMA that is being set up.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: The VFS calls this for open files.
        let private = unsafe { Self::private(file) };
        // SAFETY: The VMA is being set up while this runs.
        let mapping = NewMapping::new(unsafe { VmaNew::from_raw(vma) });
        let result = T::mmap(private, &mapping).and_then(|rights| {
            mapping.prepare(rights.caching, rights.writable)?;
            Ok(rights.notify)
        });
        match result {
            Ok(notify) => {
                let ops = match notify {
                    Notify::Missing => &Self::VM_OPS,
                    Notify::Writes => &Self::NOTIFY_WRITES,
                };
                // SAFETY: The VMA is being set up, so no other thread accesses it.
                unsafe { (*vma).vm_ops = ops };
                0
            }
            Err(err) => err.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the memory manager for a VMA that [`Self::mmap`] prepared: as `fault`, and as
    /// `pfn_mkwrite`. The latter inserts the page itself, too, since the memory manager would only
    /// compare it with the one that it saw before: the page may have been protected meanwhile.
    unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: This is the fault handler of VMAs that `mmap` prepared.
        let fault = unsafe { Fault::from_raw(vmf) };
        // SAFETY: A VMA keeps its file open.
        let private = unsafe { Self::private(fault.file()) };
        match fault.make_table().and_then(|()| T::fault(private, &fault)) {
            Ok(Served::Now) => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
            Ok(Served::Later) => match fault.patience() {
                Patience::None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
                Patience::NotNow => bindings::vm_fault_reason_VM_FAULT_RETRY,
                Patience::Wait(signals) => {
                    // Keeps the private data, and the module.
                    let file = fault.release();
                    T::wait_for_fault(private, signals);
                    drop(file);
                    bindings::vm_fault_reason_VM_FAULT_RETRY
                }
            },
            Err(err) => err.code(),
        }
    }

    /// A mapping is one object and cannot be split.
    ///
    /// # Safety
    ///
    /// Called by the memory manager for a VMA that [`Self::mmap`] prepared.
    unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
        EINVAL.to_errno()
    }

    /// # Safety
    ///
    /// Called by the memory manager for a VMA that [`Self::mmap`] prepared.
    unsafe extern "C" fn mremap(_vma: *mut bindings::vm_area_struct) -> c_int {
        EPERM.to_errno()
    }

    /// # Safety
    ///
    /// Called by the VFS for an open file; `table` is null or valid.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The VFS calls this for open files.
        let private = unsafe { Self::private(file) };
        // SAFETY: The file is valid for this call, and no `fdget_pos` of this thread is active.
        let file = unsafe { File::from_raw_file(file) };
        // SAFETY: `table` is null or valid for this call.
        let (table, may_sleep) = unsafe {
            let registers = table.as_ref().and_then(|table| table._qproc);
            (PollTable::from_raw(table), registers.is_some())
        };
        let readiness = T::poll(private, file, &table, may_sleep);
        [
            (readiness.readable, bindings::POLLIN | bindings::POLLRDNORM),
            (readiness.writable, bindings::POLLOUT | bindings::POLLWRNORM),
            (readiness.urgent, bindings::POLLPRI),
            (readiness.ended, bindings::POLLRDHUP),
            (readiness.hung_up, bindings::POLLHUP),
            (readiness.error, bindings::POLLERR),
        ]
        .into_iter()
        .fold(
            0,
            |mask, (holds, bits)| if holds { mask | bits } else { mask },
        )
    }

    /// # Safety
    ///
    /// Called by the VFS for an open file, with a buffer that the caller says is the user's.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buf: *mut c_char,
        len: usize,
        _pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The VFS calls this for open files.
        let private = unsafe { Self::private(file) };
        // SAFETY: The file is valid for this call. The position is not used.
        let file = unsafe { File::from_raw_file(file) };
        let mut writer = UserSlice::new(UserPtr::from_ptr(buf.cast()), len).writer();
        match T::read(private, file, &mut writer) {
            // A count of bytes read is at most `isize::MAX`, as the VFS bounds `len`.
            Ok(count) => count as isize,
            Err(err) => err.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// Called by procfs for an open file and a `seq_file` that is being filled.
    unsafe extern "C" fn show_fdinfo(m: *mut bindings::seq_file, file: *mut bindings::file) {
        // SAFETY: The VFS calls this for open files.
        let private = unsafe { Self::private(file) };
        // SAFETY: `m` is valid and ours for this call.
        T::show_fdinfo(private, unsafe { SeqFile::from_raw(m) });
    }
}
