//! `Display` in the manner of NumPy: nested brackets, aligned columns, and beyond 1000 elements only the edges.

use std::fmt::{self, Write};

use congruent_backend_api::{CopyOps, DType, Element, Result, Scalar, bf16, f16, match_dtype};

use crate::tensor::Tensor;

/// The largest number of elements that is shown whole.
const THRESHOLD: usize = 1000;
/// How many elements remain at either edge of a longer axis.
const EDGE: usize = 3;
/// Columns after which a row goes on in the next line.
const WIDTH: usize = 100;
/// The most digits after the point.
const PRECISION: usize = 8;

impl<B: CopyOps + ?Sized> fmt::Display for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An axis of size 0 counts as 1: the brackets around it are shown.
        let elide = self.shape().iter().map(|&size| size.max(1)).product::<usize>() > THRESHOLD;
        let cells = match edges(self, elide).and_then(|edges| cells(&edges)) {
            Ok(cells) => align(cells),
            // Formatting must not fail for a reason of the device's, so the reason is what is shown.
            Err(error) => return write!(f, "<{error}> {}{:?}", self.dtype(), self.shape()),
        };
        let mut page = Page { text: String::new(), cells: cells.into_iter(), elide, column: 0 };
        page.array(self.shape(), 0)?;
        write!(f, "{} {}{:?}", page.text, self.dtype(), self.shape())
    }
}

/// The elements that are shown: of each long axis the first and last few, joined on the device.
fn edges<B: CopyOps + ?Sized>(x: &Tensor<B>, elide: bool) -> Result<Tensor<B>> {
    let mut x = x.clone();
    for axis in (0..x.rank()).filter(|_| elide) {
        let size = x.shape()[axis];
        if size > 2 * EDGE {
            let along = axis as isize;
            x = Tensor::cat(&[&x.narrow(along, 0, EDGE)?, &x.narrow(along, size - EDGE, EDGE)?], along)?;
        }
    }
    Ok(x)
}

/// An element's text before alignment.
enum Cell {
    Plain(String),
    Float(f64, DType),
}

fn cells<B: CopyOps + ?Sized>(x: &Tensor<B>) -> Result<Vec<Cell>> {
    let dtype = x.dtype();
    match_dtype!(dtype, T => Ok(x.to_vec::<T>()?.into_iter().map(|element| cell(element.into(), T::DTYPE)).collect()))
}

fn cell(value: Scalar, dtype: DType) -> Cell {
    match value {
        Scalar::Float(value) => Cell::Float(value, dtype),
        Scalar::Int(_) | Scalar::Bool(_) => Cell::Plain(value.to_string()),
    }
}

/// The texts, all of one width.
fn align(cells: Vec<Cell>) -> Vec<String> {
    let magnitudes = || {
        let finite = |cell: &Cell| match cell {
            Cell::Float(value, _) if value.is_finite() && *value != 0.0 => Some(value.abs()),
            _ => None,
        };
        cells.iter().filter_map(finite)
    };
    let (least, greatest) = (magnitudes().fold(f64::INFINITY, f64::min), magnitudes().fold(0.0, f64::max));
    let exponent = greatest >= 1e8 || (greatest > 0.0 && (least < 1e-4 || greatest / least > 1e3));
    let texts: Vec<_> = cells.into_iter().map(|cell| Text::new(cell, exponent)).collect();
    let widest = |part: fn(&Text) -> &str| texts.iter().map(|text| part(text).len()).max().unwrap_or(0);
    let (fraction, power) = (widest(|text| &text.fraction), widest(|text| &text.power));
    let lines: Vec<_> = texts.iter().map(|text| text.join(fraction, power)).collect();
    let width = lines.iter().map(String::len).max().unwrap_or(0);
    lines.into_iter().map(|line| format!("{line:>width$}")).collect()
}

/// A number in parts, so that points and exponents can be aligned. A word (`nan`, `true`) has no fraction.
struct Text {
    whole: String,
    fraction: String,
    sign: char,
    power: String,
}

