//! Users and groups of this host by name.

use std::fs;
use std::str::FromStr;

use odafs_server::config::Grantee;
use serde::Deserialize;

/// What `--one-sided-for` says of one: a user, `@` and a group, or `all`; names or numbers.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
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

impl TryFrom<String> for Named {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A number, or the third field of the line that begins with the name.
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
        format!("{file} has no {kind} {name:?}; name a user, @GROUP or all, or give its number")
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
