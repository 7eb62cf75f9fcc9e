//! What error messages add: names and questions that nobody has told yet.

use std::io;

/// The server's name, unless the text `told` contains it, as errors of shared memory do.
pub fn unless_named<'a>(server: &'a str, told: &str) -> &'a str {
    if told.contains(server) {
        "the server"
    } else {
        server
    }
}

/// The question, unless the text `told` comes from the server itself.
pub fn unless_refused<'a>(told: &str, question: &'a str) -> &'a str {
    if told.contains(odafs_fabric::REFUSED) {
        ""
    } else {
        question
    }
}

/// What may be wrong with a peer that takes a connection for RDMA and closes it without a reply.
pub const NO_RDMA: &str = "it may not speak NFS over RDMA, or have as many connections as it allows: check the port, and use \
                                  nfs:// for a server's NFS port";

/// The reason, and what to look at unless the error itself says it.
pub fn why_unreachable(told: &io::Error) -> String {
    let text = told.to_string();
    // In the words of glibc and of musl. Other failures to look a name up say nothing about the name.
    let unknown = ["Name or service not known", "Name does not resolve"];
    if text.contains("lookup address") && unknown.iter().any(|words| text.contains(words)) {
        return "no such host: check the name".to_owned();
    }
    if text.contains(odafs_fabric::NOT_LISTENING) {
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
        for other in [
            "Temporary failure in name resolution",
            "No address associated with hostname",
        ] {
            let said = told(other);
            assert!(said.contains(other), "{said}");
        }
    }
}
