//! The instance key: what this gateway signs, seals and compares with. One line per key, the first in use, the others
//! still accepted, so that two can stand while one replaces the other.
//!
//! ```text
//! watertight-key 1
//! 5f3a9c01 8d6f…(64 hex digits)
//! ```

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const FORMAT: &str = "watertight-key 1";
/// Two while rotating; more is a mistake.
const MAX_KEYS: usize = 8;

/// One or more keys. Never printed.
#[derive(Clone)]
pub struct InstanceKey {
    keys: Vec<(String, [u8; 32])>,
}

impl fmt::Debug for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(|(id, _)| id.as_str()).collect();
        write!(f, "InstanceKey {ids:?}")
    }
}

impl InstanceKey {
    /// A new key from the OS's randomness.
    pub fn generate() -> io::Result<InstanceKey> {
        let (mut id, mut key) = ([0; 4], [0; 32]);
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).map_err(|e| io::Error::other(e.to_string()));
        random(&mut id)?;
        random(&mut key)?;
        Ok(InstanceKey { keys: vec![(hex(&id), key)] })
    }

    /// Reads a key file. One that others can read is refused: it is no secret any more.
    pub fn load(path: &Path) -> io::Result<InstanceKey> {
        let text = fs::read_to_string(path)?;
        private(path)?;
        InstanceKey::parse(&text).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Writes a new key file, for its owner alone; one that is there is never overwritten.
    pub fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let lines: Vec<String> = self.keys.iter().map(|(id, key)| format!("{id} {}\n", hex(key))).collect();
        file.write_all(format!("{FORMAT}\n{}", lines.concat()).as_bytes())?;
        file.sync_all()
    }

    /// A keyed hash under the key in use. `purpose` keeps uses apart.
    pub fn mac(&self, purpose: &str, data: &[u8]) -> [u8; 32] {
        self.macs(purpose, data).next().unwrap_or([0; 32])
    }

    /// The same under each key, the one in use first.
    pub fn macs<'a>(&'a self, purpose: &'a str, data: &'a [u8]) -> impl Iterator<Item = [u8; 32]> + 'a {
        self.keys.iter().map(move |(_, key)| mac(key, purpose, data))
    }

    fn parse(text: &str) -> Result<InstanceKey, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        if lines.next() != Some(FORMAT) {
            return Err(format!("no instance key: the first line is not `{FORMAT}`"));
        }
        let keys: Vec<(String, [u8; 32])> = lines
            .map(|line| {
                let (id, key) = line.split_once(' ')?;
                (!id.is_empty()).then_some((id.to_owned(), unhex(key.trim())?))
            })
            .collect::<Option<_>>()
            .ok_or("no instance key: a line is not an id and 64 hex digits")?;
        match keys.len() {
            1..=MAX_KEYS => Ok(InstanceKey { keys }),
            n => Err(format!("no instance key: it holds {n} keys")),
        }
    }
}

fn mac(key: &[u8; 32], purpose: &str, data: &[u8]) -> [u8; 32] {
    // Any length of key is taken, so this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(&(purpose.len() as u64).to_be_bytes());
    mac.update(purpose.as_bytes());
    mac.update(data);
    mac.finalize().into_bytes().into()
}

#[cfg(unix)]
fn private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mode = fs::metadata(path)?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("others can read or write it (mode {:03o}): chmod 600 {}", mode & 0o777, path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(not(unix))]
fn private(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_reads_back_and_is_never_overwritten() {
        let dir = std::env::temp_dir().join(format!("watertight-key-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("watertight.key");
        let key = InstanceKey::generate().unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(InstanceKey::load(&path).unwrap().mac("token", b"x"), key.mac("token", b"x"));
        assert_eq!(key.write_new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        #[cfg(unix)]
        {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            assert!(InstanceKey::load(&path).unwrap_err().to_string().contains("chmod 600"));
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_first_key_is_in_use_and_purposes_differ() {
        let (a, b) = ("aa".repeat(32), "bb".repeat(32));
        let two = InstanceKey::parse(&format!("watertight-key 1\n1 {a}\n2 {b}\n")).unwrap();
        let one = InstanceKey::parse(&format!("watertight-key 1\n1 {a}\n")).unwrap();
        assert_eq!(two.mac("p", b"x"), one.mac("p", b"x"));
        assert_ne!(one.mac("p", b"x"), one.mac("q", b"x"));
        assert_ne!(one.mac("p", b"x"), one.mac("px", b""));
        for bad in ["", "watertight-key 2\n1 aa", "watertight-key 1\n", "watertight-key 1\n1 zz\n"] {
            assert!(InstanceKey::parse(bad).is_err(), "{bad}");
        }
        assert!(!format!("{one:?}").contains("aaaa"));
    }
}
