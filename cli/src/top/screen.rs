//! The terminal's alternate screen. The user's screen comes back however the program ends.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context, Result};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::view::Look;
use crate::output;

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor and switches back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal while this program uses it.
pub struct Screen {
    /// The earlier settings of stdin, if it is a terminal.
    before: Option<Termios>,
    bold: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub fn open() -> Result<Self> {
        let stdin = io::stdin();
        let before = match stdin.is_terminal() {
            true => Some(tcgetattr(&stdin).context("cannot ask the terminal")?),
            false => None,
        };
        // From here on, dropping the screen restores the terminal.
        let screen = Self {
            before,
            bold: std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()),
        };
        if let Some(before) = &screen.before {
            let mut keys = before.clone();
            // Read keys one by one, without echo. Ctrl-Z and Ctrl-\ would leave the alternate screen on the terminal.
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
            keys.special_codes[SpecialCodeIndex::VQUIT] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &keys).context("cannot set the terminal")?;
        }
        put(ENTER)?;
        Ok(screen)
    }

    /// Draws lines over the earlier ones.
    pub fn draw(&self, lines: impl FnOnce(Look) -> Vec<String>) -> Result<()> {
        let (width, height) = size();
        let look = Look {
            width,
            height,
            bold: self.bold,
        };
        let lines = lines(look);
        // One write, without clearing the screen first, so that nothing flickers.
        put(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, nobody can be told.
        let _ = put(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

fn put(text: &str) -> Result<()> {
    let mut out = output::Stdout::lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Columns and lines of the terminal, or 80 and 24 if it does not know them.
fn size() -> (usize, usize) {
    let told = tcgetwinsize(io::stdout()).ok();
    let told = told.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    told.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// The keys that the user presses. A thread reads them until the program ends.
pub fn keys() -> mpsc::UnboundedReceiver<u8> {
    let (sender, keys) = mpsc::unbounded_channel();
    if !io::stdin().is_terminal() {
        return no_keys();
    }
    std::thread::spawn(move || {
        let mut key = [0];
        while io::stdin().read_exact(&mut key).is_ok() {
            if sender.send(key[0]).is_err() {
                return;
            }
        }
    });
    keys
}

/// A channel on which no keys come.
pub fn no_keys() -> mpsc::UnboundedReceiver<u8> {
    let (sender, keys) = mpsc::unbounded_channel();
    std::mem::forget(sender);
    keys
}
