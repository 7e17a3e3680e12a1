//! Floats in main memory, with fills, copies and four kinds of arithmetic.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{
    Backend, BinaryOps, CopyOps, DType, Error, Nest, Op, Operand, Result, Storage, check_transfer,
};

#[derive(Debug)]
pub struct Plain;

#[derive(Debug)]
pub struct Floats(Vec<f32>);

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
        let listed = match op {
            Op::Binary(op) => function(op).is_some(),
            Op::Copy | Op::Fill => true,
            _ => false,
        };
        listed && dtype == DType::F32
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Floats> {
        match dtype {
            DType::F32 => Ok(Floats(vec![0.0; len])),
            _ => Err(Error::unsupported("plain", "alloc", dtype)),
        }
    }

    fn write(&self, bytes: &[u8], storage: &mut Floats, start: usize) -> Result<()> {
        let count = check_transfer("write", storage, start, bytes.len())?;
        for (float, &bytes) in storage.0[start..start + count].iter_mut().zip(bytes.as_chunks().0) {
            *float = f32::from_ne_bytes(bytes);
        }
        Ok(())
    }

    fn download(&self, storage: &Floats, start: usize, bytes: &mut [u8]) -> Result<()> {
        let count = check_transfer("download", storage, start, bytes.len())?;
        for (bytes, float) in bytes.as_chunks_mut().0.iter_mut().zip(&storage.0[start..start + count]) {
            *bytes = float.to_ne_bytes();
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
        visit(plan.elementwise().nest(), |[to]| out.0[to] = value);
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
        let f = function(plan.op()).ok_or_else(|| Error::unsupported("plain", plan.op().name(), plan.dtype()))?;
        visit(plan.elementwise().nest(), |[to, left, right]| {
            // An operand is a view of a storage, one number, or the output's old element.
            let read = |operand: usize, storage: Option<&Floats>, at: usize| match plan.elementwise().operand(operand) {
                Operand::Scalar(scalar) => scalar.to_f64() as f32,
                Operand::Storage { .. } | Operand::Output => storage.map_or(out.0[to], |floats| floats.0[at]),
            };
            out.0[to] = f(read(1, a, left), read(2, b, right));
        });
        Ok(())
    }
}

fn function(op: BinaryOp) -> Option<fn(f32, f32) -> f32> {
    match op {
        BinaryOp::Add => Some(|a, b| a + b),
        BinaryOp::Sub => Some(|a, b| a - b),
        BinaryOp::Mul => Some(|a, b| a * b),
        BinaryOp::Maximum => Some(f32::max),
        _ => None,
    }
}

/// Calls `f` with the storage elements that meet, visit by visit: any strides, any number of operands.
fn visit<const N: usize>(nest: &Nest<N>, mut f: impl FnMut([usize; N])) {
    for mut rest in 0..nest.count() {
        let mut at = std::array::from_fn(|operand| nest.offset(operand));
        for (axis, &size) in nest.sizes().iter().enumerate().rev() {
            for (operand, at) in at.iter_mut().enumerate() {
                *at = at.wrapping_add_signed((rest % size) as isize * nest.strides(operand)[axis]);
            }
            rest /= size;
        }
        f(at);
    }
}
