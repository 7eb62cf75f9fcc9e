//! Pages over HTTP for Prometheus and `odafs top`. The server answers GET and nothing else.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The most connections at once. A further one ends the oldest, so silent connections cannot keep others from the metrics.
const CONNECTIONS: usize = 16;
/// The longest request, in bytes.
const REQUEST_BYTES: usize = 8 << 10;
/// How long a request may take from its first byte to the last of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A page.
pub struct MetricsPage {
    /// The media type of the page.
    pub kind: &'static str,
    /// The whole text.
    pub body: String,
}

/// Makes the page at a path. `None` if there is none.
pub type Render = dyn Fn(&[u8]) -> Option<MetricsPage> + Send + Sync;

/// The endpoint. Dropping it ends the service.
#[derive(Debug)]
pub struct MetricsServer {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves the pages of `render` to all who connect to `listener`.
    ///
    /// # Errors
    /// The system can give no more threads or descriptors.
    pub fn start(listener: TcpListener, render: Arc<Render>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, mut stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener, render) => {}
                        _ = stopped.wait_for(|stop| *stop) => {}
                    }
                });
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread of the metrics panicked");
        }
    }
}

async fn accept(listener: TcpListener, render: Arc<Render>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot wait on the metrics listener");
            return;
        }
    };
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let render = render.clone();
                let connection = tokio::spawn(async move {
                    let answered = tokio::time::timeout(PATIENCE, answer(stream, &*render)).await;
                    tracing::trace!(?answered, "metrics");
                });
                open.push_back(connection.abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, render: &Render) -> io::Result<()> {
    let mut request = Vec::new();
    while !ends(&request) {
        if request.len() >= REQUEST_BYTES || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let plain = |body: &str| MetricsPage {
        kind: "text/plain; charset=utf-8",
        body: body.to_owned(),
    };
    let (status, MetricsPage { kind, body }) = match target(&request).map(render) {
        Some(Some(page)) => ("200 OK", page),
        Some(None) => ("404 Not Found", plain("metrics are at /metrics\n")),
        None => ("405 Method Not Allowed", plain("only GET\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether the head of the request is complete.
fn ends(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

/// The path of a GET without its query.
fn target(request: &[u8]) -> Option<&[u8]> {
    let rest = request.strip_prefix(b"GET ")?;
    let end = rest.iter().position(|byte| b" ?\r\n".contains(byte))?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::SocketAddr;

    use super::*;

    fn serve() -> (MetricsServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let render = Arc::new(|path: &[u8]| {
            (path == b"/metrics").then(|| MetricsPage {
                kind: "text/plain",
                body: "odafs_reads_total 7\n".to_owned(),
            })
        });
        (
            MetricsServer::start(listener, render).expect("a thread"),
            address,
        )
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn metrics_are_there_and_nothing_else_is() {
        let (_server, address) = serve();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 20\r\n"), "{answer}");
        assert!(
            answer.ends_with("\r\n\r\nodafs_reads_total 7\n"),
            "{answer}"
        );
        assert!(ask(address, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    }

    /// The oldest silent connection makes room and the others stay, so nobody waits for the time limit.
    #[test]
    fn silent_connections_keep_nobody_out() {
        let (_server, address) = serve();
        let connect = || std::net::TcpStream::connect(address).expect("a connection");
        let mut silent: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let mut youngest = silent.pop().expect("the last");
        youngest
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        youngest.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }

    #[test]
    fn an_endless_request_is_cut_off() {
        let (_server, address) = serve();
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let mut sent = 0;
        while sent < 64 << 20 && stream.write_all(&[b'x'; 4096]).is_ok() {
            sent += 4096;
        }
        assert!(sent < 64 << 20, "the server read on");
    }
}
