//! Choosing a backend by name and by type.

use std::sync::Arc;

use congruent::{AllOps, AnyBackend, Cpu, DType, ErrorKind, Result, Tensor, backend, backends};

/// The same code for both choices.
fn softmax<B: AllOps + ?Sized>(x: &Tensor<B>) -> Result<Tensor<B>> {
    (x - x.logsumexp(-1, true)?)?.exp()
}

#[test]
fn code_is_written_once_for_both_choices() -> Result<()> {
    fn run<B: AllOps + ?Sized>(device: &Arc<B>) -> Result<Vec<f64>> {
        softmax(&Tensor::from_slice(device, &[0.0_f64, 0.0, 3_f64.ln()], [3])?)?.to_vec()
    }
    let by_type = run(&Arc::new(Cpu::new()))?;
    assert_eq!(by_type, run(&backend("cpu")?)?);
    assert!((by_type[2] - 0.6).abs() < 1e-15);
    Ok(())
}

#[test]
fn a_name_in_use_is_one_backend() -> Result<()> {
    let (one, other) = (backend("cpu")?, backend("cpu")?);
    assert!(Arc::ptr_eq(&one, &other));
    assert!((Tensor::ones(&one, [2], DType::F32)? + Tensor::ones(&other, [2], DType::F32)?).is_ok());
    assert_eq!(backends().iter().filter(|backend| backend.name() == "cpu").count(), 1);
    Ok(())
}

#[test]
fn unknown_names_list_what_there_is() {
    for name in ["", "gpu", "cpu:0", "cuda", "cuda:", "cuda:x", "CPU"] {
        let error = backend(name).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        for word in [&format!("`{name}`"), "cpu", "`cuda:N`"] {
            assert!(error.message().contains(word), "{error}");
        }
    }
}

#[test]
fn tensors_cross_threads() {
    fn assert_send_sync<T: Send + Sync>(_: &T) {}
    let x = Tensor::<AnyBackend>::ones(&backend("cpu").unwrap(), [1000], DType::F32).unwrap();
    assert_send_sync(&x);
    let sums: Vec<f32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| x.sum((), false)?.item::<f32>())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert_eq!(sums, [1000.0; 4]);
}
