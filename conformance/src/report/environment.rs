//! Where a report was made: what may explain a difference between two of them, and nothing that names a person or a host.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The environment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The version of this kit.
    pub version: String,
    /// The compiler that built it.
    pub rustc: String,
    /// The operating system.
    pub os: String,
    /// The architecture.
    pub arch: String,
    /// The processor's model, where it can be read.
    pub cpu: Option<String>,
    /// Instruction sets that numeric code uses.
    pub cpu_features: Vec<String>,
    /// NVIDIA GPUs that the driver lists.
    pub gpus: Vec<String>,
    /// Threads that ran rows.
    pub threads: usize,
    /// The most memory that the process has held, in MiB, where the system says so.
    #[serde(default)]
    pub peak_memory_mib: Option<u64>,
    /// When the run ended, in UTC.
    pub time: String,
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_this_process(threads: usize, time: SystemTime) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("CONGRUENT_RUSTC").to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu: cpu(),
            cpu_features: cpu_features()
                .into_iter()
                .filter(|(_, present)| *present)
                .map(|(name, _)| name.into())
                .collect(),
            gpus: gpus(Path::new("/proc/driver/nvidia/gpus")),
            threads,
            peak_memory_mib: peak_memory_mib(Path::new("/proc/self/status")),
            time: utc(time.duration_since(UNIX_EPOCH).unwrap_or_default()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const BRAND: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
    if __cpuid(0x8000_0000).eax < *BRAND.end() {
        return None;
    }
    let registers = BRAND.map(__cpuid).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = registers.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> Option<String> {
    None
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<(&'static str, bool)> {
    use std::arch::is_x86_feature_detected as has;
    vec![
        ("sse4.2", has!("sse4.2")),
        ("avx", has!("avx")),
        ("avx2", has!("avx2")),
        ("fma", has!("fma")),
        ("f16c", has!("f16c")),
        ("avx512f", has!("avx512f")),
        ("avx512bf16", has!("avx512bf16")),
        ("avx512fp16", has!("avx512fp16")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<(&'static str, bool)> {
    use std::arch::is_aarch64_feature_detected as has;
    vec![("neon", has!("neon")), ("fp16", has!("fp16")), ("bf16", has!("bf16")), ("sve", has!("sve"))]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<(&'static str, bool)> {
    Vec::new()
}

/// The models that NVIDIA's driver lists on Linux, by bus address.
fn gpus(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path().join("information")).collect();
    files.sort();
    let model = |text: String| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned()));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok().and_then(model)).collect()
}

/// The high-water mark of resident memory, as Linux has it.
fn peak_memory_mib(status: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    mark.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib.div_ceil(1024))
}

/// ISO 8601 of a time since 1970, in the proleptic Gregorian calendar.
fn utc(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last of its year; an era is the calendar's cycle of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds| utc(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
