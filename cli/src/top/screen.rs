//! The terminal: another screen than the user's, which comes back whatever ends the program.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context, Result};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::view::Look;

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// And back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal while it is ours.
pub struct Screen {
    /// How stdin was, if it is a terminal.
    before: Option<Termios>,
    bold: bool,
}

impl Screen {
    /// Takes it over.
    pub fn open() -> Result<Self> {
        let stdin = io::stdin();
        let before = match stdin.is_terminal() {
            true => Some(tcgetattr(&stdin).context("cannot ask the terminal")?),
            false => None,
        };
        // From here on its end gives the terminal back.
        let screen = Self {
            before,
            bold: std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()),
        };
        if let Some(before) = &screen.before {
            let mut keys = before.clone();
            // Keys come one by one and unseen. Ctrl-Z and Ctrl-\ would leave the other screen on the terminal.
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
            keys.special_codes[SpecialCodeIndex::VQUIT] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &keys).context("cannot set the terminal")?;
        }
        put(ENTER)?;
        Ok(screen)
    }

    /// Draws lines in place of those before.
    pub fn draw(&self, lines: impl FnOnce(Look) -> Vec<String>) -> Result<()> {
        let (width, height) = size();
        let look = Look {
            width,
            height,
            bold: self.bold,
        };
        let lines = lines(look);
        // In one write, and without blanking first: nothing flickers.
        put(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody to tell if the terminal is gone.
        let _ = put(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

fn put(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Columns and lines; those of an ordinary terminal where this one does not say.
fn size() -> (usize, usize) {
    let told = tcgetwinsize(io::stdout()).ok();
    let told = told.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    told.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// The keys that are pressed, from a thread of their own; it ends with the program.
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

/// None ever come.
pub fn no_keys() -> mpsc::UnboundedReceiver<u8> {
    let (sender, keys) = mpsc::unbounded_channel();
    std::mem::forget(sender);
    keys
}
