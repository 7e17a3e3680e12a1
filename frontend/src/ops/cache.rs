//! A cache of keys and values, for a sequence that grows.

use std::sync::Arc;

use congruent_backend_api::{CopyOps, DType, Error, ErrorKind, Result};

use crate::tensor::Tensor;

/// Keys and values of the positions so far, in room that was allocated once.
///
/// ```
/// # fn main() -> congruent::Result<()> {
/// # use congruent::{DType, KvCache, Tensor, ops::AttentionOptions};
/// # let device = congruent::backend("cpu")?;
/// let mut cache = KvCache::new(&device, [1, 1, 8, 2], 2, DType::F32)?;
/// for step in 0..3 {
///     let x = Tensor::full(&device, step as f32, [1, 1, 1, 2], DType::F32)?;
///     cache.append(&x, &x)?;
///     let options = AttentionOptions { scale: Some(0.0), ..Default::default() };
///     let y = x.attention(&cache.keys()?, &cache.values()?, None, options)?;
///     assert_eq!(y.to_vec::<f32>()?, [step as f32 / 2.0; 2]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KvCache<B: CopyOps + ?Sized> {
    keys: Tensor<B>,
    values: Tensor<B>,
    len: usize,
}

impl<B: CopyOps + ?Sized> KvCache<B> {
    /// An empty cache with room for keys of [batch, heads, positions, features], and values of `width` features.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(
        backend: &Arc<B>,
        [batch, heads, positions, features]: [usize; 4],
        width: usize,
        dtype: DType,
    ) -> Result<Self> {
        let room = |features: usize| Tensor::zeros(backend, [batch, heads, positions, features], dtype);
        Ok(Self { keys: room(features)?, values: room(width)?, len: 0 })
    }

    /// Writes keys and values of new positions behind the others: in place, unless what [`keys`](Self::keys) or
    /// [`values`](Self::values) gave is still alive, which keeps its elements.
    ///
    /// # Errors
    /// `Shape` when they do not fit, or there is no room for them; `DType` for another dtype than the cache's; `Argument`
    /// for a tensor of another backend.
    pub fn append(&mut self, keys: &Tensor<B>, values: &Tensor<B>) -> Result<()> {
        let added = keys.shape().get(2).copied().unwrap_or(0);
        let capacity = self.capacity();
        for (name, room, x) in [("keys", &self.keys, keys), ("values", &self.values, values)] {
            let mut expected = room.shape().to_vec();
            expected[2] = added;
            let fail = |kind, message| Err(Error::new(kind, "append", message));
            if x.shape() != expected {
                return fail(ErrorKind::Shape, format!("{name} have shape {:?}, they must be {expected:?}", x.shape()));
            }
            if x.dtype() != room.dtype() {
                return fail(
                    ErrorKind::DType,
                    format!("{name} are {}, the cache is {}; cast them", x.dtype(), room.dtype()),
                );
            }
        }
        let Some(len) = self.len.checked_add(added).filter(|&len| len <= capacity) else {
            let message = format!("{added} positions more than {} are too many for a cache of {capacity}", self.len);
            return Err(Error::new(ErrorKind::Shape, "append", message));
        };
        let place = self.len as isize..len as isize;
        self.keys.assign((.., .., place.clone()), keys)?;
        self.values.assign((.., .., place), values)?;
        self.len = len;
        Ok(())
    }

    /// The keys so far: a view.
    ///
    /// # Errors
    /// None; slicing is fallible.
    pub fn keys(&self) -> Result<Tensor<B>> {
        self.keys.narrow(2, 0, self.len)
    }

    /// The values so far: a view.
    ///
    /// # Errors
    /// None; slicing is fallible.
    pub fn values(&self) -> Result<Tensor<B>> {
        self.values.narrow(2, 0, self.len)
    }

    /// How many positions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.keys.shape()[2]
    }

    /// Keeps the first `len` positions.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