impl Text {
    fn new(cell: Cell, exponent: bool) -> Self {
        let word = |whole: String| Self { whole, fraction: String::new(), sign: '+', power: String::new() };
        let (value, dtype) = match cell {
            Cell::Plain(text) => return word(text),
            Cell::Float(value, _) if value.is_nan() => return word("nan".to_owned()),
            Cell::Float(value, _) if value.is_infinite() => {
                return word(if value < 0.0 { "-inf" } else { "inf" }.to_owned());
            }
            Cell::Float(value, dtype) => (value, dtype),
        };
        let text = shortest(value, dtype, exponent);
        let (number, power) = text.split_once('e').unwrap_or((&text, ""));
        let (sign, power) = power.strip_prefix('-').map_or(('+', power), |digits| ('-', digits));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // An exponent has two digits at least, as C's `%e` writes it.
        let power = if exponent { format!("{power:0>2}") } else { String::new() };
        Self { whole: whole.to_owned(), fraction: format!(".{fraction}"), sign, power }
    }

    /// The number with a fraction and an exponent of these widths: zeros where digits follow, else spaces.
    fn join(&self, fraction: usize, power: usize) -> String {
        let (whole, digits, sign) = (&self.whole, &self.fraction, self.sign);
        match (digits.is_empty(), power) {
            (true, _) => whole.clone(),
            (false, 0) => format!("{whole}{digits:<fraction$}"),
            (false, _) => format!("{whole}{digits:0<fraction$}e{sign}{:0>power$}", self.power),
        }
    }
}

/// The fewest digits that read back as the same element, at most [`PRECISION`] after the point.
fn shortest(value: f64, dtype: DType, exponent: bool) -> String {
    let write = |digits: usize| if exponent { format!("{value:.digits$e}") } else { format!("{value:.digits$}") };
    let reads_back = |text: &String| {
        text.parse::<f64>().is_ok_and(|read| match dtype {
            DType::F16 => f16::from_f64(read).to_f64() == value,
            DType::BF16 => bf16::from_f64(read).to_f64() == value,
            DType::F32 => f64::from(read as f32) == value,
            _ => read == value,
        })
    };
    (0..PRECISION).map(write).find(reads_back).unwrap_or_else(|| trim(&write(PRECISION)))
}

/// A text cut at [`PRECISION`] without the zeros at the end of its fraction.
fn trim(text: &str) -> String {
    let (number, power) = text.split_once('e').map_or((text, None), |(number, power)| (number, Some(power)));
    let number = number.trim_end_matches('0').trim_end_matches('.');
    power.map_or_else(|| number.to_owned(), |power| format!("{number}e{power}"))
}

/// The text so far and the cells still to come.
struct Page {
    text: String,
    cells: std::vec::IntoIter<String>,
    elide: bool,
    column: usize,
}

impl Page {
    fn array(&mut self, shape: &[usize], depth: usize) -> fmt::Result {
        let Some((&size, inner)) = shape.split_first() else {
            let cell = self.cells.next().unwrap_or_default();
            // Rank 0 has no column to align with.
            return self.text.write_str(if depth == 0 { cell.trim() } else { &cell });
        };
        self.text.push('[');
        self.column = depth + 1;
        let cut = self.elide && size > 2 * EDGE;
        let shown = if cut { 2 * EDGE } else { size };
        for index in 0..shown {
            if index > 0 {
                self.separate(inner, depth);
            }
            if cut && index == EDGE {
                self.text.push_str("...");
                self.column += 3;
                self.separate(inner, depth);
            }
            // An axis of size 0 further in leaves only its brackets.
            self.array(inner, depth + 1)?;
        }
        self.text.push(']');
        Ok(())
    }

    /// Between two elements a space, or a new line when the row is full; between arrays one line per axis.
    fn separate(&mut self, inner: &[usize], depth: usize) {
        let width = self.cells.as_slice().first().map_or(0, String::len) + 1;
        if inner.is_empty() && self.column + 2 * width <= WIDTH {
            self.text.push(' ');
            self.column += width;
            return;
        }
        self.text.extend(std::iter::repeat_n('\n', inner.len().max(1)));
        self.text.extend(std::iter::repeat_n(' ', depth + 1));
        self.column = depth + 1;
    }
}
