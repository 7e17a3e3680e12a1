//! Where a report was made: what may explain a difference between two of them, and nothing that names a person or a host.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// The environment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Congruent's version.
    pub version: String,
    /// The compiler that built it.
    pub rustc: String,
    /// Operating system and architecture.
    pub platform: String,
    /// The processor's model, where it can be read.
    pub cpu: Option<String>,
    /// Threads that the process may use.
    pub threads: usize,
    /// NVIDIA GPUs and their driver.
    pub gpus: Vec<String>,
    /// Processes that wanted to run, on average over the minute before the run, where the system says so.
    pub load: Option<f64>,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("CONGRUENT_RUSTC").to_owned(),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: read("/proc/cpuinfo").and_then(|text| model(&text)),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            gpus: gpus(),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }

    /// The processor, or what is known of it.
    #[must_use]
    pub fn cpu(&self) -> &str {
        self.cpu.as_deref().unwrap_or(&self.platform)
    }

    /// The processor with its threads, and each GPU.
    #[must_use]
    pub fn machine(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let cpu = format!("{} ({} {threads})", self.cpu(), self.threads);
        std::iter::once(cpu).chain(self.gpus.iter().cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// The model in the text of `/proc/cpuinfo`.
fn model(text: &str) -> Option<String> {
    let (_, model) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(model.trim().to_owned())
}

/// GPUs as nvidia-smi names them.
fn gpus() -> Vec<String> {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    let Ok(output) = Command::new("nvidia-smi").args(query).output() else { return Vec::new() };
    if !output.status.success() {
        return Vec::new();
    }
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.replace(", ", ", driver ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nstepping\t: 1\n";
        assert_eq!(model(text).as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn a_machine_is_its_parts() {
        let gpus = vec!["NVIDIA H200, driver 1".to_owned()];
        let environment = Environment { cpu: Some("a CPU".to_owned()), threads: 2, gpus, ..Environment::default() };
        assert_eq!(environment.machine(), "a CPU (2 threads); NVIDIA H200, driver 1");
    }
}
