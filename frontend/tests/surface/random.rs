//! Generators and what they make.

use std::collections::HashSet;

use congruent::{DType, ErrorKind, Generator, Result, Tensor, backend};

#[test]
fn a_generator_goes_on_and_can_be_set_back() -> Result<()> {
    let device = backend("cpu")?;
    let generator = Generator::new(7);
    let first = Tensor::rand(&device, [5], DType::F64, &generator)?;
    assert_eq!((generator.seed(), generator.offset()), (7, 10));
    let second = Tensor::rand(&device, [5], DType::F64, &generator)?;
    let both = Tensor::rand(&device, [10], DType::F64, &Generator::new(7))?;
    assert_eq!(Tensor::cat(&[&first, &second], 0)?.to_vec::<f64>()?, both.to_vec::<f64>()?);
    let again = Tensor::rand(&device, [5], DType::F64, &Generator::at(7, 10))?;
    assert_eq!(again.to_vec::<f64>()?, second.to_vec::<f64>()?);
    // A call that fails takes nothing.
    let error = Tensor::randint(&device, 5..5, [3], DType::I32, &generator).unwrap_err();
    assert_eq!((error.kind(), generator.offset()), (ErrorKind::Argument, 20));
    Ok(())
}

#[test]
fn threads_share_a_generator_without_sharing_numbers() -> Result<()> {
    let device = backend("cpu")?;
    let generator = Generator::new(3);
    let drawn: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let draw = || Tensor::rand(&device, [100], DType::F64, &generator)?.to_vec::<f64>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<_>>()
    })?;
    let distinct: HashSet<u64> = drawn.iter().flatten().map(|x| x.to_bits()).collect();
    assert_eq!((distinct.len(), generator.offset()), (400, 800));
    Ok(())
}

#[test]
fn ranges_truths_and_orders() -> Result<()> {
    let device = backend("cpu")?;
    let generator = Generator::new(1);
    let dice = Tensor::randint(&device, 1..7, [600], DType::U8, &generator)?.to_vec::<u8>()?;
    assert_eq!(dice.iter().collect::<HashSet<_>>().len(), 6);
    assert!(dice.iter().all(|x| (1..7).contains(x)));
    assert_eq!(Tensor::bernoulli(&device, 1.0, [50], &generator)?.to_vec::<bool>()?, [true; 50]);
    let mut order = Tensor::randperm(&device, 100, &generator)?.to_vec::<i64>()?;
    order.sort_unstable();
    assert!(order.into_iter().eq(0..100));
    let cut = Tensor::truncated_normal(&device, (-1.0, 0.5), [1000], DType::F32, &generator)?.to_vec::<f32>()?;
    assert!(cut.iter().all(|x| (-1.0..=0.5).contains(x)));
    let none = Tensor::truncated_normal(&device, (50.0, 60.0), [1], DType::F32, &generator);
    assert_eq!(none.unwrap_err().kind(), ErrorKind::Argument);
    Ok(())
}

#[test]
fn dropout_scales_what_it_keeps() -> Result<()> {
    let device = backend("cpu")?;
    let x = Tensor::full(&device, f32::INFINITY, [400], DType::F32)?;
    let (y, kept) = x.dropout(0.75, &Generator::new(5))?;
    for (y, kept) in y.to_vec::<f32>()?.into_iter().zip(kept.to_vec::<bool>()?) {
        assert_eq!(y, if kept { f32::INFINITY } else { 0.0 });
    }
    let (y, _) = Tensor::ones(&device, [400], DType::F32)?.dropout(0.75, &Generator::new(5))?;
    let sum = y.sum((), false)?.item::<f32>()?;
    assert!(sum % 4.0 == 0.0 && (sum - 400.0).abs() < 240.0, "{sum}");
    assert_eq!(x.dropout(1.0, &Generator::new(5)).unwrap_err().kind(), ErrorKind::Argument);
    Ok(())
}

#[test]
fn positions_are_drawn_by_weight() -> Result<()> {
    let device = backend("cpu")?;
    let weights = Tensor::from_slice(&device, &[1_f32, 0.0, 2.0, 5.0, 0.0, 8.0, 0.0, 0.0], [2, 4])?;
    let drawn = weights.multinomial(8000, true, &Generator::new(11))?;
    assert_eq!(drawn.shape(), [2, 8000]);
    let counts = |row: &[i64]| [0, 1, 2, 3].map(|position| row.iter().filter(|&&x| x == position).count());
    let drawn = drawn.to_vec::<i64>()?;
    let (first, second) = (counts(&drawn[..8000]), counts(&drawn[8000..]));
    for (count, expected) in first.into_iter().zip([1000_usize, 0, 2000, 5000]) {
        // Five standard deviations.
        assert!(count.abs_diff(expected) <= 5 * expected.isqrt(), "{first:?}");
    }
    assert_eq!(second, [0, 8000, 0, 0]);
    // Weights of any dtype and layout, down to the least: 2⁻¹⁴⁹ beside 1 can be drawn, and hardly is.
    let whole = Tensor::from_slice(&device, &[5_u8, 9, 2, 9, 0, 9, 1, 9], [4, 2])?.t()?.narrow(0, 0, 1)?;
    let same = whole.multinomial(8000, true, &Generator::new(11))?.flip([1])?.flip([1])?.to_vec::<i64>()?;
    assert_eq!(counts(&same)[2], 0);
    let tiny = Tensor::from_slice(&device, &[f32::from_bits(1), 1.0], [2])?;
    assert_eq!(tiny.multinomial(1000, true, &Generator::new(1))?.to_vec::<i64>()?, [1; 1000]);
    Ok(())
}

#[test]
fn positions_drawn_without_replacement_come_once() -> Result<()> {
    let device = backend("cpu")?;
    let weights = Tensor::from_slice(&device, &[3.0, 0.0, 1.0, 1.0], [4])?.expand([3000, 4])?;
    let drawn = weights.multinomial(3, false, &Generator::new(2))?.to_vec::<i64>()?;
    let mut first = 0_usize;
    for row in drawn.chunks_exact(3) {
        let mut sorted = row.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 2, 3]);
        first += usize::from(row[0] == 0);
    }
    assert!(first.abs_diff(1800) < 5 * 27, "{first}");
    Ok(())
}

#[test]
fn weights_that_are_none_are_refused() -> Result<()> {
    let device = backend("cpu")?;
    let generator = Generator::new(2);
    let refused = |weights: &[f64], count, replacement| -> Result<String> {
        let weights = Tensor::from_slice(&device, weights, [1, weights.len()])?;
        let error = weights.multinomial(count, replacement, &generator).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        Ok(error.to_string())
    };
    for bad in [[1.0, -1.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
        assert!(refused(&bad, 1, true)?.contains("finite and not negative"));
    }
    assert!(refused(&[0.0, -0.0], 1, true)?.contains("needs a positive weight"));
    assert!(refused(&[], 1, true)?.contains("needs a positive weight"));
    assert!(refused(&[1.0, 0.0], 2, false)?.contains("1 positive weights"));
    assert_eq!(
        Tensor::ones(&device, [], DType::F32)?.multinomial(1, true, &generator).unwrap_err().kind(),
        ErrorKind::Axis
    );
    assert_eq!(generator.offset(), 0);
    let none = Tensor::ones(&device, [0, 3], DType::F32)?.multinomial(2, true, &generator)?;
    assert_eq!(none.shape(), [0, 2]);
    assert_eq!(Tensor::ones(&device, [2, 3], DType::F32)?.multinomial(0, false, &generator)?.shape(), [2, 0]);
    Ok(())
}
