//! Extended headers, for what does not fit in a member's own header.

use crate::store::Time;

/// The values of the records that the index uses.
#[derive(Clone, Default)]
pub(super) struct Extended {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub mtime: Option<Time>,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
    /// Whether the member has holes, so that its data is not stored as it would be read.
    pub sparse: bool,
    /// The path of such a member. The other path is for programs that know nothing of holes.
    pub sparse_name: Option<Vec<u8>>,
}

impl Extended {
    /// Applies records (`LENGTH KEY=VALUE\n` each, with LENGTH that of the whole record) over earlier ones. The error
    /// says what is wrong.
    pub fn take(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        while !records.is_empty() {
            let (record, rest) = split(records).ok_or("a record of an extended header is wrong")?;
            records = rest;
            let equals = record.iter().position(|byte| *byte == b'=');
            let (key, value) = record.split_at(equals.ok_or("a record without `=`")?);
            let value = &value[1..];
            let whole = || std::str::from_utf8(value).ok()?.parse().ok();
            match key {
                // Without a value, a record cancels the earlier one.
                _ if value.is_empty() => self.take_back(key),
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value).ok_or("a size is no number")?),
                b"mtime" => self.mtime = Some(time(value).ok_or("a time is no number")?),
                b"uid" => self.uid = Some(whole().ok_or("a user id is no number")?),
                b"gid" => self.gid = Some(whole().ok_or("a group id is no number")?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    self.sparse = true;
                    if key == b"GNU.sparse.name" {
                        self.sparse_name = Some(value.to_vec());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_back(&mut self, key: &[u8]) {
        match key {
            b"path" => self.path = None,
            b"linkpath" => self.link = None,
            b"size" => self.size = None,
            b"mtime" => self.mtime = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            _ => {}
        }
    }
}

/// A record without its length and newline, and the rest behind it.
fn split(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&records[..space])?).ok()?;
    let (record, rest) = records.split_at_checked(length)?;
    Some((record.get(space + 1..)?.strip_suffix(b"\n")?, rest))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Seconds, possibly with a fraction, which is cut to nanoseconds.
fn time(value: &[u8]) -> Option<Time> {
    let value = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let seconds = whole.parse::<i64>().ok()?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    // The whole part of -0.5 does not show that the time is before 1970.
    let seconds = match whole.starts_with('-') {
        true => seconds.min(-1),
        false => seconds,
    };
    Some(clamped(seconds, nanoseconds))
}

/// The nearest time from 1970 to 2106.
pub(super) fn clamped(seconds: i64, nanoseconds: u32) -> Time {
    match u32::try_from(seconds) {
        Ok(seconds) => Time {
            seconds: seconds.into(),
            nanoseconds,
        },
        Err(_) => Time {
            seconds: if seconds < 0 { 0 } else { u32::MAX.into() },
            nanoseconds: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let mut said = Extended::default();
        said.take(b"12 path=a=b\n20 mtime=12.0345678\n12 size=100\n10 uid=-2\n")
            .unwrap();
        assert_eq!(said.path.as_deref(), Some(b"a=b".as_slice()));
        let nanoseconds = 34_567_800;
        let seconds = 12;
        assert_eq!(
            said.mtime,
            Some(Time {
                seconds,
                nanoseconds
            })
        );
        assert_eq!((said.size, said.uid), (Some(100), Some(-2)));
        said.take(b"8 size=\n8 path=\n7 uid=\n14 mtime=-0.5\n")
            .unwrap();
        assert_eq!((said.size, said.uid, said.path.clone()), (None, None, None));
        assert_eq!(said.mtime, Some(clamped(0, 0)));
        for bad in [
            b"x path=a\n".as_slice(),
            b"99 path=a\n",
            b"0 path=a\n",
            b"2 \n",
            b" \n",
            b"10 path=aa",
            b"9 pathaa\n",
            b"13 size=-100\n",
            b"13 mtime=1.-1\n",
            b"99999999999999999999999 path=a\n",
        ] {
            assert!(Extended::default().take(bad).is_err(), "{bad:?}");
        }
    }
}
