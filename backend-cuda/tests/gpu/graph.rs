//! Graphs: what a replay does, and every misuse as an error that leaves the backend usable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::reduce::{Reduce, ReduceOp};
use congruent_backend_api::{
    Backend, BinaryOps, DType, Element, Error, ErrorKind, MatmulOps, ReduceOps, Result, Scalar, Source,
};
use congruent_backend_cuda::{Cuda, Graph};

use crate::support::{Tensor, alone, get};

/// A backend of its own: while it captures, no other test may use it.
fn backend() -> Option<Cuda> {
    Cuda::new(0).map_err(|error| println!("skipped: {error}")).ok()
}

/// x += y
fn add(cuda: &Cuda, x: &mut Tensor, y: &Tensor) -> Result<()> {
    let plan = Binary::new(BinaryOp::Add, Source::Output, Source::View(y.view()), x.view())?;
    cuda.binary(&plan, None, Some(&y.storage), &mut x.storage)
}

fn is_misuse<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Argument);
}

/// The backend records and computes as before.
fn is_usable(cuda: &Cuda) {
    let (mut x, y) = (Tensor::new(cuda, &[2], &[1.0_f32, 2.0]), Tensor::new(cuda, &[2], &[10.0_f32, 20.0]));
    let graph = cuda.capture(|| add(cuda, &mut x, &y)).unwrap();
    assert_eq!(get::<f32>(cuda, &x.storage).unwrap(), [1.0, 2.0]);
    graph.replay().unwrap();
    assert_eq!(get::<f32>(cuda, &x.storage).unwrap(), [11.0, 22.0]);
}

#[test]
fn a_replay_runs_what_was_recorded() {
    let Some(cuda) = backend() else { return };
    is_usable(&cuda);
    // A reduction in two passes takes memory for its first one, which the graph then owns.
    let x = Tensor::from_fn(&cuda, &[1 << 20], |at| (at % 7) as f32);
    let mut out = Tensor::zeros::<f32>(&cuda, &[]);
    let plan = Reduce::new(ReduceOp::Sum, x.view(), None, out.view()).unwrap();
    let graph = cuda.capture(|| cuda.reduce(&plan, &x.storage, &mut out.storage)).unwrap();
    for _ in 0..3 {
        graph.replay().unwrap();
    }
    let sum: usize = (0..1_usize << 20).map(|at| at % 7).sum();
    assert_eq!(get::<f32>(&cuda, &out.storage).unwrap(), [sum as f32]);
    // An empty one, and one that is dropped while it runs.
    cuda.capture(|| Ok(())).unwrap().replay().unwrap();
    graph.replay().unwrap();
    drop(graph);
    is_usable(&cuda);
}

#[test]
fn a_replay_sees_what_was_written_in_place() {
    let Some(cuda) = backend() else { return };
    let (mut x, mut y) = (Tensor::zeros::<f32>(&cuda, &[3]), Tensor::zeros::<f32>(&cuda, &[3]));
    let graph = cuda.capture(|| add(&cuda, &mut x, &y)).unwrap();
    let mut sum = [0.0_f32; 3];
    for step in 1..=5_u8 {
        let values = [1.0, 2.0, 3.0].map(|value: f32| value * f32::from(step));
        cuda.write(f32::as_bytes(&values), &mut y.storage, 0).unwrap();
        graph.replay().unwrap();
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        assert_eq!(get::<f32>(&cuda, &x.storage).unwrap(), sum);
    }
}

