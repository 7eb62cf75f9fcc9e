//! Where the rows come from.

use anyhow::{Context as _, Result, anyhow};
use odafs::{Client, ReadError, Table};
use redis::aio::MultiplexedConnection;

/// The rows of a file on an ODAFS server, or of Redis.
pub enum Rows {
    /// Of a file.
    Odafs(Table),
    /// Of Redis, over one connection that all requests share.
    Redis(MultiplexedConnection, usize),
}

/// Why there are no rows.
pub enum Failed {
    /// A number is beyond the last row.
    NoSuchRow,
    /// The store does not answer, or refuses.
    Store(anyhow::Error),
}

impl Rows {
    /// Connects to the server of the URL.
    pub fn odafs(url: &str, file: &str, row_bytes: usize) -> Result<Self> {
        Ok(Self::Odafs(Client::connect(url)?.table(file, row_bytes)?))
    }

    /// Connects to Redis.
    pub async fn redis(socket: &str, row_bytes: usize) -> Result<Self> {
        let client = redis::Client::open(format!("unix://{socket}"))?;
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.with_context(|| format!("cannot reach Redis at {socket}"))?;
        Ok(Self::Redis(connection, row_bytes))
    }

    /// The rows with these numbers, one behind the other.
    pub async fn get(&self, numbers: &[u64]) -> Result<Vec<u8>, Failed> {
        // MGET takes no empty list.
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Odafs(table) => odafs(table, numbers).await,
            Self::Redis(connection, row_bytes) => {
                redis(connection.clone(), numbers, *row_bytes).await
            }
        }
    }
}

/// What lies in the server's memory on this machine is there at once. Anything else has to be waited for, which a thread for
/// that does.
async fn odafs(table: &Table, numbers: &[u64]) -> Result<Vec<u8>, Failed> {
    let bytes = table.row_bytes();
    let mut out = vec![0; numbers.len() * bytes];
    let file = table.file();
    let at_once = numbers
        .iter()
        .zip(out.chunks_exact_mut(bytes))
        .all(|(number, row)| {
            let offset = number.checked_mul(bytes as u64);
            offset.and_then(|offset| file.try_read_at(row, offset)) == Some(bytes)
        });
    if at_once {
        return Ok(out);
    }
    let (table, numbers) = (table.clone(), numbers.to_vec());
    let read =
        tokio::task::spawn_blocking(move || table.get_many(&numbers, &mut out).map(|()| out));
    match read.await {
        Ok(Ok(out)) => Ok(out),
        Ok(Err(ReadError::EndOfFile { .. })) => Err(Failed::NoSuchRow),
        Ok(Err(error)) => Err(Failed::Store(error.into())),
        Err(error) => Err(Failed::Store(error.into())),
    }
}

async fn redis(
    mut connection: MultiplexedConnection,
    numbers: &[u64],
    row_bytes: usize,
) -> Result<Vec<u8>, Failed> {
    let keys: Vec<String> = numbers
        .iter()
        .map(|number| format!("row:{number}"))
        .collect();
    let found: redis::RedisResult<Vec<Option<Vec<u8>>>> = redis::cmd("MGET")
        .arg(&keys)
        .query_async(&mut connection)
        .await;
    let found = found.map_err(|error| Failed::Store(error.into()))?;
    let mut out = Vec::with_capacity(numbers.len() * row_bytes);
    for row in found {
        let row = row.ok_or(Failed::NoSuchRow)?;
        if row.len() != row_bytes {
            let error = anyhow!("a row of {} bytes, not {row_bytes}", row.len());
            return Err(Failed::Store(error));
        }
        out.extend(row);
    }
    Ok(out)
}
