//! A system without CUDA's libraries, or with an old driver: each is an error that says what to do. No GPU is needed; the
//! loader finds broken files, or a driver made for the test, before whatever the system has.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use congruent_backend_api::ErrorKind;
use congruent_backend_cuda::Cuda;
use congruent_backend_cuda::kernels::KernelModule;

const ALONE: &str = "CONGRUENT_TEST_ALONE";

/// Whether this process was started for this one test. If not, starts it, with a folder before all others where the
/// loader searches, and asserts that it succeeds.
fn alone(test: &str, folder: &Path) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .env("LD_LIBRARY_PATH", folder)
        .env_remove("CONGRUENT_NVRTC")
        .output()
        .unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
    false
}

fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("congruent-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn absent_libraries_are_named() {
    let folder = folder("absent");
    for name in ["cuda", "nvcuda", "nvrtc", "cublas"].into_iter().flat_map(cudarc::get_lib_name_candidates) {
        fs::write(folder.join(name), "not a library").unwrap();
    }
    let inside = alone("absent_libraries_are_named", &folder);
    fs::remove_dir_all(&folder).unwrap();
    if !inside {
        return;
    }
    let path = env::var("LD_LIBRARY_PATH").unwrap();
    for (error, texts) in [
        (Cuda::new(0).unwrap_err(), ["libcuda.so.1", "install NVIDIA's driver"]),
        (Cuda::device_count().unwrap_err(), ["libcuda.so", "driver"]),
        (KernelModule::all().next().unwrap().compile(90).unwrap_err(), ["libnvrtc.so.13", "nvidia-cuda-nvrtc"]),
    ] {
        assert_eq!(error.kind(), ErrorKind::LibraryNotFound, "{error}");
        assert!(texts.iter().all(|text| error.message().contains(text)), "{error}");
        assert!(error.message().contains(&path), "{error}");
    }
}

#[test]
fn a_named_nvrtc_that_is_none_is_named() {
    let folder = folder("named");
    for name in cudarc::get_lib_name_candidates("nvrtc") {
        fs::write(folder.join(name), "not a library").unwrap();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "compiles", "--nocapture", "--include-ignored"])
        .env("LD_LIBRARY_PATH", &folder)
        .env("CONGRUENT_NVRTC", folder.join("nowhere.so"))
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("library_not_found") && out.contains("nowhere.so cannot be loaded"), "{out}");
}

#[test]
#[ignore = "started by another test"]
fn compiles() {
    println!("{:?}", KernelModule::all().next().unwrap().compile(90).map(drop).map_err(|error| error.to_string()));
}

/// A driver that answers as the one of CUDA 11.4 does.
#[test]
fn an_old_driver_is_too_old() {
    let folder = folder("old");
    let source = "int cuInit(unsigned flags) { return 0; }\n\
                  int cuDriverGetVersion(int *version) { *version = 11040; return 0; }\n\
                  int cuDeviceGetCount(int *count) { *count = 1; return 0; }\n";
    fs::write(folder.join("driver.c"), source).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "libcuda.so", "driver.c"])
        .current_dir(&folder)
        .status()
        .is_ok_and(|status| status.success());
    if !compiled && env::var_os(ALONE).is_none() {
        println!("skipped: no C compiler");
        return;
    }
    let inside = alone("an_old_driver_is_too_old", &folder);
    fs::remove_dir_all(&folder).unwrap();
    if !inside {
        return;
    }
    assert_eq!(Cuda::device_count().unwrap(), 1);
    let error = Cuda::new(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DriverTooOld, "{error}");
    assert!(error.message().contains("11.4") && error.message().contains("CUDA 12"), "{error}");
}
