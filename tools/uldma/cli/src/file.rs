// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that are read as a whole, up to their end, whatever the file system says of their size.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use uldma::Buffer;

use crate::failure::{Failure, Result};

/// Most bytes of a file that is longer than it says, which may have no end.
const MOST: usize = 1 << 30;

/// Reads a file. Returns its bytes, and their number: without any, the memory is one zero byte.
pub(crate) fn read(path: &Path) -> Result<(Buffer, usize)> {
    let failed = |error| Failure::io(path.display(), &error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let said = match metadata.file_type() {
        kind if kind.is_block_device() => 0,
        _ => usize::try_from(metadata.len()).unwrap_or(usize::MAX),
    };
    // While the memory grows there is more of it; and other programs need some.
    let most = MOST.min(available().unwrap_or(MOST) / 4);
    let limit = said.saturating_add(most);
    Buffer::read_all(&mut file, said, limit).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            let text = format!(
                "{}: more than {limit} bytes, which do not fit",
                path.display()
            );
            Failure::new(crate::failure::Kind::Failed, text)
        }
        _ => failed(error),
    })
}

/// Returns the bytes of memory that this machine has for programs.
fn available() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_that_say_another_size_are_read_whole() {
        // These say 0, and 4096.
        for path in ["/proc/self/maps", "/proc/cpuinfo"] {
            let (buffer, length) = read(Path::new(path)).unwrap();
            assert!(length > 0 && buffer.len() == length, "{path}");
        }
        let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        if let Ok(expected) = fs::read(path) {
            assert_eq!(&read(path).unwrap().0[..], &expected[..]);
        }
        assert_eq!(read(Path::new("/dev/null")).unwrap().1, 0);
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        use std::os::fd::AsRawFd;
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let sent = vec![7; 300_000];
        std::thread::scope(|scope| {
            scope.spawn(|| File::from(writer).write_all(&sent).unwrap());
            let (buffer, length) = read(Path::new(&path)).unwrap();
            assert_eq!(length, sent.len());
            assert!(buffer[..] == sent[..]);
        });
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let failure = read(Path::new("/dev/zero")).unwrap_err();
        assert!(
            failure.message.starts_with("/dev/zero: more than "),
            "{}",
            failure.message
        );
    }
}
