//! Plans by brute force: their nests visit exactly the elements of the layouts, a storage of the least length that
//! `check` accepts holds all of these, and plans of one memory pattern are equal. `wild.rs` has the extreme numbers.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::iter::zip;

use congruent_backend_api::ops::compare::Where;
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::{DType, Layout, MAX_RANK, Nest, Scalar, Shape, Source, Storage, View};
use proptest::prelude::*;
use proptest::sample::{Index, select};

const DTYPE: DType = DType::F32;

#[derive(Debug)]
struct Length(DType, usize);

impl Storage for Length {
    fn dtype(&self) -> DType {
        self.0
    }

    fn len(&self) -> usize {
        self.1
    }
}

/// The length that holds all of `elements` and no more.
fn exact(dtype: DType, elements: &[usize]) -> Length {
    Length(dtype, elements.iter().max().map_or(0, |last| last + 1))
}

fn shorter(storage: &Length) -> Option<Length> {
    storage.1.checked_sub(1).map(|len| Length(storage.0, len))
}

/// Ranks 0 to 8 and at most 64 elements.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![4 => Just(1_usize), 4 => Just(2), 2 => Just(3), 1 => Just(5), 1 => Just(0)];
    prop::collection::vec(size, 0..=MAX_RANK).prop_map(|mut sizes| {
        let mut count = 1;
        for size in &mut sizes {
            *size = if count * *size > 64 { 1 } else { *size };
            count *= (*size).max(1);
        }
        sizes
    })
}

/// What decides about the strides and the offset of a layout of any shape.
#[derive(Clone, Debug)]
struct Memory {
    strides: Vec<isize>,
    /// The strides that the contract gives no meaning: of axes of size 1, or without elements.
    wild: Vec<isize>,
    order: Vec<usize>,
    extra: usize,
}

fn memory() -> impl Strategy<Value = Memory> {
    let wild = select(vec![0, 1, -1, 7, isize::MIN, isize::MAX, 1 << 62]);
    let strides = prop::collection::vec(-9..=9_isize, MAX_RANK);
    let order = Just((0..MAX_RANK).collect::<Vec<_>>()).prop_shuffle();
    (strides, prop::collection::vec(wild, MAX_RANK), order, 0..4_usize)
        .prop_map(|(strides, wild, order, extra)| Memory { strides, wild, order, extra })
}

impl Memory {
    /// The same memory with other numbers where none has a meaning.
    fn tame(&self) -> Self {
        Self { wild: vec![0; MAX_RANK], ..self.clone() }
    }

    /// Any strides: elements may be shared.
    fn input(&self, sizes: &[usize]) -> Layout {
        self.layout(sizes, &self.strides)
    }

    /// Any order, gaps and directions, but no two indices share an element.
    fn output(&self, sizes: &[usize]) -> Layout {
        let (mut strides, mut reach) = ([0; MAX_RANK], 0);
        for &axis in self.order.iter().filter(|&&axis| axis < sizes.len()) {
            let step = reach + 1 + self.strides[axis].abs() / 4;
            strides[axis] = step * if self.strides[axis] < 0 { -1 } else { 1 };
            reach += step * (sizes[axis] as isize - 1).max(0);
        }
        self.layout(sizes, &strides)
    }

    fn layout(&self, sizes: &[usize], strides: &[isize]) -> Layout {
        let empty = sizes.contains(&0);
        let strides: Vec<_> = zip(sizes, zip(strides, &self.wild))
            .map(|(&size, (&own, &wild))| if size == 1 || empty { wild } else { own })
            .collect();
        let back =
            |(&size, &stride): (&usize, &isize)| if size > 1 { (stride * (1 - size as isize)).max(0) } else { 0 };
        let offset = if empty {
            self.wild[0].cast_unsigned()
        } else {
            zip(sizes, &strides).map(back).sum::<isize>() as usize + self.extra
        };
        Layout::new("test", sizes, &strides, offset).unwrap()
    }
}

/// The index tuples of a shape in row-major order.
fn indices(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![vec![]], |heads, &size| {
        heads.iter().flat_map(|head| (0..size).map(|index| [&head[..], &[index]].concat())).collect()
    })
}

/// The storage element of an index tuple, which broadcasts: leading axes may be missing, axes of size 1 stay at 0.
fn at(layout: &Layout, index: &[usize]) -> usize {
    let index = &index[index.len() - layout.rank()..];
    let axes = zip(layout.shape().iter(), zip(layout.strides(), index));
    axes.fold(
        layout.offset() as isize,
        |at, (&size, (&stride, &index))| {
            if size == 1 { at } else { at + index as isize * stride }
        },
    ) as usize
}

/// The elements that a nest visits together, in its order.
fn visits<const N: usize>(nest: &Nest<N>) -> Vec<[usize; N]> {
    let visit = |index: Vec<usize>| {
        std::array::from_fn(|operand| {
            zip(nest.strides(operand), &index)
                .fold(nest.offset(operand), |at, (&stride, &index)| at.strict_add_signed(stride * index as isize))
        })
    };
    indices(nest.sizes()).into_iter().map(visit).collect()
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

fn view(dtype: DType, layout: &Layout) -> View<'_> {
    View { dtype, layout }
}

