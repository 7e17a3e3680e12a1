//! Pooling past what 32 bits hold; all else is the kit's.

use congruent_backend_api::ops::copy::Fill;
use congruent_backend_api::ops::pool::{Pool, PoolOp, PoolOptions};
use congruent_backend_api::{Backend, CopyOps, DType, PoolOps, Scalar, View};

use crate::support::{alone, cuda, layout};

#[test]
fn windows_and_positions_past_32_bits() {
    if !alone("pool::windows_and_positions_past_32_bits") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    const WINDOW: usize = 1 << 12;
    let (len, windows) = ((1 << 32) + WINDOW, (1 << 20) + 1);
    let (x, y) = (layout(&[1, 1, len]), layout(&[1, 1, windows]));
    let mut storage = cuda.alloc(DType::U8, len).unwrap();
    let view = View { dtype: DType::U8, layout: &x };
    cuda.fill(&Fill::new(Scalar::Int(3), view).unwrap(), &mut storage).unwrap();
    cuda.write(&[9], &mut storage, len - 2).unwrap();
    let options = PoolOptions::new([WINDOW; 3]);
    let mut bytes = [0; 8];
    for (op, dtype) in [(PoolOp::MaxPool, DType::U8), (PoolOp::ArgmaxPool, DType::I64)] {
        let mut out = cuda.alloc(dtype, windows).unwrap();
        let plan = Pool::new(op, view, None, &options, View { dtype, layout: &y }).unwrap();
        cuda.pool(&plan, &storage, None, &mut out).unwrap();
        cuda.download(&out, windows - 1, &mut bytes[..dtype.size()]).unwrap();
        match op {
            PoolOp::MaxPool => assert_eq!(bytes[0], 9),
            _ => assert_eq!(i64::from_le_bytes(bytes), len as i64 - 2),
        }
    }
}
