//! Configuration files: reading them, and telling what is wrong with them.

use super::error::exit::UNUSABLE as EXIT_UNUSABLE;
use causeway_core::config::{self, Examined, Fault, MAX_BYTES, Position, Severity, Source};
use core::fmt::Write as _;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The exit code of an unusable configuration.
pub const UNUSABLE: u8 = EXIT_UNUSABLE;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Its path, as it was given.
    pub name: String,
    /// What it holds.
    pub text: String,
}

/// The variable that holds a configuration document where there is no file to read: a container gets it as a secret, and needs no disk for it.
pub const INLINE: &str = "CAUSEWAY_CONFIG_INLINE";

/// Reads configuration files; where none is named, the document in [`INLINE`].
///
/// # Errors
/// One fault for every file that cannot be read.
pub fn read(paths: &[PathBuf]) -> Result<Vec<ConfigFile>, Vec<Fault>> {
    if paths.is_empty() {
        return inline(std::env::var_os(INLINE)).map(|file| vec![file]).map_err(|fault| vec![fault]);
    }
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        match read_one(path) {
            Ok(text) => files.push(ConfigFile { name: path.display().to_string(), text }),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(files) } else { Err(faults) }
}

fn inline(document: Option<OsString>) -> Result<ConfigFile, Fault> {
    let refuse = |code, message: &str, remedy| Err(file_fault(Path::new(INLINE), code, message.to_owned(), remedy));
    match document.map(OsString::into_string) {
        Some(Ok(text)) if text.len() > MAX_BYTES => {
            refuse("E_FILE_TOO_LARGE", "the document has more than the 4 MiB that are read", "name files with -c instead")
        }
        Some(Ok(text)) if !text.trim().is_empty() => Ok(ConfigFile { name: INLINE.to_owned(), text }),
        Some(Err(_)) => refuse("E_FILE_ENCODING", "the document is not UTF-8", "save it as UTF-8"),
        Some(Ok(_)) | None => refuse(
            "E_FILE_MISSING",
            "no configuration is named, and the variable is not set",
            "name files with `-c FILE`, or put the document into the variable CAUSEWAY_CONFIG_INLINE",
        ),
    }
}

