//! The disk cache of kernels, libraries that are missing, and what a start costs. Each test starts programs of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs, thread};

use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{ConvOps, MatmulOps, Scalar};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, alone_with, cuda, unary};

/// A new folder below the system's temporary one.
fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("congruent-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Files with the names of a library that the loader rejects.
fn break_library(folder: &Path, libraries: &[&str]) {
    for name in libraries.iter().flat_map(|library| cudarc::get_lib_name_candidates(library)) {
        fs::write(folder.join(name), "not a library").unwrap();
    }
}

/// Puts a folder before all others where the loader searches.
fn search_first(command: &mut Command, folder: &Path) {
    let rest = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let path = env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&rest))).unwrap();
    command.env("LD_LIBRARY_PATH", path).env_remove("CONGRUENT_NVRTC");
}

/// One op in a process that the other tests start: with a cache of their choice, with or without NVRTC.
#[test]
#[ignore = "started by other tests"]
fn negates() {
    let Some(cuda) = cuda() else { return };
    assert_eq!(unary::<f32, f32>(cuda, UnaryOp::Neg, &[1.0, -2.0]), [-1.0, 2.0]);
}

fn negates_with(cache: &Path, change: impl FnOnce(&mut Command)) {
    alone_with("library::negates", |command| change(command.env("CONGRUENT_CACHE_DIR", cache)));
}

fn images(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache.join("cuda")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_warm_start_needs_no_nvrtc() {
    if cuda().is_none() {
        return;
    }
    let (cache, broken) = (folder("warm"), folder("no-nvrtc"));
    break_library(&broken, &["nvrtc"]);
    negates_with(&cache, |_| ());
    assert_eq!(images(&cache).len(), 1);
    negates_with(&cache, |command| search_first(command, &broken));
    for folder in [cache, broken] {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_bad_cache_only_costs_time() {
    if cuda().is_none() {
        return;
    }
    let cache = folder("bad");
    negates_with(&cache, |_| ());
    let image = images(&cache).pop().unwrap();
    let good = fs::read(&image).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&good[..good.len() / 2], &flipped, &[]] {
        fs::write(&image, bad).unwrap();
        negates_with(&cache, |_| ());
        assert!(fs::read(&image).unwrap() == good);
    }
    // A folder that cannot be: its parent is a file.
    negates_with(&image.join("below"), |_| ());
    // No home at all.
    alone_with("library::negates", |command| {
        command.env_remove("CONGRUENT_CACHE_DIR").env_remove("XDG_CACHE_HOME").env_remove("HOME");
    });
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn processes_share_a_cache() {
    if cuda().is_none() {
        return;
    }
    let cache = folder("shared");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| negates_with(&cache, |_| ()));
        }
    });
    // No temporary files are left.
    assert_eq!(images(&cache).len(), 1);
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn without_cublas_products_work() {
    let broken = folder("no-cublas");
    break_library(&broken, &["cublas", "cublasLt"]);
    let name = "library::without_cublas_products_work";
    let inside = alone_with(name, |command| search_first(command, &broken));
    fs::remove_dir_all(broken).unwrap();
    if !inside {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let (a, b) = (Tensor::new(cuda, &[1, 2], &[1.0_f32, 2.0]), Tensor::new(cuda, &[2, 1], &[3.0_f32, 4.0]));
    let mut out = Tensor::zeros::<f32>(cuda, &[1, 1]);
    let plan = Matmul::new(a.view(), b.view(), Scalar::Float(1.0), Scalar::Float(0.0), out.view()).unwrap();
    cuda.matmul(&plan, &a.storage, &b.storage, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [11.0]);
    assert!(!cuda.has_blas().unwrap());
}

/// One convolution, of whole numbers.
fn convolves(cuda: &Cuda) {
    let x = Tensor::new(cuda, &[1, 2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let weight = Tensor::new(cuda, &[1, 2, 2], &[1.0_f32, -1.0, 2.0, 3.0]);
    let mut out = Tensor::zeros::<f32>(cuda, &[1, 1, 2]);
    let options = ConvOptions::default();
    let plan = Conv::new(ConvOp::Conv, x.view(), weight.view(), None, &options, out.view()).unwrap();
    cuda.conv(&plan, &x.storage, &weight.storage, None, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [22.0, 27.0]);
}

#[test]
fn without_cudnn_convolutions_work() {
    let broken = folder("no-cudnn");
    break_library(&broken, &["cudnn"]);
    let name = "library::without_cudnn_convolutions_work";
    let inside = alone_with(name, |command| search_first(command, &broken));
    fs::remove_dir_all(broken).unwrap();
    if !inside {
        return;
    }
    let Some(cuda) = cuda() else { return };
    assert!(!cuda.has_cudnn().unwrap());
    convolves(cuda);
}

#[test]
fn cudnn_can_be_left_alone() {
    if cuda().is_none() {
        return;
    }
    let cuda = Cuda::builder(0).cudnn(false).build().unwrap();
    assert!(!cuda.has_cudnn().unwrap());
    convolves(&cuda);
    let inside = alone_with("library::cudnn_can_be_left_alone", |command| {
        command.env("CONGRUENT_CUDNN", "0");
    });
    if inside {
        assert!(!Cuda::new(0).unwrap().has_cudnn().unwrap());
    }
}

/// Not a test of anything, so it runs only when asked for (`--ignored --nocapture`).
#[test]
#[ignore = "measures"]
fn start_times() {
    if env::var_os("CONGRUENT_TEST_ALONE").is_some() {
        let start = Instant::now();
        let Ok(cuda) = Cuda::new(0) else { return };
        let opened = start.elapsed();
        let op: fn(&Cuda) = match env::var("CONGRUENT_TEST_OP").as_deref() {
            Ok("gelu f32") => |cuda| drop(unary::<f32, f32>(cuda, UnaryOp::Gelu, &[1.0])),
            Ok("gelu f64") => |cuda| drop(unary::<f64, f64>(cuda, UnaryOp::Gelu, &[1.0])),
            _ => |cuda| {
                crate::support::binary(cuda, congruent_backend_api::ops::binary::BinaryOp::Add, &[1.0_f32], &[2.0]);
            },
        };
        op(&cuda);
        println!("opened in {opened:.2?}, first op by {:.2?}", start.elapsed());
        return;
    }
    for op in ["add f32", "gelu f32", "gelu f64"] {
        let cache = folder("start");
        for start in ["cold", "warm"] {
            println!("{op}, {start}:");
            alone_with("library::start_times", |command| {
                command.env("CONGRUENT_CACHE_DIR", &cache).env("CONGRUENT_TEST_OP", op);
                // NVRTC and the driver have a cache of their own.
                command.env("CUDA_CACHE_DISABLE", "1");
            });
        }
        fs::remove_dir_all(cache).unwrap();
    }
}
