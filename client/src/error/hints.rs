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

/// What to look at where no server was reached, unless the error itself says it.
pub fn hint(told: &io::Error) -> String {
    let text = told.to_string();
    if text.contains(odafs_fabric::NO_REPLY) {
        format!(" ({NO_RDMA})")
    } else if told.kind() == io::ErrorKind::PermissionDenied {
        String::new()
    } else {
        unless_refused(&text, " (is it running, and is this its address?)").to_owned()
    }
}
