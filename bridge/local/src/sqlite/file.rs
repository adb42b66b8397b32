//! The database file itself, before SQLite sees it.

use super::LocalStoreError;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder that holds `path`.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// The canonical path of the file at `path`, which exists.
///
/// # Errors
/// Where it does not exist, or is no file.
pub(super) fn existing(path: &Path) -> Result<PathBuf, LocalStoreError> {
    match path.metadata() {
        Ok(found) if found.is_file() => path.canonicalize().map_err(|error| LocalStoreError::of_io(path.to_owned(), error)),
        Ok(_) => Err(LocalStoreError::NotAFile { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound && folder(path).is_dir() => {
            Err(LocalStoreError::Missing { path: path.to_owned() })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(LocalStoreError::MissingFolder { folder: folder(path).to_owned() }),
        Err(error) => Err(LocalStoreError::of_io(path.to_owned(), error)),
    }
}

/// The canonical path of the file at `path`, which is made (empty, for this user alone) where it is missing. SQLite gives the files that it puts
/// beside it the same mode.
///
/// # Errors
/// Where its folder is missing or cannot be written, or the path names no file.
pub(super) fn existing_or_new(path: &Path) -> Result<PathBuf, LocalStoreError> {
    match existing(path) {
        Err(LocalStoreError::Missing { .. }) => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            match made {
                Ok(_) => existing(path),
                // Somebody else made it meanwhile.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => existing(path),
                Err(error) => Err(LocalStoreError::of_io(folder(path).to_owned(), error)),
            }
        }
        found => found,
    }
}

/// Makes the folder that holds `path`, for this user alone, and those above it; answers whether it was missing.
///
/// # Errors
/// Where it cannot be made.
pub(super) fn make_folder(path: &Path) -> Result<bool, LocalStoreError> {
    let folder = folder(path);
    if folder.is_dir() {
        return Ok(false);
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map(|()| true).map_err(|error| LocalStoreError::of_io(folder.to_owned(), error))
}

/// Whether `path` is absolute and names every folder once: no empty part, no `.`, no `..`.
pub(super) fn is_clean_absolute(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")))
}

/// Checks that the file at `path` and its folder belong to this user, and that nobody else has any access to them.
///
/// # Errors
/// [`LocalStoreError::NotPrivate`] for the first that is not so.
pub(super) fn only_its_users(path: &Path) -> Result<(), LocalStoreError> {
    only_this_users(folder(path), 0o700)?;
    only_this_users(path, 0o600)
}

/// The same of the folder alone, before a file is made in it. Where it is missing, opening the file tells.
///
/// # Errors
/// [`LocalStoreError::NotPrivate`] where it is not so.
pub(super) fn folder_only_its_users(path: &Path) -> Result<(), LocalStoreError> {
    if folder(path).is_dir() { only_this_users(folder(path), 0o700) } else { Ok(()) }
}

fn only_this_users(path: &Path, wanted: u32) -> Result<(), LocalStoreError> {
    let standing = path.metadata().map_err(|error| LocalStoreError::of_io(path.to_owned(), error))?;
    let (user, owner, mode) = (rustix::process::geteuid().as_raw(), standing.uid(), standing.mode() & 0o7777);
    let found = if owner != user {
        format!("belongs to user {owner}, while this is user {user},")
    } else if mode & 0o077 != 0 {
        format!("has the mode {mode:04o}")
    } else {
        return Ok(());
    };
    Err(LocalStoreError::NotPrivate { path: path.to_owned(), found, wanted })
}

/// Which file it is, whatever its name.
pub(super) type Identity = (u64, u64);

/// The identity of the file that stands at `path` now.
pub(super) fn identity(path: &Path) -> std::io::Result<Identity> {
    path.metadata().map(|found| (found.dev(), found.ino()))
}
