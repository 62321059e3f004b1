// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory selected by `--size`, `--kind` and `--file`.

use std::fs::OpenOptions;

use clap::ValueEnum;
use uldma::{Access, Memory};

use crate::args::MemoryArgs;
use crate::failure::{Failure, Result};

impl MemoryArgs {
    /// Maps it.
    pub(crate) fn map(&self) -> Result<Memory> {
        let Some(path) = &self.file else {
            return Ok(Memory::new(self.kind.into(), self.size)?);
        };
        let writable = Access::from(self.access).writes();
        let file = OpenOptions::new().read(true).write(writable).open(path);
        let file = file.map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Memory::of_file(&file, self.size, writable)?)
    }

    /// Returns the name of the kind.
    pub(crate) fn kind(&self) -> String {
        let kind = self.kind.to_possible_value();
        match (&self.file, kind) {
            (None, Some(kind)) => kind.get_name().to_owned(),
            _ => "file".to_owned(),
        }
    }
}
