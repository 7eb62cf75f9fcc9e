//! The values of a configuration file: what the command line takes as text, a file may also have as a number, a boolean
//! or a list.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::{Deserialize, Deserializer, Error};
use toml::Value;

use super::{CreditsOption, Nfs2, Shm};
use crate::units;

/// The text of a value that the command line takes as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        // With its point: the version 4.0 is not 4.
        Value::Float(number) => Some(format!("{number:?}")),
        _ => None,
    }
}

/// A value that `parse` understands. The error of any other says what is `wanted`.
fn one<'de, D, T, E>(
    from: D,
    wanted: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: Display,
{
    let value = Value::deserialize(from)?;
    let text = text(&value).ok_or_else(|| unexpected(&value, wanted))?;
    parse(&text).map_err(Error::custom)
}

fn unexpected<E: Error>(value: &Value, wanted: &str) -> E {
    Error::custom(format!(
        "expected {wanted}, found a value of type {}",
        value.type_str()
    ))
}

/// A size: a number of bytes, or a number with a unit.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    one(from, "a size, as in \"512MiB\"", units::size).map(Some)
}

/// A length of time with its unit.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    one(from, "a time, as in \"50us\"", units::short_duration).map(Some)
}

/// An address and a port, or a port alone.
pub(super) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let wanted = "an address and a port, as in \"127.0.0.1:2049\"";
    one(from, wanted, units::address).map(Some)
}

/// A whole number.
pub(super) fn number<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    let parse = |text: &str| text.parse().map_err(|_| "give a whole number".to_owned());
    one(from, "a whole number", parse).map(Some)
}

/// A number of credits, or `adaptive`.
pub(super) fn credits<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<CreditsOption>, D::Error> {
    let wanted = "a number of credits, or \"adaptive\"";
    one(from, wanted, CreditsOption::from_str).map(Some)
}

/// `on` or `off`.
pub(super) fn on_or_off<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Nfs2>, D::Error> {
    const WANTED: &str = "\"on\" or \"off\"";
    let parse = |text: &str| Nfs2::from_str(text, false).map_err(|_| format!("expected {WANTED}"));
    one(from, WANTED, parse).map(Some)
}

/// `shm = true` asks for the default socket, as `--shm` alone does. `shm = false` leaves it out of the defaults.
pub(super) fn socket<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Shm>, D::Error> {
    match Value::deserialize(from)? {
        Value::Boolean(true) => Ok(Some(Shm::Default)),
        Value::Boolean(false) => Ok(Some(Shm::Off)),
        Value::String(path) => Ok(Some(Shm::At(path.into()))),
        other => Err(unexpected(&other, "true, false or the path of a socket")),
    }
}

/// A list of values, or one value alone.
pub(super) fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let values = match Value::deserialize(from)? {
        Value::Array(values) => values,
        one => vec![one],
    };
    let parse = |value: &Value| {
        let text = text(value)
            .ok_or_else(|| unexpected(value, "a list of texts, as in [\"a\", \"b\"]"))?;
        text.parse().map_err(Error::custom)
    };
    values.iter().map(parse).collect()
}
