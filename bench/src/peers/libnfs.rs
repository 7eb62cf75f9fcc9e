//! The reader by libnfs (`bench/peers/libnfs-read.c`), which is a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Spec;

/// The result of the reader.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Number of reads.
    pub reads: u64,
    /// Their whole time.
    pub elapsed_ns: u64,
    /// CPU time of the reader.
    pub cpu_ns: u64,
    /// Latency: the median, and the percentiles 99 and 99.9.
    pub latency_ns: [u64; 3],
}

/// A reader that has mounted, has looked the file up, has compared its first reads with it, and waits for the start.
pub struct Reader {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Reader {
    /// Starts the reader, on the processors of this thread.
    ///
    /// # Errors
    /// The reader could not be started, could not reach the server, or read other bytes than those of `copy`.
    pub fn start(
        program: &Path,
        url: &odafs::Url,
        copy: &Path,
        spec: &Spec,
        time: Duration,
    ) -> Result<Self> {
        let odafs::ServerAddress::NfsTcp(host) = &url.server else {
            bail!("{url} is not an nfs:// URL");
        };
        let theirs = theirs(host, &url.path, url.mount_port.unwrap_or(host.port))?;
        let mut child = Command::new(program)
            .arg(theirs)
            .arg(copy)
            .args([spec.size_bytes.to_string(), spec.depth.to_string()])
            .arg(time.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the reader has no pipes");
        };
        let mut reader = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        let said = reader.line()?;
        ensure!(
            said == "ready",
            "the reader by libnfs is not ready: {said:?}"
        );
        Ok(reader)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Lets it read for its time.
    ///
    /// # Errors
    /// A read failed.
    pub fn read(&mut self) -> Result<Figures> {
        self.stdin.write_all(b"go\n")?;
        let line = self.line()?;
        figures(&line).with_context(|| format!("the reader by libnfs said {line:?}"))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // If all went well, it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The URL in the form of libnfs, which mounts the part before the last slash. A second slash makes that the root.
fn theirs(host: &odafs::Host, path: &[u8], mount_port: u16) -> Result<String> {
    let path = std::str::from_utf8(path).context("a path that is no text")?;
    let (directory, file) = path.rsplit_once('/').context("a path without a slash")?;
    let directory = if directory.is_empty() { "/" } else { directory };
    let (name, port) = (&host.name, host.port);
    Ok(format!(
        "nfs://{name}{directory}/{file}?nfsport={port}&mountport={mount_port}&version=3"
    ))
}

fn figures(line: &str) -> Option<Figures> {
    let mut numbers = line.split(' ').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    let figures = Figures {
        reads: next()?,
        elapsed_ns: next()?,
        cpu_ns: next()?,
        latency_ns: [next()?, next()?, next()?],
    };
    (figures.reads > 0 && numbers.next().is_none()).then_some(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_libnfs() {
        let host = odafs::Host {
            name: "h".to_owned(),
            port: 1,
        };
        let url = |path: &str| theirs(&host, path.as_bytes(), 2).unwrap();
        assert_eq!(url("/a/b"), "nfs://h/a/b?nfsport=1&mountport=2&version=3");
        assert_eq!(url("/b"), "nfs://h//b?nfsport=1&mountport=2&version=3");
    }

    #[test]
    fn what_it_prints() {
        let all = figures("20 2000 30 4 5 6").unwrap();
        assert_eq!((all.reads, all.elapsed_ns, all.cpu_ns), (20, 2000, 30));
        assert_eq!(all.latency_ns, [4, 5, 6]);
        for wrong in [
            "",
            "0 1 1 1 1 1",
            "1 2 3 4 5",
            "1 2 3 4 5 6 7",
            "a b c d e f",
        ] {
            assert!(figures(wrong).is_none(), "{wrong}");
        }
    }
}
