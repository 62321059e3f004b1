// SPDX-License-Identifier: MIT OR Apache-2.0

//! ibv_reg_mr(), by which RDMA programs register memory.
//!
//! libibverbs is loaded at run time, so that this program runs without it, too. Its objects are opaque
//! pointers.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

use libloading::Library;

use super::backend::Backend;
use super::memory::Range;
use crate::failure::Failure;

const LIBRARY: &str = "libibverbs.so.1";
/// `IBV_ACCESS_LOCAL_WRITE`: the device may write, too.
const LOCAL_WRITE: c_int = 1;

/// A pointer to one of the library's objects.
type Object = *mut c_void;
/// Ends an object, for 0 or an errno.
type End = unsafe extern "C" fn(Object) -> c_int;

/// The library's functions, named as there.
struct Functions {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut Object,
    free_device_list: unsafe extern "C" fn(*mut Object),
    open_device: unsafe extern "C" fn(Object) -> Object,
    close_device: End,
    alloc_pd: unsafe extern "C" fn(Object) -> Object,
    dealloc_pd: End,
    reg_mr: unsafe extern "C" fn(Object, *mut c_void, usize, c_int) -> Object,
    dereg_mr: End,
    /// They are there as long as this is.
    _library: Library,
}

impl Functions {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: what libibverbs does when it is loaded asks nothing of its caller.
        let library = unsafe { Library::new(LIBRARY) }?;
        // SAFETY: the types are those of the library's prototypes.
        unsafe {
            Ok(Self {
                get_device_list: *library.get(b"ibv_get_device_list\0")?,
                free_device_list: *library.get(b"ibv_free_device_list\0")?,
                open_device: *library.get(b"ibv_open_device\0")?,
                close_device: *library.get(b"ibv_close_device\0")?,
                alloc_pd: *library.get(b"ibv_alloc_pd\0")?,
                dealloc_pd: *library.get(b"ibv_dealloc_pd\0")?,
                reg_mr: *library.get(b"ibv_reg_mr\0")?,
                dereg_mr: *library.get(b"ibv_dereg_mr\0")?,
                _library: library,
            })
        }
    }

    /// Opens the first device.
    fn open(&self) -> Result<NonNull<c_void>, Failure> {
        // SAFETY: a null pointer means not to store the number of devices.
        let list = unsafe { (self.get_device_list)(std::ptr::null_mut()) };
        let list = NonNull::new(list).ok_or_else(|| failed("ibv_get_device_list()"))?;
        // SAFETY: the list ends with a null pointer, so there is a first element.
        let first = unsafe { list.read() };
        let opened = if first.is_null() {
            Err(Failure::Io("RDMA device", io::ErrorKind::NotFound.into()))
        } else {
            // SAFETY: the device is of the list, which is still there.
            object(unsafe { (self.open_device)(first) }, "ibv_open_device()")
        };
        // SAFETY: the list came from the library, and nothing uses it after this.
        unsafe { (self.free_device_list)(list.as_ptr()) };
        opened
    }
}

fn failed(what: &'static str) -> Failure {
    Failure::Io(what, io::Error::last_os_error())
}

fn object(pointer: Object, what: &'static str) -> Result<NonNull<c_void>, Failure> {
    NonNull::new(pointer).ok_or_else(|| failed(what))
}

/// A protection domain of the first RDMA device.
pub(crate) struct Domain {
    functions: Functions,
    context: NonNull<c_void>,
    pd: NonNull<c_void>,
}

impl Domain {
    /// Fails without the library, and without a device.
    pub(crate) fn new() -> Result<Self, Failure> {
        let functions = Functions::load()
            .map_err(|error| Failure::Io("libibverbs", io::Error::other(error)))?;
        let context = functions.open()?;
        // SAFETY: the device is open.
        let pd = unsafe { (functions.alloc_pd)(context.as_ptr()) };
        match object(pd, "ibv_alloc_pd()") {
            Ok(pd) => Ok(Self {
                functions,
                context,
                pd,
            }),
            Err(failure) => {
                // SAFETY: the device is open, and nothing uses it.
                unsafe { (functions.close_device)(context.as_ptr()) };
                Err(failure)
            }
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: both are ours; a registration keeps its domain.
        unsafe {
            (self.functions.dealloc_pd)(self.pd.as_ptr());
            (self.functions.close_device)(self.context.as_ptr());
        }
    }
}

/// ibv_reg_mr() and ibv_dereg_mr().
pub(crate) struct Verbs {
    domain: Rc<Domain>,
    region: Option<NonNull<c_void>>,
}

impl Verbs {
    /// Registers in this domain.
    pub(crate) fn new(domain: &Rc<Domain>) -> Self {
        Self {
            domain: Rc::clone(domain),
            region: None,
        }
    }
}

impl Backend for Verbs {
    fn register(&mut self, range: Range) -> Result<(), Failure> {
        let (pd, base) = (self.domain.pd.as_ptr(), range.base().as_ptr());
        // SAFETY: the domain is there, and nothing here starts a transfer.
        let region =
            unsafe { (self.domain.functions.reg_mr)(pd, base, range.length(), LOCAL_WRITE) };
        self.region = Some(object(region, "ibv_reg_mr()")?);
        Ok(())
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        let Some(region) = self.region.take() else {
            return Ok(());
        };
        // SAFETY: the region is ours, and has just been taken, so that it ends once.
        match unsafe { (self.domain.functions.dereg_mr)(region.as_ptr()) } {
            0 => Ok(()),
            errno => Err(Failure::Io(
                "ibv_dereg_mr()",
                io::Error::from_raw_os_error(errno),
            )),
        }
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // A registration is left only by a failure, which was reported.
        let _ = self.deregister();
    }
}
