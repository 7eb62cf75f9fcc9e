//! Sizes and durations as people write them.

use std::net::{AddrParseError, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A number of bytes: `4096`, `4KiB`, `64k`, `1GiB`, `1.5G`. Every unit is a power of two.
pub fn size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        _ if digits.is_empty() => 0,
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => {
            return Err(format!(
                "{unit:?} is not a unit of size; use B, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let (digits, unit) = (digits.trim(), 1u64 << shift);
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(|| TOO_LARGE.to_owned());
    }
    match digits.parse::<f64>() {
        Ok(n) if n * (unit as f64) >= u64::MAX as f64 => Err(TOO_LARGE.to_owned()),
        Ok(n) if n >= 0.0 => Ok((n * unit as f64) as u64),
        _ => Err("a size is a number with a unit, as in 512MiB".to_owned()),
    }
}

const TOO_LARGE: &str = "too large: sizes are below 16777216TiB";

/// An address to listen on: `127.0.0.1:2049`, `[::1]:2049`; a port alone is one of the loopback interface.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>();
    let on_loopback = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    on_loopback.or_else(|_| text.parse()).map_err(|_: AddrParseError| {
        "give an IP address and a port, as in 127.0.0.1:2049, 0.0.0.0:2049 or [::1]:2049; host names are not looked up".to_owned()
    })
}

/// A length of time: `3s`, `50us`, `1.5ms`, `200ns`, `10min`, `1h`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        _ if digits.is_empty() => 1.0,
        "" | "s" => 1.0,
        "h" => 3600.0,
        "min" => 60.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        unit => {
            return Err(format!(
                "{unit:?} is not a unit of time; use h, min, s, ms, us or ns"
            ));
        }
    };
    let number: f64 = digits.trim().parse().map_err(|_| NO_TIME.to_owned())?;
    Duration::try_from_secs_f64(number * unit)
        .map_err(|_| "a time is 0 or more, and below 584 billion years".to_owned())
}

/// How long to wait for an answer: the same, but not zero, in which no answer can come.
pub fn deadline(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than 0".to_owned()),
        time => Ok(time),
    }
}

const NO_TIME: &str = "a time is a number with a unit, as in 50us";

/// The same for times that are usually far below a second. Only zero may lack a unit, because whoever writes 10 there
/// does not mean seconds.
pub fn short_duration(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match text.ends_with(|c: char| c.is_ascii_alphabetic()) || time.is_zero() {
        true => Ok(time),
        false => Err(NO_TIME.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4KiB", 4096),
            ("64k", 65536),
            ("1.5 GiB", 3 << 29),
            ("0", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "4 furlongs", "-1", "99999999999TiB", "1e400"] {
            assert!(size(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999999", "99999999999TiB", "1.5e30k"] {
            assert_eq!(size(text), Err(TOO_LARGE.to_owned()), "{text}");
        }
    }

    #[test]
    fn addresses() {
        for (text, address) in [
            ("2049", "127.0.0.1:2049"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(super::address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", "localhost:1", "65536", "127.0.0.1", "-1", ":2049"] {
            let said = super::address(text).unwrap_err();
            assert!(said.contains("127.0.0.1:2049"), "{text}: {said}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h"), duration("60min"));
        for text in ["", "-1s", "3 days", "s", "1h30m"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(short_duration("50us"), duration("50us"));
        assert_eq!(short_duration("2 s"), duration("2"));
        assert_eq!(short_duration("0"), Ok(Duration::ZERO));
        for text in ["10", "0.5", "fast"] {
            assert_eq!(short_duration(text), Err(NO_TIME.to_owned()), "{text}");
        }
    }
}
