//! A backend outside the workspace's own: f32 in main memory, with copies and arithmetic but no other family.
//!
//! Tensors of it have the methods of those two families and no others; the rest is a compile error, not a surprise
//! at run time. `cargo run --example custom_backend`

use std::sync::Arc;

use congruent::api::ops::binary::{Binary, BinaryOp};
use congruent::api::ops::copy::{Copy, Fill};
use congruent::api::{Nest, Operand, Storage, check_transfer};
use congruent::ops::Op;
use congruent::{Backend, BinaryOps, CopyOps, DType, Error, ErrorKind, Result, Tensor};

/// Floats in main memory.
#[derive(Debug)]
struct Plain;

/// Memory of [`Plain`].
#[derive(Debug)]
struct Floats(Vec<f32>);

impl Storage for Floats {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Backend for Plain {
    type Storage = Floats;

    fn name(&self) -> &str {
        "plain"
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        dtype == DType::F32
            && match op {
                Op::Binary(op) => function(op).is_some(),
                Op::Copy | Op::Fill => true,
                _ => false,
            }
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Floats> {
        if dtype != DType::F32 {
            return Err(Error::unsupported(self.name(), "alloc", dtype));
        }
        let mut floats = Vec::new();
        floats.try_reserve_exact(len).map_err(|source| {
            let message = format!("no memory for {len} f32 elements");
            Error::new(ErrorKind::OutOfMemory, "alloc", message).with_source(source)
        })?;
        floats.resize(len, 0.0);
        Ok(Floats(floats))
    }

    fn write(&self, bytes: &[u8], storage: &mut Floats, start: usize) -> Result<()> {
        let count = check_transfer("write", storage, start, bytes.len())?;
        let (elements, _) = bytes.as_chunks();
        for (element, &bytes) in storage.0[start..start + count].iter_mut().zip(elements) {
            *element = f32::from_ne_bytes(bytes);
        }
        Ok(())
    }

    fn download(&self, storage: &Floats, start: usize, bytes: &mut [u8]) -> Result<()> {
        let count = check_transfer("download", storage, start, bytes.len())?;
        let (elements, _) = bytes.as_chunks_mut();
        for (bytes, element) in elements.iter_mut().zip(&storage.0[start..start + count]) {
            *bytes = element.to_ne_bytes();
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

impl CopyOps for Plain {
    fn fill(&self, plan: &Fill, out: &mut Floats) -> Result<()> {
        plan.check(out)?;
        let value = plan.value().to_f64() as f32;
        visit(plan.elementwise().nest(), |[at]| out.0[at] = value);
        Ok(())
    }

    fn copy(&self, plan: &Copy, x: &Floats, out: &mut Floats) -> Result<()> {
        plan.check(x, out)?;
        visit(plan.elementwise().nest(), |[to, from]| out.0[to] = x.0[from]);
        Ok(())
    }
}

impl BinaryOps for Plain {
    fn binary(&self, plan: &Binary, a: Option<&Floats>, b: Option<&Floats>, out: &mut Floats) -> Result<()> {
        plan.check(a, b, out)?;
        let Some(function) = function(plan.op()) else {
            return Err(Error::unsupported(self.name(), plan.op().name(), plan.dtype()));
        };
        visit(plan.elementwise().nest(), |[to, left, right]| {
            // The plan says which operands are views, scalars, or the output's own elements.
            let read = |operand: usize, storage: Option<&Floats>, at: usize| match plan.elementwise().operand(operand) {
                Operand::Scalar(scalar) => scalar.to_f64() as f32,
                Operand::Storage { .. } | Operand::Output => storage.map_or(out.0[to], |storage| storage.0[at]),
            };
            out.0[to] = function(read(1, a, left), read(2, b, right));
        });
        Ok(())
    }
}

fn function(op: BinaryOp) -> Option<fn(f32, f32) -> f32> {
    match op {
        BinaryOp::Add => Some(|a, b| a + b),
        BinaryOp::Sub => Some(|a, b| a - b),
        BinaryOp::Mul => Some(|a, b| a * b),
        BinaryOp::Div => Some(|a, b| a / b),
        _ => None,
    }
}

/// Calls `f` with the elements that the operands of a nest meet, visit by visit.
fn visit<const N: usize>(nest: &Nest<N>, mut f: impl FnMut([usize; N])) {
    for visit in 0..nest.count() {
        let mut at = std::array::from_fn(|operand| nest.offset(operand));
        let mut rest = visit;
        for (axis, &size) in nest.sizes().iter().enumerate().rev() {
            let index = (rest % size) as isize;
            rest /= size;
            for (operand, at) in at.iter_mut().enumerate() {
                *at = at.wrapping_add_signed(index * nest.strides(operand)[axis]);
            }
        }
        f(at);
    }
}

fn main() -> Result<()> {
    let plain = Arc::new(Plain);
    let x = Tensor::from_slice(&plain, &[1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    let mut y = ((&x + x.t()?)? / 2.0)?;
    println!("the symmetric part of\n{x}\nis\n{y}");
    y.sub_assign(&x.i(0)?)?;
    println!("less the first row:\n{y}");
    println!("what it lacks it says: {}", x.pow(2.0).map_or_else(|error| error.to_string(), |y| y.to_string()));
    Ok(())
}
