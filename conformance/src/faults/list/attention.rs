//! Wrong attention.

use crate::faults::{Fault, Special};

const ATTENTION: &[&str] = &["attention"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::special("attention leaves the scale out", ATTENTION, Special::ScaleLost),
    Fault::special("causal attention sees one key too many", ATTENTION, Special::CausalLate),
    Fault::special("a query that sees no key gives NaN", ATTENTION, Special::BlindNan),
    Fault::special("head h reads key head h mod kv_heads", ATTENTION, Special::HeadModulo),
    Fault::special("a bool mask is true where a key is hidden", ATTENTION, Special::MaskInverted),
];
