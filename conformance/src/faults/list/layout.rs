//! Inputs read through another layout.

use crate::faults::Fault;

pub(super) const FAULTS: &[Fault] = &[
    Fault::input("the offset is ignored", |_, _, offset| *offset = 0).number(8),
    Fault::input("strides are ignored", |_, strides, _| {
        if let [.., last] = strides {
            *last = last.signum();
        }
    })
    .number(9),
    Fault::input("stride 0 is read as stride 1", |_, strides, _| {
        strides.iter_mut().filter(|stride| **stride == 0).for_each(|stride| *stride = 1);
    })
    .number(10),
    Fault::input("negative strides are taken absolutely", |_, strides, _| {
        strides.iter_mut().for_each(|stride| *stride = stride.abs());
    })
    .number(11),
    Fault::input("a permutation of three axes is applied inversely", |_, strides, _| {
        if let [.., a, b, c] = strides {
            (*a, *b, *c) = (*b, *c, *a);
        }
    })
    .number(12),
    Fault::input("vector loads round the address down", |_, _, offset| *offset &= !3).number(13),
    Fault::input("a row and a column broadcast the wrong way round", |sizes, strides, _| {
        if let ([.., m, n], [.., a, b]) = (sizes, strides)
            && m == n
            && (*a == 0) != (*b == 0)
        {
            std::mem::swap(a, b);
        }
    })
    .number(70),
];
