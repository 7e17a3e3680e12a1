//! Wrong attention.

use crate::faults::{Fault, Special};

const ATTENTION: &[&str] = &["attention"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::special("attention leaves the scale out", ATTENTION, Special::ScaleLost),
    Fault::special(
        "attention stands the first query at the first key, not the last at the last",
        ATTENTION,
        Special::AlignmentSwapped,
    ),
    Fault::special("a window of attention is one key too wide", ATTENTION, Special::WindowLate),
    Fault::special("attention leaves the soft cap out", ATTENTION, Special::SoftCapLost),
    Fault::special("attention ignores the lengths of the batch", ATTENTION, Special::LengthsLost),
    Fault::special("attention leaves the slopes out", ATTENTION, Special::SlopesLost),
    Fault::special("attention keeps what dropout leaves out", ATTENTION, Special::DropoutLost),
    Fault::special("dropout counts the weights from one", ATTENTION, Special::DropoutShifted),
    Fault::special("gradients of attention leave delta out", ATTENTION, Special::DeltaLost),
    Fault::special("only the first of the heads that share a key adds to its gradients", ATTENTION, Special::GroupLost),
    Fault::special("causal attention sees one key too many", ATTENTION, Special::CausalLate),
    Fault::special("a query that sees no key gives NaN", ATTENTION, Special::BlindNan),
    Fault::special("head h reads key head h mod kv_heads", ATTENTION, Special::HeadModulo),
    Fault::special("a bool mask is true where a key is hidden", ATTENTION, Special::MaskInverted),
];
