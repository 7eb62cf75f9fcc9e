//! What the fuzz targets in `fuzz/` run, one function a target; their corpus is replayed by the tests.
//!
//! Each accepts any bytes. Besides "no panic, no hang, little memory", each asserts that a value that is decoded,
//! encoded and decoded again is the same.

mod direct;
mod nfs2;
mod nfs3;
mod nfs4;
mod nfsacl3;
mod nlm4;
mod odafs;
mod rpc;
mod rpcrdma;
mod sessions;

/// A fuzz target: its name, which is that of its corpus directory, and the function that it runs.
pub type Target = (&'static str, fn(&[u8]));

/// Every target of this crate.
pub const TARGETS: &[Target] = &[
    ("direct", direct::messages),
    ("mount1", nfs2::mount1),
    ("mount3", rpc::mount3),
    ("nfs2_args", nfs2::args),
    ("nfs2_results", nfs2::results),
    ("nfs3_args", nfs3::args),
    ("nfs3_results", nfs3::results),
    ("nfs4_attributes", nfs4::attributes),
    ("nfs4_calls", nfs4::calls),
    ("nfs4_replies", nfs4::replies),
    ("nfsacl3", nfsacl3::nfsacl3),
    ("nlm4", nlm4::nlm4),
    ("noise", sessions::noise),
    ("nsm", nlm4::nsm),
    ("odafs_args", odafs::args),
    ("odafs_results", odafs::results),
    ("portmap", rpc::portmap),
    ("private_data", direct::private_data),
    ("record", rpc::record),
    ("rpc_call", rpc::call),
    ("rpc_reply", rpc::reply),
    ("rpcrdma_header", rpcrdma::header),
    ("rpcrdma_requester", rpcrdma::requester),
    ("rpcrdma_responder", rpcrdma::responder),
];

/// Runs the target with this name.
///
/// # Panics
/// If there is no corpus, or the target has found something.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target's name");
    target(bytes);
}

/// Decodes `$bytes` as `$type`; what that gives must survive encoding and decoding, in as many bytes.
macro_rules! check {
    ($type:ty, $bytes:expr) => {
        if let Ok(value) = <$type as crate::wire::xdr::Decode>::from_bytes($bytes) {
            let again = crate::wire::xdr::Encode::to_bytes(&value);
            assert_eq!(again.len(), $bytes.len(), "{value:?}");
            let decoded = <$type as crate::wire::xdr::Decode>::from_bytes(&again);
            assert_eq!(decoded, Ok(value));
        }
    };
}
use check;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::TARGETS;

    #[test]
    fn the_corpus_replays() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for (name, target) in TARGETS {
            let inputs = fs::read_dir(corpus.join(name)).expect("a corpus for each target");
            let inputs: Vec<_> = inputs
                .map(|input| input.expect("an input").path())
                .collect();
            assert!(!inputs.is_empty(), "{name} has no inputs");
            for input in inputs {
                target(&fs::read(&input).expect("an input"));
            }
        }
    }
}
