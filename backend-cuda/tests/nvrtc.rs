//! Every kernel of every family compiles for every architecture we name, and has the symbol that the backend asks for.
//! Needs NVRTC but no GPU: that of CUDA, found by the loader, or the one of the PyPI package nvidia-cuda-nvrtc that
//! CONGRUENT_NVRTC names. Without either the tests skip; with CONGRUENT_NVRTC set they must not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use congruent_backend_api::{Error, ErrorKind};
use congruent_backend_cuda::kernels::KernelModule;

/// Turing, and Hopper: the oldest and the newest instructions that kernels choose between.
const ARCHS: [u32; 2] = [75, 90];

fn skip(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::LibraryNotFound, "{error}");
    assert!(std::env::var_os("CONGRUENT_NVRTC").is_none(), "{error}");
    println!("skipped: {error}");
}

#[test]
fn every_kernel_compiles() {
    let modules: Vec<_> = KernelModule::all().flat_map(|module| ARCHS.map(|arch| (module, arch))).collect();
    if let Err(error) = modules[0].0.compile(modules[0].1) {
        return skip(&error);
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(module, arch)) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let image = module.compile(arch).unwrap_or_else(|error| panic!("{module} for {arch}: {error:?}"));
                    for symbol in module.symbols() {
                        let section = format!("\0.text.{symbol}\0");
                        let found = image.windows(section.len()).any(|window| window == section.as_bytes());
                        assert!(found, "{module} for {arch} has no kernel `{symbol}`");
                    }
                }
            });
        }
    });
}

/// A device newer than NVRTC gets PTX for the nearest architecture, which the driver compiles further.
#[test]
fn an_unknown_device_gets_ptx() {
    let Some(module) = KernelModule::all().next() else { return };
    match module.compile(91) {
        Ok(image) => assert!(String::from_utf8(image).is_ok_and(|text| text.contains(".target sm_90"))),
        Err(error) => return skip(&error),
    }
    assert!(module.compile(10).is_err());
}
