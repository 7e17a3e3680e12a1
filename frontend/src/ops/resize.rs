//! Images of another size, and windows as rows: resize, pixel shuffle, unfold and fold. Composed of gather, scatter and
//! arithmetic, one axis after another.

use congruent_backend_api::ops::conv::{ConvOptions, MAX_SPATIAL};
use congruent_backend_api::{BinaryOps, CopyOps, DType, Error, ErrorKind, IndexOps, Layout, Result, Shape};

use super::rearrange::Pad;
use crate::tensor::Tensor;

/// Where output positions lie in the input: position i of n at a coordinate x of an axis with m elements, where s = n/m, or the
/// scale that was asked for.
///
/// | | x |
/// |---|---|
/// | `HalfPixel` | (i + ½)/s − ½ |
/// | `AlignCorners` | i·(m − 1)/(s·m − 1), 0 where s·m is at most 1 |
/// | `Asymmetric` | i/s |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordinates {
    /// Elements are areas, whose borders are aligned.
    #[default]
    HalfPixel,
    /// The first and the last elements are aligned.
    AlignCorners,
    /// The first elements are aligned.
    Asymmetric,
}

/// Which of two neighbours is nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// The nearer; of two equally near the one before.
    #[default]
    HalfDown,
    /// The nearer; of two equally near the one after.
    HalfUp,
    /// The one before.
    Floor,
    /// The one after.
    Ceil,
}

/// How a value between elements is found. Elements outside repeat the one at the edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// It is that of an element.
    Nearest(Rounding),
    /// It is on a line between two elements.
    Linear,
    /// It is on a cubic through four elements, with this slope; usual are −0.75 and −0.5 (Keys, "Cubic convolution
    /// interpolation for digital image processing", 1981).
    Cubic(f64),
}

/// One element for each output position of an axis, and its weight.
type Tap = Vec<(i64, f64)>;

fn taps(
    interpolation: Interpolation,
    coordinates: Coordinates,
    (from, to): (usize, usize),
    scale: Option<f64>,
) -> Vec<Tap> {
    let extent = scale.map_or(to as f64, |scale| scale * from as f64);
    let scale = scale.unwrap_or(to as f64 / from as f64);
    let last = from as f64 - 1.0;
    let at = |index: usize| match coordinates {
        Coordinates::HalfPixel => (index as f64 + 0.5) / scale - 0.5,
        Coordinates::AlignCorners if extent <= 1.0 => 0.0,
        Coordinates::AlignCorners => index as f64 * last / (extent - 1.0),
        Coordinates::Asymmetric => index as f64 / scale,
    };
    let tap = |of: &dyn Fn(f64) -> (f64, f64)| {
        let tap = (0..to).map(|index| of(at(index))).map(|(place, weight)| (place.clamp(0.0, last) as i64, weight));
        tap.collect::<Tap>()
    };
    match interpolation {
        Interpolation::Nearest(rounding) => vec![tap(&|x| {
            let nearest = match rounding {
                Rounding::HalfDown => (x - 0.5).ceil(),
                Rounding::HalfUp => (x + 0.5).floor(),
                Rounding::Floor => x.floor(),
                Rounding::Ceil => x.ceil(),
            };
            (nearest, 1.0)
        })],
        Interpolation::Linear => {
            vec![tap(&|x| (x.floor(), 1.0 - (x - x.floor()))), tap(&|x| (x.floor() + 1.0, x - x.floor()))]
        }
        Interpolation::Cubic(a) => {
            let weight = |distance: f64| match distance.abs() {
                d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
                d => ((d - 5.0) * d + 8.0) * d * a - 4.0 * a,
            };
            let place = |x: f64, step: f64| (x.floor() + step, weight(x.floor() + step - x));
            [-1.0, 0.0, 1.0, 2.0].map(|step| tap(&|x| place(x, step))).to_vec()
        }
    }
}

