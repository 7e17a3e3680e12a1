//! `fork(2)`: a child process inherits handles of a driver that does not work in it. If its parent opened a device, the
//! child must not call the driver, so it gets an error instead of a crash.

use std::sync::atomic::{AtomicBool, Ordering};

use congruent_backend_api::{Error, ErrorKind, Result};

/// Whether this process was forked off one that had opened a device.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Lets children of this process know from now on.
pub(crate) fn watch() {
    #[cfg(unix)]
    {
        extern "C" fn child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        static WATCH: std::sync::Once = std::sync::Once::new();
        WATCH.call_once(|| {
            // SAFETY: the function is one that may run in a forked child: it only changes an atomic. A failure to register
            // it (no memory) loses the error message, nothing else.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        });
    }
}

/// Fails in a child whose parent had opened a device.
pub(crate) fn check(op: &'static str) -> Result<()> {
    if !FORKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let message = "this process was forked off one that had opened a CUDA device, and CUDA does not work in the child; fork \
                   before, or start a new program instead";
    Err(Error::new(ErrorKind::DeviceLost, op, message))
}
