// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets that clients find by their paths.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Listens at a path; replaces a socket that no process listens at any more.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path).or_else(|error| {
        let dead = error.kind() == io::ErrorKind::AddrInUse
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if !dead {
            return Err(error);
        }
        fs::remove_file(path)?;
        UnixListener::bind(path)
    });
    listener.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Socket files, removed at the end.
#[derive(Debug, Default)]
pub struct Sockets(Vec<PathBuf>);

impl Sockets {
    /// Listens at a path; replaces a socket that no process listens at any more.
    pub fn listen(&mut self, path: &Path) -> io::Result<UnixListener> {
        let listener = listen(path)?;
        self.0.push(path.to_owned());
        Ok(listener)
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                log::warn!("{}: {error}", path.display());
            }
        }
    }
}
