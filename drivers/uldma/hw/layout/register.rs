// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Types of registers, and the macro that declares a register file.
//!
//! A declaration gives the driver a typed constant for each register, and the device model an enum of
//! the registers that it decodes. Access, width and position are part of the constant's type or
//! value, so that a write to a read-only register, or with another width, does not compile.

use core::marker::PhantomData;

/// What the driver may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The driver reads the register.
    ReadOnly,
    /// The driver writes the register, which reads 0.
    WriteOnly,
    /// The driver reads and writes the register.
    ReadWrite,
    /// The driver reads the register, and writes ones to the bits that the device shall clear.
    WriteOneToClear,
}

/// Marks a register that can be read.
pub trait Readable {}

/// Marks a register that can be written.
pub trait Writable {}

/// The mark of [`Access::ReadOnly`].
#[derive(Clone, Copy, Debug)]
pub enum ReadOnly {}
/// The mark of [`Access::WriteOnly`].
#[derive(Clone, Copy, Debug)]
pub enum WriteOnly {}
/// The mark of [`Access::ReadWrite`].
#[derive(Clone, Copy, Debug)]
pub enum ReadWrite {}
/// The mark of [`Access::WriteOneToClear`].
#[derive(Clone, Copy, Debug)]
pub enum WriteOneToClear {}

impl Readable for ReadOnly {}
impl Readable for ReadWrite {}
impl Readable for WriteOneToClear {}
impl Writable for WriteOnly {}
impl Writable for ReadWrite {}
impl Writable for WriteOneToClear {}

/// A register of file `F` that holds a `T`.
#[derive(Debug)]
pub struct Register<F, T, A> {
    offset: usize,
    of: PhantomData<(F, T, A)>,
}

impl<F, T, A> Clone for Register<F, T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, T, A> Copy for Register<F, T, A> {}

impl<F, T, A> Register<F, T, A> {
    /// Declares the register at byte `offset` of its file.
    pub const fn new(offset: usize) -> Self {
        Self {
            offset,
            of: PhantomData,
        }
    }

    /// Returns the byte offset in the register file.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Returns this register of `block`.
    #[inline(always)]
    pub const fn of<O>(self, block: Block<O, F>) -> Register<O, T, A> {
        Register::new(block.offset + self.offset)
    }
}

/// `COUNT` adjacent registers of file `F`, each of which holds a `T`.
#[derive(Debug)]
pub struct Array<F, T, A, const COUNT: usize> {
    offset: usize,
    of: PhantomData<(F, T, A)>,
}

impl<F, T, A, const COUNT: usize> Clone for Array<F, T, A, COUNT> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, T, A, const COUNT: usize> Copy for Array<F, T, A, COUNT> {}

impl<F, T, A, const COUNT: usize> Array<F, T, A, COUNT> {
    /// Declares the registers from byte `offset` of their file on.
    pub const fn new(offset: usize) -> Self {
        Self {
            offset,
            of: PhantomData,
        }
    }

    /// Returns the byte offset of the first register.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Returns register `index`, or `None` from `COUNT` on.
    #[inline(always)]
    pub const fn at(self, index: usize) -> Option<Register<F, T, A>> {
        if index < COUNT {
            Some(Register::new(self.offset + index * size_of::<T>()))
        } else {
            None
        }
    }

    /// Returns the index of the register that starts at byte `offset` of the file.
    pub const fn index_of(self, offset: usize) -> Option<usize> {
        if offset < self.offset || (offset - self.offset) % size_of::<T>() != 0 {
            return None;
        }
        let index = (offset - self.offset) / size_of::<T>();
        if index < COUNT {
            Some(index)
        } else {
            None
        }
    }
}

/// A block of file `O` that has the registers of file `F`.
#[derive(Debug)]
pub struct Block<O, F> {
    offset: usize,
    of: PhantomData<(O, F)>,
}

impl<O, F> Clone for Block<O, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<O, F> Copy for Block<O, F> {}

/// `COUNT` adjacent blocks of file `O`, each of which has the registers of file `F` in `STRIDE` bytes.
#[derive(Debug)]
pub struct Blocks<O, F, const STRIDE: usize, const COUNT: usize> {
    offset: usize,
    of: PhantomData<(O, F)>,
}

impl<O, F, const STRIDE: usize, const COUNT: usize> Clone for Blocks<O, F, STRIDE, COUNT> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O, F, const STRIDE: usize, const COUNT: usize> Copy for Blocks<O, F, STRIDE, COUNT> {}

impl<O, F, const STRIDE: usize, const COUNT: usize> Blocks<O, F, STRIDE, COUNT> {
    /// Declares the blocks from byte `offset` of their file on.
    pub const fn new(offset: usize) -> Self {
        Self {
            offset,
            of: PhantomData,
        }
    }

    /// Returns the byte offset of the first block.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Returns the byte offset behind the last block.
    pub const fn end(self) -> usize {
        self.offset + STRIDE * COUNT
    }

