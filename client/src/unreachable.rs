//! Why no server was reached, and what to look at.

use std::io;

use crate::error::{NO_RDMA, unless_refused};

/// The reason, and what to look at unless the error itself says it.
pub fn why_unreachable(told: &io::Error) -> String {
    let text = told.to_string();
    // The system's words for a name that no name server knows depend on its library.
    if text.contains("lookup address") && !text.contains("emporary") {
        return "no such host: check the name".to_owned();
    }
    if text.contains("no server listens there") {
        return format!(
            "{text}; is it running? Start it with `odafs serve`, or name the socket that its option `--shm` names"
        );
    }
    if text.contains(odafs_fabric::NO_REPLY) {
        return format!("{text} ({NO_RDMA})");
    }
    let question = match told.kind() {
        io::ErrorKind::PermissionDenied => "",
        _ => unless_refused(&text, " (is it running, and is this its address?)"),
    };
    text.clone() + question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_told_as_one() {
        let told = |why: &str| {
            let text = format!("failed to lookup address information: {why}");
            why_unreachable(&io::Error::other(text))
        };
        let unknown = told("Name or service not known");
        assert_eq!(unknown, "no such host: check the name");
        let later = told("Temporary failure in name resolution");
        assert!(later.contains("Temporary failure"), "{later}");
    }
}
