//! What transformers take beside attention: cross entropy, rotary embedding, a cache of keys and values.

use congruent::ops::{CrossEntropy, Pairing, Reduction};
use congruent::{DType, ErrorKind, KvCache, Result, Tensor};

use crate::{AnyTensor, cpu, f32s};

/// −Σ p · log softmax of each row.
fn losses(logits: &[f64], targets: &[f64], classes: usize) -> Vec<f64> {
    let rows = logits.chunks(classes).zip(targets.chunks(classes));
    rows.map(|(row, target)| {
        let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        -row.iter().zip(target).map(|(x, p)| p * (x - sum)).sum::<f64>()
    })
    .collect()
}

#[test]
fn cross_entropy_is_its_formula() -> Result<()> {
    let logits = [0.5, -1.0, 2.0, 0.0, 3.0, -0.25, 1.0, 1.5, -2.0];
    let x = Tensor::from_slice(&cpu(), &logits, [3, 3])?;
    let classes = Tensor::from_slice(&cpu(), &[2_i64, -100, 0], [3])?;
    for smoothing in [0.0, 0.3] {
        let spread = |p: f64| p * (1.0 - smoothing) + smoothing / 3.0;
        let target = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0].map(spread);
        let mut rows = losses(&logits, &target, 3);
        rows[1] = 0.0;
        let options = CrossEntropy { ignore: Some(-100), smoothing, reduction: Reduction::None };
        let near = |got: Vec<f64>, expected: &[f64]| {
            got.len() == expected.len() && got.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-14)
        };
        assert!(near(x.cross_entropy(&classes, options)?.to_vec()?, &rows));
        let sum = CrossEntropy { reduction: Reduction::Sum, ..options };
        assert!(near(x.cross_entropy(&classes, sum)?.to_vec()?, &[rows[0] + rows[2]]));
        let mean = CrossEntropy { reduction: Reduction::Mean, ..options };
        assert!(near(x.cross_entropy(&classes, mean)?.to_vec()?, &[(rows[0] + rows[2]) / 2.0]));
        let given = [0.2, 0.3, 0.5, 1.0, 0.0, 0.0, 0.1, 0.1, 0.1];
        let rows = losses(&logits, &given.map(spread), 3);
        let of_given = CrossEntropy { ignore: None, ..mean };
        let got = x.cross_entropy(&Tensor::from_slice(&cpu(), &given, [3, 3])?, of_given)?;
        assert!(near(got.to_vec()?, &[rows.iter().sum::<f64>() / 3.0]));
    }
    Ok(())
}

#[test]
fn gradients_of_cross_entropy_are_slopes() -> Result<()> {
    let logits = [0.5, -1.0, 2.0, 0.0, 3.0, -0.25];
    let x = Tensor::from_slice(&cpu(), &logits, [2, 3])?;
    let classes = Tensor::from_slice(&cpu(), &[2_i64, 0], [2])?;
    let given = Tensor::from_slice(&cpu(), &[0.2, 0.3, 0.1, 1.0, 0.5, 0.0], [2, 3])?;
    for target in [&classes, &given] {
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let options = CrossEntropy { smoothing: 0.1, reduction, ..CrossEntropy::default() };
            let shape = x.cross_entropy(target, options)?.shape().to_vec();
            let grad = Tensor::full(&cpu(), 0.7, &shape, DType::F64)?;
            let loss = |at: usize, step: f64| -> Result<f64> {
                let mut moved = logits;
                moved[at] += step;
                let loss = Tensor::from_slice(&cpu(), &moved, [2, 3])?.cross_entropy(target, options)?;
                (loss * &grad)?.sum(.., false)?.item::<f64>()
            };
            for (at, gradient) in x.cross_entropy_grad(target, &grad, options)?.to_vec::<f64>()?.into_iter().enumerate()
            {
                let slope = (loss(at, 1e-5)? - loss(at, -1e-5)?) / 2e-5;
                assert!((slope - gradient).abs() < 1e-9, "{slope} and {gradient}");
            }
        }
    }
    Ok(())
}

