//! Elements not written or written elsewhere, memory, errors, threads, capability.

use super::{ALL, ARITHMETIC, map, restore};
use crate::faults::{Fault, Special};

pub(super) const FAULTS: &[Fault] = &[
    Fault::output("the last element of a count not divisible by 32 is not written", ALL, |written| {
        if written.positions.len() % 32 != 0 {
            restore(written, written.positions.len() - 1);
        }
    })
    .number(1),
    Fault::output("the tail of a count of 128·n + 1 is skipped", ALL, |written| {
        if written.positions.len() % 128 == 1 {
            restore(written, written.positions.len() - 1);
        }
    })
    .number(2),
    Fault::output("the last element repeats the one before", ALL, |written| {
        if let [.., before, last] = *written.positions {
            written.after.set_bits(last, written.after.bits(before));
        }
    })
    .number(3),
    Fault::output("the 33rd row and column of a tile are exchanged", &["matmul"], |written| {
        let [.., rows, columns] = *written.sizes else { return };
        for (batch, start) in (0..written.walked.len()).step_by((rows * columns).max(1)).enumerate() {
            debug_assert_eq!(batch * rows * columns, start);
            for i in 33..rows.min(columns) {
                let (a, b) = (written.walked[start + 32 * columns + i], written.walked[start + i * columns + 32]);
                let (upper, lower) = (written.after.bits(a), written.after.bits(b));
                written.after.set_bits(a, lower);
                written.after.set_bits(b, upper);
            }
        }
    })
    .number(7),
    Fault::output("gaps between strided elements are overwritten", ALL, |written| {
        if let Some(pair) = written.positions.windows(2).find(|pair| pair[1] > pair[0] + 1) {
            written.after.set_bits(pair[0] + 1, written.after.bits(pair[0] + 1) ^ 1);
        }
    })
    .number(14),
    Fault::output("the output's strides are ignored", ALL, |written| {
        let Some(&first) = written.positions.first() else { return };
        let bits: Vec<u64> = written.walked.iter().map(|&at| written.after.bits(at)).collect();
        written.after.bytes.clone_from(&written.before.bytes);
        for (at, bits) in (first..written.after.storage_len()).zip(bits) {
            written.after.set_bits(at, bits);
        }
    })
    .number(14),
    Fault::output("the result is written into a clone", ALL, |written| {
        written.after.bytes.clone_from(&written.before.bytes);
    })
    .number(15),
    Fault::output("the result is added to the old output", ARITHMETIC, |written| {
        map(written, |old, new| if old == 0.0 { new } else { old + new });
    })
    .number(16),
    Fault::special("the first element of an input is changed", ALL, Special::InputChanged).number(18),
    Fault::output("one element after the view is overwritten", ALL, |written| {
        if let Some(&last) = written.positions.last().filter(|&&last| last + 1 < written.after.storage_len()) {
            written.after.set_bits(last + 1, written.after.bits(last + 1) ^ 1);
        }
    })
    .number(20),
    Fault::special("an op in place reads what it has just written", &["unary", "binary"], Special::InPlaceTwice)
        .number(21),
    Fault::special("every eighth download does not wait for the result", ALL, Special::NoWait).number(22),
    Fault::output("every eighth call leaves one element unwritten", ALL, |written| {
        if written.calls % 8 == 7 && !written.positions.is_empty() {
            restore(written, 0);
        }
    })
    .number(22),
    Fault::special("memory in use is handed out again", ALL, Special::FreedInUse).number(23),
    Fault::special("an integer division by zero is not reported", &["binary"], Special::SilentDivision)
        .on(|_, dtype| dtype.is_int())
        .number(42),
    Fault::special("an integer division by zero is reported for ever", &["binary"], Special::StickyDivision)
        .on(|_, dtype| dtype.is_int()),
    Fault::special("a bool byte above 1 is taken for false", &[], Special::BoolBytes).laws_only().number(49),
    Fault::output("elements after the first 65,535 are not written", ALL, |written| {
        for &at in written.walked.iter().skip(0xffff) {
            written.after.set_bits(at, written.before.bits(at));
        }
    })
    .laws_only()
    .number(65),
    Fault::output("a single element is not written", ALL, |written| {
        if written.positions.len() == 1 {
            restore(written, 0);
        }
    })
    .number(66),
    Fault::special("a call without elements is an error", ALL, Special::EmptyCall).number(66),
    Fault::special("a call is lost when more than 64 are queued", ALL, Special::LostCall).laws_only(),
    Fault::special("supports() claims what does not run", ALL, Special::Lies).number(71),
    Fault::special("supports() denies what runs", ALL, Special::Denies).number(71),
    Fault::special("download starts at element 0", &[], Special::DownloadStart).laws_only(),
    Fault::special("write starts at element 0", &[], Special::WriteStart).laws_only(),
    Fault::special("threads share a scratch buffer", ALL, Special::ThreadScratch).laws_only(),
];
