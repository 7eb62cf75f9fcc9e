//! A service that looks up rows of one length by their numbers: `GET /row/42`, and `POST /rows` with a JSON list of numbers.
//! The answer is the rows' bytes, one behind the other. The rows come from a file on an ODAFS server, or, to compare, from
//! Redis, where row 42 is the value of the key `row:42`.

mod rows;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use rows::{Failed, Rows};

/// Serve rows by number over HTTP
#[derive(Parser)]
struct Arguments {
    /// Where to listen; port 0 takes any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The ODAFS server, such as odafs+shm:///
    #[arg(long, value_name = "URL", required_unless_present = "redis")]
    odafs: Option<String>,
    /// The file of rows on it
    #[arg(long, value_name = "PATH", default_value = "rows.bin")]
    file: String,
    /// Redis' Unix socket, in place of an ODAFS server
    #[arg(long, value_name = "SOCKET", conflicts_with = "odafs")]
    redis: Option<String>,
    /// Length of a row, in bytes
    #[arg(long, value_name = "BYTES", default_value = "256")]
    row_bytes: NonZeroUsize,
}

/// The most rows of one request.
const ROWS_MAX: usize = 10_000;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let row_bytes = arguments.row_bytes.get();
    let rows = match (&arguments.odafs, &arguments.redis) {
        (Some(url), _) => Rows::odafs(url, &arguments.file, row_bytes)?,
        (None, Some(socket)) => Rows::redis(socket, row_bytes).await?,
        (None, None) => unreachable!("the command line asks for one of them"),
    };
    let service = Router::new()
        .route("/row/{number}", get(one))
        .route("/rows", post(many))
        .with_state(Arc::new(rows));
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", arguments.listen))?;
    // A service manager sends SIGTERM, and Ctrl-C SIGINT. Taken over before anyone is told that it is ready.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    println!("ready http={}", listener.local_addr()?);
    let end = async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    axum::serve(listener, service)
        .with_graceful_shutdown(end)
        .await?;
    Ok(())
}

async fn one(State(rows): State<Arc<Rows>>, Path(number): Path<u64>) -> Response {
    answer(rows.get(&[number]).await)
}

async fn many(State(rows): State<Arc<Rows>>, Json(numbers): Json<Vec<u64>>) -> Response {
    if numbers.len() > ROWS_MAX {
        let why = format!(
            "{} rows are too many: ask for {ROWS_MAX} at most\n",
            numbers.len()
        );
        return (StatusCode::PAYLOAD_TOO_LARGE, why).into_response();
    }
    answer(rows.get(&numbers).await)
}

fn answer(rows: Result<Vec<u8>, Failed>) -> Response {
    match rows {
        // A vector is sent as application/octet-stream.
        Ok(bytes) => bytes.into_response(),
        Err(Failed::NoSuchRow) => (StatusCode::NOT_FOUND, "there is no such row\n").into_response(),
        Err(Failed::Store(error)) => {
            eprintln!("{error:#}");
            (StatusCode::BAD_GATEWAY, "the rows cannot be read\n").into_response()
        }
    }
}
