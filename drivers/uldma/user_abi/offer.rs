// SPDX-License-Identifier: GPL-2.0

//! What each side of a connection says when it is opened.

use kernel::prelude::*;

use crate::{
    kernel_ext::errno::{
        eprotonosupport,
        eprototype, //
    },
    uapi, //
};

/// Most bytes of private data.
const MOST: usize = uapi::ULDMA_CONN_PRIVATE as usize;
/// Number of u64s of these.
pub(crate) const WORDS: usize = MOST / size_of::<u64>();

/// Bytes for the program of the other side, which no kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrivateData {
    length: u8,
    /// The bytes, little-endian; those behind `length` are zero.
    words: [u64; WORDS],
}

impl PrivateData {
    pub(crate) const NONE: Self = Self {
        length: 0,
        words: [0; WORDS],
    };

    /// Returns the data whose first `length` bytes may be something else than zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a longer one than is possible, and for other bytes.
    pub(crate) fn new(length: u8, words: [u64; WORDS]) -> Result<Self> {
        let data = Self { length, words };
        let mut behind = data.bytes().skip(length.into());
        match usize::from(length) <= MOST && behind.all(|byte| byte == 0) {
            true => Ok(data),
            false => Err(EINVAL),
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> u8 {
        self.length
    }

    pub(crate) fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Returns the bytes, and zeros behind them.
    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.words.iter().flat_map(|word| word.to_le_bytes())
    }
}

/// What one side of a connection says when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// What the connection carries; the kernels compare it, and know no kinds.
    pub(crate) kind: u16,
    /// Version of what programs of this kind do.
    pub(crate) version: u16,
    /// The user of the program, as its kernel numbers users.
    pub(crate) user: u32,
    pub(crate) private: PrivateData,
}

impl Offer {
    /// That of a side which refuses, or has not said anything.
    pub(crate) const NONE: Self = Self {
        kind: 0,
        version: 0,
        user: 0,
        private: PrivateData::NONE,
    };

    /// Returns what a program of `user` says.
    ///
    /// # Errors
    ///
    /// `EINVAL` for private data that is too long, or not zero behind its end.
    pub(crate) fn from_user(said: &uapi::uldma_conn_offer, user: u32) -> Result<Self> {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(said.private_data.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
        }
        let length = u8::try_from(said.private_length).map_err(|_| EINVAL)?;
        Ok(Self {
            kind: said.kind,
            version: said.version,
            user,
            private: PrivateData::new(length, words)?,
        })
    }

    /// Checks that what the other side says fits to this.
    ///
    /// # Errors
    ///
    /// `EPROTOTYPE` for another kind, `EPROTONOSUPPORT` for another version of it.
    pub(crate) fn check(&self, theirs: &Self) -> Result {
        if theirs.kind != self.kind {
            return Err(eprototype());
        }
        match theirs.version == self.version {
            true => Ok(()),
            false => Err(eprotonosupport()),
        }
    }

    /// Writes what the other side has said, but for its user.
    pub(crate) fn describe(&self, out: &mut uapi::uldma_conn_offer) {
        out.kind = self.kind;
        out.version = self.version;
        out.private_length = self.private.length.into();
        for (to, byte) in out.private_data.iter_mut().zip(self.private.bytes()) {
            *to = byte;
        }
    }
}

#[kunit_tests(uldma_offer)]
mod tests {
    use super::*;

    fn said(length: u32, bytes: u8) -> uapi::uldma_conn_offer {
        let mut said = uapi::uldma_conn_offer {
            kind: 0x8001,
            version: 3,
            private_length: length,
            ring_length: 0,
            private_data: [0; MOST],
        };
        for (byte, number) in said.private_data.iter_mut().zip(1..=bytes) {
            *byte = number;
        }
        said
    }

    #[test]
    fn offers_survive_the_kernels() {
        for (length, bytes) in [(0, 0), (9, 9), (128, 9), (128, 128)] {
            let said = said(length, bytes);
            let mut out = uapi::uldma_conn_offer {
                kind: 0,
                version: 0,
                ring_length: 0,
                private_length: 1,
                private_data: [1; MOST],
            };
            let offer = Offer::from_user(&said, 1000);
            assert!(offer.is_ok_and(|offer| offer.user == 1000));
            offer.unwrap_or(Offer::NONE).describe(&mut out);
            assert_eq!((out.kind, out.version), (said.kind, said.version));
            assert_eq!(out.private_length, length);
            assert_eq!(out.private_data, said.private_data);
        }
    }

    #[test]
    fn kind_and_version_have_to_fit() {
        let of = |kind, version, user| Offer {
            kind,
            version,
            user,
            private: PrivateData::NONE,
        };
        let offer = of(7, 2, 0);
        assert_eq!(offer.check(&of(7, 2, 1)), Ok(()));
        assert_eq!(offer.check(&of(7, 3, 0)), Err(eprotonosupport()));
        // The kind comes first, as the version is one of that kind.
        for version in [2, 3] {
            assert_eq!(offer.check(&of(6, version, 0)), Err(eprototype()));
        }
    }

    #[test]
    fn private_data_ends_where_it_says() {
        for (length, bytes) in [
            (8, 9),
            (0, 1),
            (127, 128),
            (129, 0),
            (256, 0),
            (u32::MAX, 0),
        ] {
            assert_eq!(Offer::from_user(&said(length, bytes), 0), Err(EINVAL));
        }
        assert_eq!(PrivateData::new(129, [0; WORDS]), Err(EINVAL));
        assert_eq!(PrivateData::new(0, [0; WORDS]), Ok(PrivateData::NONE));
    }
}