fn chosen(condition: &Layout, a: &Layout, out: &Layout) -> Where {
    let [condition, a] =
        [(DType::Bool, condition), (DTYPE, a)].map(|(dtype, layout)| Source::View(view(dtype, layout)));
    Where::new(condition, a, Source::Scalar(Scalar::Float(0.0)), view(DTYPE, out)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn elementwise(
        sizes in sizes(), out in memory(), a in memory(), condition in memory(),
        dropped in any::<Index>(), ones in prop::collection::vec(any::<bool>(), MAX_RANK),
        flipped in prop::collection::vec(any::<bool>(), MAX_RANK), order in Just((0..MAX_RANK).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let small: Vec<_> = zip(&sizes, &ones).map(|(&size, &one)| if one { 1 } else { size }).collect();
        let tail = &small[dropped.index(sizes.len() + 1)..];
        let tame = chosen(&condition.tame().input(&sizes), &a.tame().input(tail), &out.tame().output(&sizes));
        let (out, a, condition) = (out.output(&sizes), a.input(tail), condition.input(&sizes));
        let plan = chosen(&condition, &a, &out);
        prop_assert_eq!(plan, tame);
        let expected = indices(&sizes).iter().map(|index| [at(&out, index), at(&condition, index), at(&a, index)]).collect();
        let visited: Vec<_> = visits(plan.elementwise().nest()).into_iter().map(|visit| [visit[0], visit[1], visit[2]]).collect();
        prop_assert_eq!(sorted(visited.clone()), sorted(expected));

        let of = |operand: usize, dtype| exact(dtype, &visited.iter().map(|visit| visit[operand]).collect::<Vec<_>>());
        let storages = [of(0, DTYPE), of(1, DType::Bool), of(2, DTYPE)];
        let check = |[out, condition, a]: [&Length; 3]| plan.check(Some(condition), Some(a), None, out);
        prop_assert!(check(storages.each_ref()).is_ok());
        for operand in 0..3 {
            if let Some(short) = shorter(&storages[operand]) {
                let mut given = storages.each_ref();
                given[operand] = &short;
                prop_assert!(check(given).is_err());
            }
        }

        // The same pattern told in another way: axes in another order, walked backwards, and an axis of size 1 more.
        let axes: Vec<isize> = order.iter().filter(|&&axis| axis < sizes.len()).map(|&axis| axis as isize).collect();
        let back: Vec<isize> = (0..sizes.len()).filter(|&axis| flipped[axis]).map(|axis| axis as isize).collect();
        let other = |layout: &Layout| {
            let same = layout.broadcast_to("test", &sizes).unwrap().flip(&back).unwrap().permute(&axes).unwrap();
            if sizes.len() < MAX_RANK { same.unsqueeze(0).unwrap() } else { same }
        };
        prop_assert_eq!(chosen(&other(&condition), &other(&a), &other(&out)), plan);
    }

    #[test]
    fn reductions(
        sizes in sizes(), x in memory(), out in memory(),
        mask in prop::collection::vec(any::<bool>(), MAX_RANK), keepdim: bool, along in any::<Index>(),
    ) {
        let axes: Vec<isize> = (0..sizes.len()).filter(|&axis| mask[axis]).map(|axis| axis as isize).collect();
        let shape = Reduce::shape(ReduceOp::Sum, &sizes, Some(&axes), keepdim).unwrap();
        let sum = |x: &Layout, target: &Layout| {
            Reduce::new(ReduceOp::Sum, view(DTYPE, x), Some(&axes), view(DTYPE, target)).unwrap()
        };
        let tame = sum(&x.tame().input(&sizes), &out.tame().output(&shape));
        let (tame_x, x, target) = (x.tame().input(&sizes), x.input(&sizes), out.output(&shape));
        let plan = sum(&x, &target);
        prop_assert_eq!(plan, tame);
        let result = |index: &[usize]| -> Vec<usize> {
            let kept = |axis: &usize| keepdim || !axes.contains(&(*axis as isize));
            (0..sizes.len()).filter(kept).map(|axis| if axes.contains(&(axis as isize)) { 0 } else { index[axis] }).collect()
        };
        let expected: Vec<_> = indices(&sizes).iter().map(|index| [at(&target, &result(index)), at(&x, index)]).collect();
        let kept = visits(plan.kept());
        let visited = kept.iter().flat_map(|&[out, x]| visits(plan.reduced()).into_iter().map(move |[step]| [out, x + step]));
        prop_assert_eq!(sorted(visited.collect()), sorted(expected.clone()));
        prop_assert_eq!(sorted(kept.iter().map(|visit| visit[0]).collect()), sorted(indices(&shape).iter().map(|index| at(&target, index)).collect()));
        let all = |operand: usize| expected.iter().map(|visit| visit[operand]).collect::<Vec<_>>();
        let (source, drain) = (exact(DTYPE, &all(1)), exact(DTYPE, &kept.iter().map(|visit| visit[0]).collect::<Vec<_>>()));
        prop_assert!(plan.check(&source, &drain).is_ok());
        prop_assert!(shorter(&source).is_none_or(|short| plan.check(&short, &drain).is_err()));
        prop_assert!(shorter(&drain).is_none_or(|short| plan.check(&source, &short).is_err()));

        if sizes.is_empty() || sizes.contains(&0) {
            return Ok(());
        }
        let along = along.index(sizes.len());
        let shape = Shape::new("test", &sizes).unwrap().reduced(&std::array::from_fn(|axis| axis == along), true);
        let target = out.output(&shape);
        let search = |x: &Layout, target: &Layout| {
            ArgReduce::new(ArgReduceOp::Argmax, view(DTYPE, x), along as isize, view(DType::I64, target)).unwrap()
        };
        let plan = search(&x, &target);
        prop_assert_eq!(plan, search(&tame_x, &out.tame().output(&shape)));
        let searched = |index: &[usize]| -> Vec<usize> {
            let position = |position| zip(0.., index).map(|(axis, &index)| if axis == along { position } else { index }).collect::<Vec<_>>();
            (0..sizes[along]).map(|index| at(&x, &position(index))).collect()
        };
        let expected = indices(&shape).iter().map(|index| (at(&target, index), searched(index))).collect();
        let line = |x: usize| (0..plan.len()).map(|position| x.strict_add_signed(position as isize * plan.stride())).collect::<Vec<_>>();
        prop_assert_eq!(sorted(visits(plan.kept()).into_iter().map(|[out, x]| (out, line(x))).collect()), sorted(expected));
    }

    #[test]
    fn products(
        batch in prop::collection::vec(0..4_usize, 0..3), ones in prop::collection::vec(any::<bool>(), 2 * 3),
        [m, n, k] in prop::array::uniform3(0..4_usize), [row, column] in any::<[bool; 2]>(),
        memories in prop::array::uniform3(memory()), alpha in select(vec![0.0, 2.0]),
    ) {
        let small = |ones: &[bool]| zip(&batch, ones).map(|(&size, &one)| if one { 1 } else { size }).collect::<Vec<_>>();
        let left = if row { vec![k] } else { [small(&ones[..3]), vec![m, k]].concat() };
        let right = if column { vec![k] } else { [small(&ones[3..]), vec![k, n]].concat() };
        let shape = Matmul::shape(&left, &right).unwrap();
        let layouts = |[a, b, out]: [Memory; 3]| [a.input(&left), b.input(&right), out.output(&shape)];
        let tame = layouts(memories.each_ref().map(Memory::tame));
        let [a, b, out] = layouts(memories);
        let [alpha, beta] = [alpha, 1.0].map(Scalar::Float);
        let product = |a: &Layout, b: &Layout, out: &Layout| {
            Matmul::new(view(DTYPE, a), view(DTYPE, b), alpha, beta, view(DTYPE, out)).unwrap()
        };
        let plan = product(&a, &b, &out);
        prop_assert_eq!(plan, product(&tame[0], &tame[1], &tame[2]));
        let head = shape.len() - usize::from(!row) - usize::from(!column);
        let mut expected = Vec::new();
        for index in indices(&shape) {
            for inner in 0..plan.k() {
                let of_a = if row { vec![inner] } else { [&index[..head], &[index[head], inner]].concat() };
                let of_b = if column { vec![inner] } else { [&index[..head], &[inner, index[shape.len() - 1]]].concat() };
                expected.push([at(&out, &index), at(&a, &of_a), at(&b, &of_b)]);
            }
        }
        prop_assert_eq!(plan.k(), if alpha.to_f64() == 0.0 { 0 } else { k });
        let mut visited = Vec::new();
        for start in visits(plan.batch()) {
            for index in indices(&[plan.m(), plan.n(), plan.k()]) {
                let steps = [[index[0], index[1]], [index[0], index[2]], [index[2], index[1]]];
                visited.push(std::array::from_fn(|operand| {
                    let (strides, [row, column]) = (plan.matrices()[operand], steps[operand].map(|index| index as isize));
                    start[operand].strict_add_signed(row * strides.row + column * strides.col)
                }));
            }
        }
        prop_assert_eq!(sorted(visited), sorted(expected));
        let all = |layout: &Layout| exact(DTYPE, &indices(layout.shape()).iter().map(|index| at(layout, index)).collect::<Vec<_>>());
        let [a, b, out] = [&a, &b, &out].map(all);
        prop_assert!(plan.check(&a, &b, &out).is_ok());
        prop_assert!(shorter(&a).is_none_or(|short| plan.check(&short, &b, &out).is_err()));
        prop_assert!(shorter(&out).is_none_or(|short| plan.check(&a, &b, &short).is_err()));
    }
}