    /// Returns block `index`, or `None` from `COUNT` on.
    #[inline(always)]
    pub const fn at(self, index: usize) -> Option<Block<O, F>> {
        if index < COUNT {
            Some(Block {
                offset: self.offset + index * STRIDE,
                of: PhantomData,
            })
        } else {
            None
        }
    }

    /// Returns the block that byte `offset` of the file is in, and the byte offset in the block.
    pub const fn locate(self, offset: usize) -> Option<(usize, usize)> {
        if offset < self.offset || offset >= self.end() {
            return None;
        }
        let inside = offset - self.offset;
        Some((inside / STRIDE, inside % STRIDE))
    }
}

/// One line of a register file's declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name of the constant.
    pub name: &'static str,
    /// Byte offset of the first register.
    pub offset: usize,
    /// Bytes of each register.
    pub width: usize,
    /// Number of registers: more than one for an array.
    pub count: usize,
    /// What the driver may do with the register.
    pub access: Access,
}

/// Panics if the registers of a file overlap, are not aligned to their width, or exceed `size` bytes.
pub const fn check_file(file: &[Declaration], size: usize) {
    let mut index = 0;
    let mut end = 0;
    while index < file.len() {
        let Declaration {
            offset,
            width,
            count,
            ..
        } = file[index];
        assert!(width == 4 || width == 8, "registers have 4 or 8 bytes");
        assert!(offset % width == 0, "a register is not aligned");
        assert!(offset >= end, "registers overlap, or are not sorted");
        end = offset + width * count;
        index += 1;
    }
    assert!(end <= size, "a register is outside of its file");
}

/// Declares a register file: a module of constants and an enum of registers.
///
/// Each line is `NAME: Type = offset, access;` for one register, or `NAME[count]: Type = offset,
/// access;` for an array. The access is `ro`, `wo`, `rw` or `w1c`.
macro_rules! registers {
    (@mark ro) => { ReadOnly };
    (@mark wo) => { WriteOnly };
    (@mark rw) => { ReadWrite };
    (@mark w1c) => { WriteOneToClear };
    (@access ro) => { Access::ReadOnly };
    (@access wo) => { Access::WriteOnly };
    (@access rw) => { Access::ReadWrite };
    (@access w1c) => { Access::WriteOneToClear };
    (@constant $file:ident, $type:ty, $access:ident) => {
        Register<$file, $type, registers!(@mark $access)>
    };
    (@constant $file:ident, $type:ty, $access:ident, $count:expr) => {
        Array<$file, $type, registers!(@mark $access), { $count }>
    };
    (@decode $at:ident, $module:ident, $file:ident, $name:ident) => {
        if $at == $module::$name.offset() {
            return Some($file::$name);
        }
    };
    (@decode $at:ident, $module:ident, $file:ident, $name:ident, $count:expr) => {
        if let Some(index) = $module::$name.index_of($at) {
            return Some($file::$name(index));
        }
    };
    (@index $count:expr) => { usize };
    (@count) => { 1 };
    (@count $count:expr) => { $count };
    (
        $(#[$module_doc:meta])*
        $visibility:vis mod $module:ident;
        $(#[$file_doc:meta])*
        enum $file:ident in $size:expr;
        $(
            $(#[$doc:meta])*
            $name:ident $([$count:expr])?: $type:ty = $offset:literal, $access:ident;
        )*
    ) => {
        $(#[$module_doc])*
        $visibility mod $module {
            use super::*;

            $(
                $(#[$doc])*
                $visibility const $name: registers!(@constant $file, $type, $access $(, $count)?) =
                    <registers!(@constant $file, $type, $access $(, $count)?)>::new($offset);
            )*
        }

        $(#[$file_doc])*
        #[allow(dead_code, reason = "a user of the registers does not decode them")]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $file {
            $(
                $(#[$doc])*
                $name $((registers!(@index $count)))?,
            )*
        }

        #[allow(dead_code, reason = "a user of the registers does not decode them")]
        impl $file {
            /// The declaration of each register, in the order of the offsets.
            $visibility const ALL: &'static [Declaration] = &[
                $(
                    Declaration {
                        name: stringify!($name),
                        offset: $offset,
                        width: size_of::<$type>(),
                        count: registers!(@count $($count)?),
                        access: registers!(@access $access),
                    },
                )*
            ];

            /// Returns the register that starts at byte `offset` of the file.
            $visibility const fn decode(offset: usize) -> Option<Self> {
                $(registers!(@decode offset, $module, $file, $name $(, $count)?);)*
                None
            }

            /// Returns the bytes of the register.
            $visibility const fn width(self) -> usize {
                match self {
                    $(Self::$name { .. } => size_of::<$type>(),)*
                }
            }
        }

        const _: () = check_file($file::ALL, $size);
    };
}
pub(crate) use registers;