/// Loading a kernel, opening cuBLAS and taking its workspace, all for the first time in the process.
#[test]
fn what_a_process_does_first_may_be_captured() {
    if !alone("graph::what_a_process_does_first_may_be_captured") {
        return;
    }
    let Some(cuda) = backend() else { return };
    let a = Tensor::from_fn(&cuda, &[256, 256], |at| (at % 5) as f32);
    let v = Tensor::from_fn(&cuda, &[256, 1], |at| (at % 3) as f32);
    let (mut square, mut product) = (Tensor::zeros::<f32>(&cuda, &[256, 256]), Tensor::zeros::<f32>(&cuda, &[256, 1]));
    let plan = |a: &Tensor, b: &Tensor, out: &Tensor| {
        Matmul::new(a.view(), b.view(), Scalar::Float(1.0), Scalar::Float(0.0), out.view()).unwrap()
    };
    let (squares, products) = (plan(&a, &a, &square), plan(&a, &v, &product));
    let mut run = || {
        cuda.matmul(&squares, &a.storage, &a.storage, &mut square.storage)?;
        cuda.matmul(&products, &a.storage, &v.storage, &mut product.storage)?;
        add(&cuda, &mut product, &v)
    };
    let graph = cuda.capture(&mut run).unwrap();
    run().unwrap();
    let outside = (get::<f32>(&cuda, &square.storage).unwrap(), get::<f32>(&cuda, &product.storage).unwrap());
    for storage in [&mut square.storage, &mut product.storage] {
        cuda.write(&vec![0; 4 * congruent_backend_api::Storage::len(storage)], storage, 0).unwrap();
    }
    graph.replay().unwrap();
    assert!(get::<f32>(&cuda, &square.storage).unwrap() == outside.0);
    assert!(get::<f32>(&cuda, &product.storage).unwrap() == outside.1);
    is_usable(&cuda);
}

