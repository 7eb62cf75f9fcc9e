//! Users and groups of this host by name.

use std::fs;
use std::str::FromStr;

use odafs_server::config::Grantee;

/// A value of `--one-sided-for`: a user, `@` and a group, or `all`. Users and groups are names or numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Named(pub Grantee);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let grantee = match text.strip_prefix('@') {
            _ if text == "all" => Grantee::All,
            Some(group) => Grantee::Group(id(group, "group", "/etc/group")?),
            None => Grantee::User(id(text, "user", "/etc/passwd")?),
        };
        Ok(Self(grantee))
    }
}

/// The id of a user or group: the number given, or the third field of the file's line that begins with the name.
fn id(name: &str, kind: &str, file: &str) -> Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split(':'));
    let id = lines.find_map(|mut fields| {
        let found = fields.next() == Some(name) && !name.is_empty();
        found.then(|| fields.nth(1)?.parse().ok())?
    });
    id.ok_or_else(|| {
        format!("{file} lists no {kind} {name:?}; name a user, @GROUP or all, or give the number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_groups_and_all_by_name_or_number() {
        let named = |text: &str| text.parse::<Named>().map(|named| named.0);
        for (text, grantee) in [
            ("all", Grantee::All),
            ("root", Grantee::User(0)),
            ("@root", Grantee::Group(0)),
            ("1234", Grantee::User(1234)),
            (" @1234", Grantee::Group(1234)),
        ] {
            assert_eq!(named(text), Ok(grantee), "{text}");
        }
        for wrong in ["", "@", "no such user", "@all", "-1"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }
}
