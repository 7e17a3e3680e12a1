//! The scans.

use std::io::Read;

use congruent::{Error, ErrorKind, Result};

/// Rows and columns of a scan.
pub(super) const SIDE: usize = 8;
pub(super) const PIXELS: usize = SIDE * SIDE;
pub(super) const CLASSES: usize = 10;
pub(super) const TEST_SAMPLES: usize = 360;

/// The scans with pixels in 0..=1, shuffled; the last [`TEST_SAMPLES`] are for testing.
pub(super) struct Digits {
    pub(super) pixels: Vec<f32>,
    pub(super) labels: Vec<i64>,
}

impl Digits {
    pub(super) fn read(seed: u64) -> Result<Self> {
        let packed = include_bytes!("../data/digits.csv.gz");
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Argument, "digits", "examples/data/digits.csv.gz is damaged").with_source(source)
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).map_err(|error| fail(error.into()))?;
        let mut lines: Vec<(u64, &str)> =
            text.lines().enumerate().map(|(index, line)| (hash(seed, index as u64), line)).collect();
        lines.sort_unstable();
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for (_, line) in lines {
            let numbers: Vec<u8> = line
                .split(',')
                .map(str::parse)
                .collect::<Result<_, std::num::ParseIntError>>()
                .map_err(|error| fail(error.into()))?;
            let Some((&label, scan)) = numbers.split_last().filter(|(_, scan)| scan.len() == PIXELS) else {
                return Err(fail("a line has another number of columns than 65".into()));
            };
            labels.push(label.into());
            pixels.extend(scan.iter().map(|&pixel| f32::from(pixel) / 16.0));
        }
        Ok(Self { pixels, labels })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014) of a counter: the same numbers on every platform.
pub(super) fn hash(seed: u64, counter: u64) -> u64 {
    let mut x = seed
        .wrapping_add(1)
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(counter)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
