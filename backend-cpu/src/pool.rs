//! Large buffers that wait to be used again.
//!
//! The system hands out fresh memory page by page, each zeroed at its first touch. For an op that is bound by memory
//! this takes several times as long as the op, so large buffers are kept when their storage is dropped.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::Line;

/// Lines of the smallest buffers that are kept (1 MiB); the allocator reuses smaller ones itself.
const LEAST: usize = (1 << 20) / size_of::<Line>();

/// Lines that are kept in all (512 MiB).
const MOST: usize = (512 << 20) / size_of::<Line>();

/// The idle buffers of a backend, oldest first.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Vec<Line>>>);

impl Pool {
    /// Whether buffers of so many lines are kept.
    pub(crate) fn keeps(lines: usize) -> bool {
        (LEAST..=MOST).contains(&lines)
    }

    /// The smallest idle buffer of at least so many lines, unless half of it would stay unused.
    pub(crate) fn take(&self, lines: usize) -> Option<Vec<Line>> {
        let mut idle = self.idle();
        let fits = |buffer: &Vec<Line>| (lines..=lines.saturating_mul(2)).contains(&buffer.len());
        let (at, _) =
            idle.iter().enumerate().filter(|(_, buffer)| fits(buffer)).min_by_key(|(_, buffer)| buffer.len())?;
        Some(idle.remove(at))
    }

    /// Keeps a buffer, and lets go of the oldest while there are too many.
    pub(crate) fn put(&self, buffer: Vec<Line>) {
        let mut idle = self.idle();
        idle.push(buffer);
        let mut total: usize = idle.iter().map(Vec::len).sum();
        while total > MOST {
            total -= idle.remove(0).len();
        }
    }

    /// Lets go of every buffer.
    pub(crate) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Vec<Line>>> {
        // Buffers are only moved in and out whole, so a panic elsewhere leaves the list sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.idle().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use congruent_backend_api::{Backend, DType};

    use super::*;
    use crate::Cpu;

    #[test]
    fn the_smallest_that_fits_is_reused_and_the_oldest_let_go() {
        let (pool, buffer) = (Pool::default(), |lines| vec![Line::zeroed(); lines]);
        pool.put(buffer(100));
        pool.put(buffer(60));
        assert!(pool.take(101).is_none() && pool.take(29).is_none());
        assert_eq!(pool.take(55).map(|buffer| buffer.len()), Some(60));
        pool.put(buffer(MOST));
        assert!(pool.take(100).is_none());
        assert_eq!(pool.take(MOST).map(|buffer| buffer.len()), Some(MOST));
        assert!(pool.idle().is_empty());
    }

    #[test]
    fn a_dropped_storage_leaves_its_buffer_and_no_elements() {
        let cpu = Cpu::new();
        let mut storage = cpu.alloc(DType::U8, 3 << 20).unwrap();
        cpu.write(&[7], &mut storage, 0).unwrap();
        drop(storage);
        // Of another dtype and length, and no bool but 0 and 1.
        let storage = cpu.alloc(DType::Bool, 2 << 20).unwrap();
        let mut bytes = vec![9; 2 << 20];
        cpu.download(&storage, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte < 2));
    }
}