#[test]
fn bad_targets_are_named() -> Result<()> {
    let x = f32s(&[0.0; 6], [2, 3]);
    let kind = |target: &AnyTensor, options| x.cross_entropy(target, options).unwrap_err().kind();
    let plain = CrossEntropy::default();
    assert_eq!(kind(&AnyTensor::zeros(&cpu(), [3], DType::I64)?, plain), ErrorKind::Shape);
    assert_eq!(kind(&AnyTensor::zeros(&cpu(), [2], DType::I32)?, plain), ErrorKind::DType);
    let smoothing = CrossEntropy { smoothing: 1.5, ..plain };
    assert_eq!(kind(&AnyTensor::zeros(&cpu(), [2], DType::I64)?, smoothing), ErrorKind::Argument);
    assert_eq!(kind(&x, CrossEntropy { ignore: Some(0), ..plain }), ErrorKind::Argument);
    let empty = AnyTensor::zeros(&cpu(), [0, 3], DType::F32)?;
    let none = CrossEntropy { reduction: Reduction::None, ..plain };
    assert_eq!(empty.cross_entropy(&AnyTensor::zeros(&cpu(), [0], DType::I64)?, none)?.shape(), [0]);
    Ok(())
}

#[test]
fn rotary_embedding_turns_pairs() -> Result<()> {
    let numbers: Vec<f64> = (0..2 * 3 * 5).map(|at| f64::from(at) * 0.3 - 2.0).collect();
    let x = Tensor::from_slice(&cpu(), &numbers, [2, 3, 5])?;
    let (cos, sin) = Tensor::rotary_angles(&cpu(), 7..10, 4, 100.0, DType::F64)?;
    for (pairing, pairs) in [(Pairing::Halves, [[0, 2], [1, 3]]), (Pairing::Neighbours, [[0, 1], [2, 3]])] {
        let mut expected = numbers.clone();
        for row in 0..6 {
            for (pair, [a, b]) in pairs.into_iter().enumerate() {
                let angle = (7 + row % 3) as f64 * 100_f64.powf(-(pair as f64) / 2.0);
                let (a, b) = (row * 5 + a, row * 5 + b);
                expected[a] = numbers[a] * angle.cos() - numbers[b] * angle.sin();
                expected[b] = numbers[a] * angle.sin() + numbers[b] * angle.cos();
            }
        }
        let got = x.rotary(&cos, &sin, pairing)?.to_vec::<f64>()?;
        assert!(got.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-14), "{got:?} {expected:?}");
    }
    let wide = Tensor::ones(&cpu(), [3, 3], DType::F64)?;
    assert_eq!(x.rotary(&wide, &wide, Pairing::Halves).unwrap_err().kind(), ErrorKind::Shape);
    let odd = AnyTensor::rotary_angles(&cpu(), 0..1, 3, 10.0, DType::F32);
    assert_eq!(odd.unwrap_err().kind(), ErrorKind::Shape);
    Ok(())
}

#[test]
fn a_cache_grows_up_to_its_room() -> Result<()> {
    let mut cache = KvCache::new(&cpu(), [1, 1, 3, 1], 2, DType::F32)?;
    assert!(cache.is_empty());
    cache.append(&f32s(&[1.0, 2.0], [1, 1, 2, 1]), &f32s(&[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2]))?;
    let before = cache.keys()?;
    cache.truncate(1);
    cache.append(&f32s(&[5.0], [1, 1, 1, 1]), &f32s(&[6.0, 7.0], [1, 1, 1, 2]))?;
    assert_eq!(before.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!((cache.len(), cache.keys()?.to_vec::<f32>()?), (2, vec![1.0, 5.0]));
    assert_eq!(cache.values()?.to_vec::<f32>()?, [1.0, 2.0, 6.0, 7.0]);
    let two = f32s(&[0.0; 2], [1, 1, 2, 1]);
    assert_eq!(cache.append(&two, &f32s(&[0.0; 4], [1, 1, 2, 2])).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(cache.append(&two, &two).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(cache.len(), 2);
    Ok(())
}