#[test]
fn errors_of_the_data_come_from_a_replay() {
    let Some(cuda) = backend() else { return };
    let (mut x, zero) = (Tensor::new(&cuda, &[2], &[1_i32, 2]), Tensor::zeros::<i32>(&cuda, &[2]));
    let plan = Binary::new(BinaryOp::Div, Source::Output, Source::View(zero.view()), x.view()).unwrap();
    let graph = cuda.capture(|| cuda.binary(&plan, None, Some(&zero.storage), &mut x.storage)).unwrap();
    cuda.synchronize().unwrap();
    for _ in 0..2 {
        graph.replay().unwrap();
        assert_eq!(cuda.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
        cuda.synchronize().unwrap();
    }
    // And of the closure, whatever was recorded before.
    let result = cuda.capture(|| {
        cuda.binary(&plan, None, Some(&zero.storage), &mut x.storage)?;
        Err(Error::new(ErrorKind::Shape, "test", "of the closure"))
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Shape);
    is_usable(&cuda);
    assert!(catch_unwind(AssertUnwindSafe(|| cuda.capture(|| panic!("in the closure")))).is_err());
    is_usable(&cuda);
}

#[test]
fn streams_wait_for_replays_and_replays_for_them() {
    let Some(cuda) = backend() else { return };
    let other = cuda.fork().unwrap();
    const LEN: usize = 1 << 22;
    let (mut x, mut y) = (Tensor::zeros::<f32>(&cuda, &[LEN]), Tensor::zeros::<f32>(&cuda, &[LEN]));
    let mut own = Tensor::zeros::<f32>(&other, &[LEN]);
    let is_isolated = |result: Result<()>| is_misuse(result);
    // What another stream has written last is not waited for within a capture.
    add(&other, &mut own, &y).unwrap();
    is_isolated(cuda.capture(|| add(&cuda, &mut x, &own)).map(drop));
    is_usable(&cuda);
    // Nor do others wait for a capture.
    is_misuse(cuda.capture(|| {
        add(&cuda, &mut x, &y)?;
        thread::scope(|scope| scope.spawn(|| is_isolated(add(&other, &mut own, &x))).join().unwrap());
        add(&other, &mut own, &x)
    }));
    is_usable(&cuda);
    add(&cuda, &mut x, &own).unwrap();
    let graph = cuda.capture(|| (0..20).try_for_each(|_| add(&cuda, &mut x, &y))).unwrap();
    let ones = Tensor::from_fn(&other, &[LEN], |_| 1.0_f32);
    for round in 1..=10_u8 {
        // The other stream writes what the replay reads, and reads what it writes.
        add(&other, &mut y, &ones).unwrap();
        graph.replay().unwrap();
        add(&other, &mut own, &x).unwrap();
        let expected: f32 = (1..=round).map(|step| 20.0 * f32::from(step) * f32::from(round + 1 - step)).sum();
        assert!(get::<f32>(&other, &own.storage).unwrap().iter().all(|&value| value == expected), "{round}");
    }
    graph.replay().unwrap();
    drop(y);
    is_misuse(graph.replay());
}

#[test]
fn a_capture_neither_waits_nor_copies_nor_nests() {
    let Some(cuda) = backend() else { return };
    let mut x = Tensor::zeros::<f32>(&cuda, &[4]);
    let earlier = cuda.capture(|| Ok(())).unwrap();
    let graph: Result<Graph> = cuda.capture(|| {
        is_misuse(cuda.synchronize());
        is_misuse(cuda.download(&x.storage, 0, &mut [0; 4]));
        is_misuse(cuda.write(&[0; 4], &mut x.storage, 0));
        is_misuse(cuda.capture(|| Ok(())));
        is_misuse(earlier.replay());
        // Another thread's work would land in the graph.
        thread::scope(|scope| scope.spawn(|| is_misuse(cuda.alloc(DType::F32, 4))).join().unwrap());
        // What is ignored does no harm; what is passed on ends the capture.
        cuda.synchronize()
    });
    is_misuse(graph);
    is_usable(&cuda);
}

#[test]
fn a_graph_does_not_outlive_its_tensors() {
    let Some(cuda) = backend() else { return };
    let (mut x, y) = (Tensor::zeros::<f32>(&cuda, &[4]), Tensor::zeros::<f32>(&cuda, &[4]));
    let graph = cuda.capture(|| add(&cuda, &mut x, &y)).unwrap();
    graph.replay().unwrap();
    drop(y);
    is_misuse(graph.replay());
    // Nor is one dropped while it is recorded, unless the graph doesn't use it.
    let (y, unused) = (Tensor::zeros::<f32>(&cuda, &[4]), Tensor::zeros::<f32>(&cuda, &[4]));
    is_misuse(cuda.capture(|| {
        add(&cuda, &mut x, &y)?;
        drop(y);
        Ok(())
    }));
    cuda.capture(|| {
        drop(unused);
        Ok(())
    })
    .unwrap();
    is_usable(&cuda);
}

#[test]
fn a_tensor_of_the_capture_stays_in_it() {
    let Some(cuda) = backend() else { return };
    let mut escaped = None;
    is_misuse(cuda.capture(|| {
        escaped = Some(cuda.alloc(DType::F32, 4)?);
        // This one is given back in time.
        cuda.alloc(DType::F32, 4).map(drop)
    }));
    let escaped = escaped.unwrap();
    is_misuse(cuda.download(&escaped, 0, &mut [0; 4]));
    drop(escaped);
    is_usable(&cuda);
}

#[test]
#[ignore = "measures"]
fn cost_of_a_small_op_in_a_replay() {
    let Some(cuda) = backend() else { return };
    let (mut x, y) = (Tensor::zeros::<f32>(&cuda, &[4]), Tensor::zeros::<f32>(&cuda, &[4]));
    let plan = Binary::new(BinaryOp::Add, Source::Output, Source::View(y.view()), x.view()).unwrap();
    let graph = cuda
        .capture(|| (0..1000).try_for_each(|_| cuda.binary(&plan, None, Some(&y.storage), &mut x.storage)))
        .unwrap();
    for _ in 0..3 {
        graph.replay().unwrap();
        cuda.synchronize().unwrap();
        let start = Instant::now();
        graph.replay().unwrap();
        let host = start.elapsed();
        cuda.synchronize().unwrap();
        println!("1000 adds of 4 elements: replay returns after {host:.2?}, done after {:.2?}", start.elapsed());
    }
}