fn read_one(path: &Path) -> Result<String, Fault> {
    let unreadable = |error: &io::Error| {
        let (code, message, remedy) = match error.kind() {
            io::ErrorKind::NotFound => (
                "E_FILE_MISSING",
                "the file does not exist".to_owned(),
                "check the path; `causeway init --output FILE` writes one to start from",
            ),
            io::ErrorKind::PermissionDenied => {
                ("E_FILE_PERMISSION", "the file may not be read".to_owned(), "make it readable for the user that runs this program")
            }
            io::ErrorKind::IsADirectory => directory(),
            _ => ("E_FILE", format!("the file cannot be read: {error}"), "check the path"),
        };
        file_fault(path, code, message, remedy)
    };
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    if file.metadata().map_err(|error| unreadable(&error))?.is_dir() {
        let (code, message, remedy) = directory();
        return Err(file_fault(path, code, message, remedy));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() > MAX_BYTES {
        return Err(file_fault(
            path,
            "E_FILE_TOO_LARGE",
            "the file has more than the 4 MiB that are read".to_owned(),
            "split it, or move what is not configuration elsewhere",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count() + 1;
        let mut fault = file_fault(path, "E_FILE_ENCODING", "the file is not UTF-8".to_owned(), "save it as UTF-8");
        fault.at.line = u32::try_from(line).unwrap_or(u32::MAX);
        fault
    })
}

fn directory() -> (&'static str, String, &'static str) {
    ("E_FILE_DIRECTORY", "this is a directory".to_owned(), "name the files in it, in the order in which they apply")
}

fn file_fault(path: &Path, code: &'static str, message: String, remedy: &str) -> Fault {
    let at = Position { file: Arc::from(path.display().to_string()), line: 1, column: 1 };
    Fault { code, severity: Severity::Error, path: String::new(), at, message, remedy: remedy.to_owned() }
}

/// Reads and examines configuration files, with the variables of this process's environment.
///
/// # Errors
/// Where files cannot be read.
pub fn examine(paths: &[PathBuf]) -> Result<(Examined, Vec<ConfigFile>), Vec<Fault>> {
    let files = read(paths)?;
    let sources: Vec<Source<'_>> = files.iter().map(|file| Source { name: &file.name, text: &file.text }).collect();
    let examined = config::examine(&sources, &|name| std::env::var(name).ok());
    Ok((examined, files))
}

/// Faults for people, each with its line of the file.
#[must_use]
pub fn report(faults: &[Fault], files: &[ConfigFile]) -> String {
    let mut out = String::new();
    let lines: Vec<(&str, Vec<&str>)> = files.iter().map(|file| (file.name.as_str(), file.text.lines().collect())).collect();
    for fault in faults {
        let kind = if fault.is_error() { "error" } else { "warning" };
        let _ = writeln!(out, "{kind}[{}]: {}", fault.code, fault.message);
        let path = if fault.path.is_empty() { String::new() } else { format!("  {}", fault.path) };
        let _ = writeln!(out, "  --> {}{path}", fault.at);
        let file = lines.iter().find(|(name, _)| **name == *fault.at.file);
        if let Some(line) = file.and_then(|(_, lines)| lines.get(fault.at.line.saturating_sub(1) as usize)) {
            snippet(&mut out, fault, line);
        }
        if !fault.remedy.is_empty() {
            let _ = writeln!(out, "   = {}", fault.remedy);
        }
        out.push('\n');
    }
    out
}

fn snippet(out: &mut String, fault: &Fault, line: &str) {
    let number = fault.at.line.to_string();
    // A user name in an address stands beside a password, and an unknown field may be a secret under a misspelt name.
    let shown = match line.split_once(':') {
        Some((key, value))
            if !value.trim().is_empty() && (line.contains('@') || (fault.code == "E_UNKNOWN_KEY" && may_name_a_secret(key))) =>
        {
            without_secrets(&format!("{key}: ***"))
        }
        _ => without_secrets(line),
    };
    let pad = " ".repeat(number.len());
    let caret = " ".repeat(fault.at.column.saturating_sub(1).min(200) as usize);
    let _ = writeln!(out, " {pad} |\n {number} | {shown}\n {pad} | {caret}^");
}

fn may_name_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pas", "pw", "secret", "token", "key", "cred"].iter().any(|part| key.contains(part))
}

/// A line of a file, cut after a key that holds a secret, and hidden where it looks like key material.
fn without_secrets(line: &str) -> String {
    const KEYS: [&str; 11] = [
        "password",
        "key_pem",
        "cert_pem",
        "ca_cert_pem",
        "admin_api_key",
        "monitor_api_key",
        "hint_token",
        "secret",
        " key",
        "{key",
        "\"key",
    ];
    let cut = KEYS
        .iter()
        .filter_map(|key| line.find(&format!("{key}:")).or_else(|| line.find(&format!("{key}\":"))).map(|at| at + key.len() + 1))
        .min();
    let shown = match cut {
        Some(cut) if !line.get(cut..).unwrap_or_default().trim_matches([' ', ':', '"']).is_empty() => {
            format!("{} ***", line.get(..cut).unwrap_or_default())
        }
        _ if line.trim().len() >= 32 && !line.trim().contains([':', ' ', '#']) => "***".to_owned(),
        _ => line.to_owned(),
    };
    // Control characters would let a file write on the terminal.
    shown.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Prints on standard error what is not the product.
pub fn complain(text: &str) {
    // Where standard error is closed, the exit code has to do.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Faults for programs.
#[must_use]
pub fn as_json(faults: &[Fault]) -> Value {
    faults
        .iter()
        .map(|fault| {
            json!({
                "code": fault.code, "severity": fault.severity, "path": fault.path, "file": &*fault.at.file, "line": fault.at.line,
                "column": fault.at.column, "message": fault.message, "remedy": fault.remedy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn code_of(path: &Path) -> &'static str {
        read(&[path.to_path_buf()]).unwrap_err()[0].code
    }

    #[test]
    fn files_that_cannot_be_read_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(code_of(&folder.path().join("missing.yaml")), "E_FILE_MISSING");
        assert_eq!(code_of(folder.path()), "E_FILE_DIRECTORY");
        assert_eq!(code_of(&file("binary.yaml", b"a: b\nc: \xff\xfe")), "E_FILE_ENCODING");
        let mut text = b"# ".to_vec();
        text.resize(MAX_BYTES, b'x');
        assert!(read(&[file("limit.yaml", &text)]).is_ok());
        text.push(b'x');
        assert_eq!(code_of(&file("large.yaml", &text)), "E_FILE_TOO_LARGE");
        let faults = read(&[folder.path().join("a"), folder.path().join("b")]).unwrap_err();
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn a_document_may_stand_in_the_environment() {
        assert_eq!(inline(Some("bridge: {id: b}".into())).unwrap().text, "bridge: {id: b}");
        for absent in [None, Some(OsString::from(" \n"))] {
            let fault = inline(absent).unwrap_err();
            assert_eq!((fault.code, &*fault.at.file), ("E_FILE_MISSING", INLINE));
            assert!(fault.remedy.contains("-c FILE"));
        }
        assert_eq!(inline(Some("x".repeat(MAX_BYTES + 1).into())).unwrap_err().code, "E_FILE_TOO_LARGE");
    }

    #[test]
    fn secrets_are_cut_out_of_lines() {
        for (line, shown) in [
            ("        password: hunter2", "        password: ***"),
            ("  tls: {key_pem: abc, cert_file: x}", "  tls: {key_pem: ***"),
            ("  \"password\": \"hunter2\"", "  \"password\" ***"),
            ("  password:", "  password:"),
            ("      max_in_flight: 5", "      max_in_flight: 5"),
            ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC", "***"),
        ] {
            assert_eq!(without_secrets(line), shown);
        }
    }

    #[test]
    fn a_report_shows_the_line() {
        let files = [ConfigFile { name: "a.yaml".to_owned(), text: "bridge: {id: b}\nnope: 1\n".to_owned() }];
        let examined = config::examine(&[Source { name: "a.yaml", text: &files[0].text }], &|_| None);
        let text = report(&examined.faults, &files);
        assert!(text.contains("error[E_UNKNOWN_KEY]: unknown key `nope`"), "{text}");
        assert!(text.contains("  --> a.yaml:2:1  nope\n   |\n 2 | nope: 1\n   | ^\n"), "{text}");
    }

    #[test]
    fn a_secret_under_a_misspelt_name_or_in_an_address_is_not_shown() {
        for line in ["pasword: hunter2", "passwd: hunter2", "broker_url: tcp://user:hunter2@host:1883"] {
            let files = [ConfigFile { name: "a.yaml".to_owned(), text: format!("bridge: {{id: b}}\n{line}\n") }];
            let examined = config::examine(&[Source { name: "a.yaml", text: &files[0].text }], &|_| None);
            let text = report(&examined.faults, &files);
            assert!(text.contains("***") && !text.contains("hunter2"), "{text}");
        }
    }
}
