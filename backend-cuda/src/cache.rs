//! Compiled kernels on disk. Whatever is wrong with the cache (missing, read-only, truncated, from another version)
//! costs time only: a file counts when its whole key and the checksum of its image fit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

const MAGIC: &[u8; 8] = b"CNGRNT01";

/// The image stored under `key`.
pub(crate) fn load(key: &str) -> Option<Vec<u8>> {
    decode(key, &fs::read(path(key)?).ok()?)
}

/// Stores an image; failures are ignored, since the next process then compiles again.
pub(crate) fn store(key: &str, image: &[u8]) {
    if let Some(path) = path(key) {
        let _ = write(&path, &encode(key, image));
    }
}

/// `CONGRUENT_CACHE_DIR`, else `congruent` in the user's cache directory.
fn directory() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CONGRUENT_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|path| path.join("congruent")))
        .or_else(|| set("HOME").map(|path| path.join(".cache").join("congruent")))
}

fn path(key: &str) -> Option<PathBuf> {
    Some(directory()?.join("cuda").join(format!("{:016x}.bin", hash(key.as_bytes()))))
}

/// Writes beside the file and renames, so that no process ever sees half of it.
fn write(path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let unique = format!("{}.{}.part", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let part = path.with_extension(unique);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Magic, length of the key, checksum of the image, key, image.
fn encode(key: &str, image: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend(hash(image).to_le_bytes());
    bytes.extend(key.as_bytes());
    bytes.extend(image);
    bytes
}

fn decode(key: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let (checksum, rest) = rest.split_first_chunk::<8>()?;
    let image = rest.strip_prefix(key.as_bytes())?;
    let fits = u64::from_le_bytes(*len) == key.len() as u64 && u64::from_le_bytes(*checksum) == hash(image);
    (fits && !image.is_empty()).then(|| image.to_vec())
}

/// FNV-1a: against accidents, not against an attacker, who could write the user's cache only as the user.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_only_whole_and_under_its_key() {
        let bytes = encode("key", b"image");
        assert_eq!(decode("key", &bytes).as_deref(), Some(&b"image"[..]));
        assert_eq!(decode("kez", &bytes), None);
        assert_eq!(decode("ke", &bytes), None);
        for len in 0..bytes.len() {
            assert_eq!(decode("key", &bytes[..len]), None);
        }
        for at in 0..bytes.len() {
            let mut corrupt = bytes.clone();
            corrupt[at] ^= 1;
            assert_eq!(decode("key", &corrupt), None);
        }
    }

    #[test]
    fn files_are_replaced_whole() {
        let directory = env::temp_dir().join(format!("congruent-cache-test-{}", process::id()));
        let path = directory.join("nested").join("file.bin");
        write(&path, b"first").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A directory that is a file.
        assert!(write(&path.join("below"), b"").is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