impl<B: IndexOps + BinaryOps + CopyOps + ?Sized> Tensor<B> {
    /// The tensor with other sizes of its last axes. Nearest elements are copied, of any dtype; otherwise f16 and bf16 are
    /// interpolated in f32 and rounded once.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::{Coordinates, Interpolation}};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[0.0_f32, 4.0], [1, 1, 2])?;
    /// let resized = |coordinates| x.resize([4], Interpolation::Linear, coordinates)?.to_vec::<f32>();
    /// assert_eq!(resized(Coordinates::HalfPixel)?, [0.0, 1.0, 3.0, 4.0]);
    /// assert_eq!(resized(Coordinates::Asymmetric)?, [0.0, 2.0, 4.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` for more sizes than axes, or elements out of an empty axis; `DType` for an interpolation of integers;
    /// `Unsupported`; `OutOfMemory`.
    pub fn resize(
        &self,
        sizes: impl AsRef<[usize]>,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Result<Self> {
        let sizes: Vec<_> = sizes.as_ref().iter().map(|&size| (size, None)).collect();
        self.resized(&sizes, interpolation, coordinates)
    }

    /// [`resize`](Self::resize) by factors: an axis of m elements has ⌊m·scale⌋ after it, and coordinates follow the factor
    /// that was given, not the quotient of sizes.
    ///
    /// # Errors
    /// As [`resize`](Self::resize), and `Argument` unless the factors are finite and above 0.
    pub fn resize_by(
        &self,
        scales: impl AsRef<[f64]>,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Result<Self> {
        let scales = scales.as_ref();
        if let Some(scale) = scales.iter().find(|scale| !scale.is_finite() || **scale <= 0.0) {
            let message = format!("the scale {scale} is not finite and above 0");
            return Err(Error::new(ErrorKind::Argument, "resize", message));
        }
        let sizes = self.shape().iter().skip(self.rank().saturating_sub(scales.len())).zip(scales);
        let mut sizes: Vec<_> = sizes.map(|(&size, &scale)| ((size as f64 * scale) as usize, Some(scale))).collect();
        // More scales than axes are an error of `resized`.
        sizes.resize(scales.len(), (1, None));
        self.resized(&sizes, interpolation, coordinates)
    }

    fn resized(
        &self,
        sizes: &[(usize, Option<f64>)],
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Result<Self> {
        let fail = |kind, message: String| Err(Error::new(kind, "resize", message));
        let Some(first) = self.rank().checked_sub(sizes.len()) else {
            return fail(ErrorKind::Shape, format!("{} sizes for shape {:?}", sizes.len(), self.shape()));
        };
        let copies = matches!(interpolation, Interpolation::Nearest(_));
        if !copies && !self.dtype().is_float() {
            let message = format!("{} has nothing between two elements; cast it, or take the nearest", self.dtype());
            return fail(ErrorKind::DType, message);
        }
        let narrow = matches!(self.dtype(), DType::F16 | DType::BF16) && !copies;
        let mut x = if narrow { self.cast(DType::F32)? } else { self.clone() };
        for (axis, &(to, scale)) in (first..).zip(sizes) {
            let from = x.shape()[axis];
            if from == to && scale.is_none_or(|scale| scale == 1.0) {
                continue;
            }
            if from == 0 && to > 0 {
                return fail(ErrorKind::Shape, format!("axis {axis} has no elements, of which {to} were to be made"));
            }
            let mut sum: Option<Self> = None;
            for tap in taps(interpolation, coordinates, (from, to), scale) {
                let (places, weights): (Vec<i64>, Vec<f64>) = tap.into_iter().unzip();
                let taken = x.index_select(axis as isize, &Self::from_slice(x.backend(), &places, [to])?)?;
                if copies {
                    sum = Some(taken);
                    continue;
                }
                let mut shape = vec![1; x.rank()];
                shape[axis] = to;
                let weights = Self::from_slice(x.backend(), &weights, shape)?.cast(x.dtype())?;
                let term = taken.mul(&weights)?;
                sum = Some(sum.map_or(Ok(term.clone()), |sum| sum.add(&term))?);
            }
            x = sum.unwrap_or(x);
        }
        x.cast(self.dtype())
    }

    /// The adjoint of [`unfold`](Self::unfold): \[batch, channels · kernel elements, windows\] to \[batch, channels, spatial…\] with
    /// the spatial sizes `shape`, where every element is the sum of what the windows have of it.
    ///
    /// # Errors
    /// `Shape` unless the windows are those that `unfold` makes of the shape; as [`scatter_add`](Self::scatter_add).
    pub fn fold(&self, shape: impl AsRef<[usize]>, kernel: impl AsRef<[usize]>, options: ConvOptions) -> Result<Self> {
        let (shape, kernel) = (shape.as_ref(), kernel.as_ref());
        let windows = Windows::new("fold", shape, kernel, &options)?;
        let (taps, count) = (kernel.iter().product::<usize>(), windows.count.iter().product::<usize>());
        let fits = self.rank() == 3 && self.shape()[1].is_multiple_of(taps) && self.shape()[2] == count;
        if !fits {
            let message = format!(
                "shape {:?} must be [batch, channels · {taps}, {count}] for windows {kernel:?} of {shape:?}",
                self.shape()
            );
            return Err(Error::new(ErrorKind::Shape, "fold", message));
        }
        let (batch, channels) = (self.shape()[0], self.shape()[1] / taps);
        // Where each tap of each window lies in the padded input.
        let places: Vec<i64> = windows.places(kernel, &options).collect();
        let space: usize = windows.padded.iter().product();
        let index = Self::from_slice(self.backend(), &places, [taps * count])?;
        let sums = Self::zeros(self.backend(), [batch, channels, space], self.dtype())?;
        let sums = sums.index_add(2, &index, &self.reshape([batch, channels, taps * count])?)?;
        let sums = sums.reshape([&[batch, channels], &windows.padded[..]].concat())?;
        let inner =
            |x: Self, (axis, &size): (usize, &usize)| x.narrow(axis as isize + 2, options.padding[axis][0], size);
        shape.iter().enumerate().try_fold(sums, inner)?.contiguous()
    }
}

/// The windows over a padded input.
struct Windows {
    padded: Vec<usize>,
    count: Vec<usize>,
}

impl Windows {
    fn new(op: &'static str, shape: &[usize], kernel: &[usize], options: &ConvOptions) -> Result<Self> {
        // Those of a convolution of one channel.
        let of = |sizes: &[usize]| [&[1, 1], sizes].concat();
        let options = ConvOptions { groups: 1, ..*options };
        let count = congruent_backend_api::ops::conv::Conv::shape(&of(shape), &of(kernel), &options)
            .map_err(|error| Error::new(error.kind(), op, error.message()))?;
        let padding = &options.padding[..shape.len()];
        let padded = shape.iter().zip(padding).map(|(&size, [before, after])| before + size + after).collect();
        Ok(Self { padded, count: count[2..].to_vec() })
    }

    /// For each element of the kernel and each window, row-major, its place in the padded input.
    fn places(&self, kernel: &[usize], options: &ConvOptions) -> impl Iterator<Item = i64> {
        let (taps, count) = (kernel.iter().product::<usize>(), self.count.iter().product::<usize>());
        (0..taps * count).map(move |index| {
            let (mut tap, mut window, mut place, mut step) = (index / count, index % count, 0, 1);
            for axis in (0..kernel.len()).rev() {
                let at =
                    options.dilation[axis] * (tap % kernel[axis]) + options.stride[axis] * (window % self.count[axis]);
                (tap, window) = (tap / kernel[axis], window / self.count[axis]);
                place += at * step;
                step *= self.padded[axis];
            }
            place as i64
        })
    }
}

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// The windows that a kernel meets, as columns: \[batch, channels, spatial…\] to \[batch, channels · kernel elements, windows\].
    /// Groups have no say.
    ///
    /// # Errors
    /// `Shape` and `Argument` as for [`conv`](Self::conv); `Unsupported`; `OutOfMemory`.
    pub fn unfold(&self, kernel: impl AsRef<[usize]>, options: ConvOptions) -> Result<Self> {
        let kernel = kernel.as_ref();
        let axes = self.rank().saturating_sub(2);
        if !(1..=MAX_SPATIAL).contains(&axes) || kernel.len() != axes {
            let message =
                format!("kernel {kernel:?} must have a size for each of the 1 to 3 spatial axes of {:?}", self.shape());
            return Err(Error::new(ErrorKind::Shape, "unfold", message));
        }
        let windows = Windows::new("unfold", &self.shape()[2..], kernel, &options)?;
        let pads: Vec<[isize; 2]> = [[0; 2]; 2]
            .into_iter()
            .chain(options.padding[..axes].iter().map(|pad| pad.map(|pad| pad as isize)))
            .collect();
        let zero = if self.dtype().is_float() { Pad::constant(0.0) } else { Pad::constant(0) };
        let padded = if pads.iter().flatten().any(|&pad| pad != 0) { self.pad(pads, zero)? } else { self.clone() };
        let (layout, [batch, channels]) = (padded.layout(), [self.shape()[0], self.shape()[1]]);
        let strides = &layout.strides()[2..];
        let scaled = |factors: &[usize]| {
            strides.iter().zip(factors).map(|(stride, &factor)| stride * factor as isize).collect::<Vec<_>>()
        };
        let sizes = [&[batch, channels], kernel, &windows.count[..]].concat();
        let strides = [&layout.strides()[..2], &scaled(&options.dilation), &scaled(&options.stride)].concat();
        let view = if Shape::new("unfold", &sizes)?.count() == 0 {
            Layout::contiguous(Shape::new("unfold", &sizes)?)
        } else {
            Layout::new("unfold", &sizes, &strides, layout.offset())?
        };
        let columns = Self::from_parts(padded.backend(), padded.storage().clone(), view)?;
        columns.reshape([batch, channels * kernel.iter().product::<usize>(), windows.count.iter().product()])
    }

    /// \[batch, channels · r², rows, columns\] to \[batch, channels, rows · r, columns · r\]: the channels of a pixel become a
    /// square of pixels.
    ///
    /// # Errors
    /// `Shape` unless the rank is 4 and r², which is not 0, divides the channels; `Unsupported`; `OutOfMemory`.
    pub fn pixel_shuffle(&self, r: usize) -> Result<Self> {
        let square = r.checked_mul(r).filter(|&square| square > 0);
        match (self.shape(), square) {
            (&[n, c, h, w], Some(square)) if c.is_multiple_of(square) => {
                let blocks = self.reshape([n, c / square, r, r, h, w])?.permute([0, 1, 4, 2, 5, 3])?;
                blocks.reshape([n, c / square, h * r, w * r])
            }
            _ => {
                let message = format!("shape {:?} must be [batch, channels · {r}², rows, columns]", self.shape());
                Err(Error::new(ErrorKind::Shape, "pixel_shuffle", message))
            }
        }
    }

    /// The inverse of [`pixel_shuffle`](Self::pixel_shuffle).
    ///
    /// # Errors
    /// `Shape` unless the rank is 4 and r, which is not 0, divides rows and columns; `Unsupported`; `OutOfMemory`.
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Self> {
        match self.shape() {
            &[n, c, h, w] if r > 0 && h.is_multiple_of(r) && w.is_multiple_of(r) => {
                let blocks = self.reshape([n, c, h / r, r, w / r, r])?.permute([0, 1, 3, 5, 2, 4])?;
                blocks.reshape([n, c * r * r, h / r, w / r])
            }
            shape => {
                let message = format!("shape {shape:?} must be [batch, channels, rows · {r}, columns · {r}]");
                Err(Error::new(ErrorKind::Shape, "pixel_unshuffle", message))
            }
        }
    }
}
