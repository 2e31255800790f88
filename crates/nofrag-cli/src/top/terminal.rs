//! The terminal while it is drawn on, and its return.
//!
//! 1. It is as it was found when [`Screen`] is dropped: on a return, on an error, on a panic. A panic prints its
//!    message only after that, so that it can be read.
//! 2. Signals that end the command ask it to end in order (`stop`); one that stops it, and the key for that, give the
//!    terminal back first and take it again afterwards.
//! 3. Nothing can be done about `SIGKILL`; `reset` is the shell's answer then.
//! 4. A terminal that has gone away is no longer given back, and there is no message: one to standard error, which went
//!    with it, would be a panic, and one more in telling of the panic ends a process by `SIGABRT`.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGTSTP, SIGWINCH};

/// A screen on the terminal.
pub(crate) struct Screen {
    /// Present until this is dropped.
    terminal: Option<DefaultTerminal>,
    stopped: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal and clears it for drawing.
    pub(crate) fn enter() -> io::Result<Screen> {
        let [stopped, resized] = [SIGTSTP, SIGWINCH].map(|signal| {
            let asked = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&asked)).map(|_| asked)
        });
        // Before the terminal is taken: after an error it would not be given back.
        let (stopped, resized) = (stopped?, resized?);
        // It also makes a panic give the terminal back before its message is printed.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Screen { terminal: Some(terminal), stopped, resized })
    }

    /// Draws the screen once with `draw`.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        terminal.draw(draw).map(drop)
    }

    /// Rings the terminal's bell.
    pub(crate) fn ring(&self) {
        // A terminal that has gone away is noticed when the screen is drawn.
        let _ = io::stdout().write_all(b"\x07");
    }

    /// Returns true if the terminal has gone away.
    pub(crate) fn is_gone(&self) -> bool {
        !io::stdout().is_terminal()
    }

    /// Returns true if a signal has asked to stop for a while.
    pub(crate) fn was_stopped(&self) -> bool {
        self.stopped.swap(false, Ordering::Relaxed)
    }

    /// Returns true if the terminal has got another size; the next drawing is made for it.
    pub(crate) fn was_resized(&self) -> bool {
        self.resized.swap(false, Ordering::Relaxed)
    }

    /// Gives the terminal back, stops as a job of the shell does, and takes it again when the job goes on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.terminal.as_mut().map_or(Ok(()), DefaultTerminal::show_cursor)?;
        ratatui::try_restore()?;
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        // A new one draws everything; to clear this one would ask the terminal for its cursor's place, and wait.
        self.terminal = Some(ratatui::try_init()?);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has given it back already; twice would print the rest of its message over the beginning.
        if !std::thread::panicking() {
            // `ratatui::restore` would print to standard error if that fails.
            let _ = ratatui::try_restore();
        }
        // Dropping the terminal would print too, unless its cursor is shown already.
        if let Some(mut terminal) = self.terminal.take()
            && terminal.show_cursor().is_err()
        {
            std::mem::forget(terminal);
        }
    }
}
