//! The exclusive lock of the one writer.

use super::LocalStoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Held for as long as it lives. The system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    _file: File,
}

/// Introductions are short; a lock file that is longer was not written by this program.
const HOLDER_BYTES: u64 = 400;

/// How long to wait for a store that this very process is just closing: it still runs its queue empty.
const OWN_CLOSE_TRIES: u32 = 100;
const OWN_CLOSE_PAUSE: Duration = Duration::from_millis(50);

impl WriterLock {
    /// Takes the lock that belongs to `database`, a canonical path.
    ///
    /// # Errors
    /// [`LocalStoreError::Locked`] where another process has it; others where the lock's file cannot be made.
    pub(super) fn acquire(database: &Path) -> Result<Self, LocalStoreError> {
        let path = path_beside(database);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| LocalStoreError::of_io(path.clone(), error))?;
        for _ in 0..OWN_CLOSE_TRIES {
            match file.try_lock() {
                Ok(()) => {
                    match introduce(&mut file) {
                        // A nameless holder on a full disk is better than none: it is the one that makes room.
                        Err(error) if error.kind() != ErrorKind::StorageFull => return Err(LocalStoreError::of_io(path, error)),
                        _ => {}
                    }
                    return Ok(Self { _file: file });
                }
                Err(TryLockError::Error(error)) => return Err(LocalStoreError::of_io(path, error)),
                Err(TryLockError::WouldBlock) if holder(&mut file) != introduction() => break,
                Err(TryLockError::WouldBlock) => std::thread::sleep(OWN_CLOSE_PAUSE),
            }
        }
        Err(LocalStoreError::Locked { path: database.to_owned(), holder: holder(&mut file) })
    }
}

fn path_beside(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// What a second process tells its user about this one.
fn introduction() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).map_or_else(|| "causeway".into(), |name| name.to_string_lossy());
    // Containers that share a folder may well have the same process number.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { String::new() } else { format!(" on host {host}") };
    format!("process {} ({name}){host}", std::process::id())
}

fn introduce(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(introduction().as_bytes())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES).read_to_string(&mut text));
    let text: String = text.trim().chars().filter(|character| !character.is_control()).collect();
    if read.is_err() || text.is_empty() { "another process".to_owned() } else { text }
}
