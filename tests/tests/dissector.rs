//! A stranger reads our NFS (versions 2 to 4), MOUNT and portmapper messages: the golden inputs of the fuzz corpus, as the calls and
//! replies that they are, through tshark. Without tshark there is nothing to test (apt-get install tshark).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use odafs_common::wire::xdr::Reader;
use odafs_common::wire::{mount1, mount3, nfs2, nfs3, nfs4, nfsacl3, portmap};
use odafs_tests::pcap::Messages;

/// The golden inputs of a fuzz target by their first byte, which is the procedure.
fn golden(target: &str) -> BTreeMap<u8, Vec<Vec<u8>>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut inputs: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    for input in fs::read_dir(corpus).unwrap().map(Result::unwrap) {
        if input.file_name().as_encoded_bytes().starts_with(b"golden") {
            let bytes = fs::read(input.path()).unwrap();
            inputs
                .entry(bytes[0])
                .or_default()
                .push(bytes[1..].to_vec());
        }
    }
    inputs
}

/// Every golden argument with some result of its procedure, and every golden result with some argument.
fn nfs(messages: &mut Messages) {
    let (args, results) = (golden("nfs3_args"), golden("nfs3_results"));
    for procedure in 1..22 {
        // Procedures that share their arguments or results share their golden inputs.
        let args = match procedure {
            5 | 18 | 19 | 20 => &args[&1],
            12 | 13 => &args[&3],
            _ => &args[&procedure],
        };
        let results = match procedure {
            9..=11 => &results[&8],
            12 | 13 => &results[&2],
            _ => &results[&procedure],
        };
        let turns = args.len().max(results.len());
        for (args, result) in args.iter().cycle().zip(results.iter().cycle()).take(turns) {
            messages.exchange(nfs3::PROGRAM, nfs3::VERSION, procedure, args, result);
        }
    }
}

/// The same by version 2.
fn nfs2(messages: &mut Messages) {
    let (args, results) = (golden("nfs2_args"), golden("nfs2_results"));
    for procedure in 1..18 {
        let (args, results) = (&args[&procedure], &results[&procedure]);
        let turns = args.len().max(results.len());
        for (args, result) in args.iter().cycle().zip(results.iter().cycle()).take(turns) {
            messages.exchange(nfs2::PROGRAM, nfs2::VERSION, procedure, args, result);
        }
    }
}

/// The program of callbacks that a dissector takes for one without having seen the client name it.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// Whether tshark (4.0) takes the operation apart; of GET_DIR_DELEGATION, WANT_DELEGATION, CB_RECALL_ANY and
/// CB_RECALL_SLOT it knows the names alone, and in WRITE_SAME it takes lengths for words.
fn is_dissected(program: u32, operation: u32) -> bool {
    match program {
        nfs4::PROGRAM => ![46, 56, 70].contains(&operation),
        _ => ![8, 10].contains(&operation),
    }
}

/// Whether this is an OPEN by file handle and delegation, whose stateid tshark leaves.
fn is_open_by_delegation(call: &[u8]) -> bool {
    let operations = nfs4::Operations::begin(Reader::new(call)).unwrap();
    let claim = |operation| match operation {
        nfs4::Operation::Open(open) => Some(open.claim),
        _ => None,
    };
    let mut claims = operations.flatten().filter_map(claim);
    claims.any(|claim| matches!(claim, nfs4::Claim::DelegateCurrentFile(_)))
}

/// Whether this is the reply to an OPEN that promises to tell of a delegation; tshark leaves the promise.
fn is_open_with_promise(reply: &[u8]) -> bool {
    use nfs4::{Delegation, WhyNone};
    let results = nfs4::Results::begin(Reader::new(reply)).unwrap();
    let delegation = |result| match result {
        nfs4::OperationResult::Open(open) => Some(open.ok()?.delegation),
        _ => None,
    };
    let mut delegations = results.flatten().filter_map(delegation);
    delegations.any(|delegation| {
        let Delegation::NoneBecause(why) = delegation else {
            return false;
        };
        matches!(why, WhyNone::Contention(_) | WhyNone::Resource(_))
    })
}

/// Every golden call with every golden reply of its operation: each has one operation behind the tag `tag`.
fn nfs4(messages: &mut Messages) {
    let (calls, replies) = (golden("nfs4_calls"), golden("nfs4_replies"));
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    for (kind, program, code_at) in [(0, nfs4::PROGRAM, 16), (1, CALLBACK_PROGRAM, 20)] {
        for call in &calls[&kind] {
            let operation = word(call, code_at);
            let is_nfs = program == nfs4::PROGRAM;
            if !is_dissected(program, operation) || is_nfs && is_open_by_delegation(call) {
                continue;
            }
            let of = |reply: &&Vec<u8>| {
                word(reply, 16) == operation && !(is_nfs && is_open_with_promise(reply))
            };
            let mut answers = 0;
            for reply in replies[&kind].iter().filter(of) {
                messages.exchange(program, version(program), 1, call, reply);
                answers += 1;
            }
            assert!(answers > 0, "no reply for operation {operation}");
        }
    }
}

/// That of NFS, or the only one of callbacks.
fn version(program: u32) -> u32 {
    if program == nfs4::PROGRAM {
        nfs4::VERSION
    } else {
        1
    }
}

fn mount(messages: &mut Messages) {
    let golden = golden("mount3");
    let path = &golden[&3][0];
    for (procedure, args) in [(1, &path[..]), (2, &[]), (5, &[])] {
        for result in &golden[&procedure] {
            messages.exchange(mount3::PROGRAM, mount3::VERSION, procedure, args, result);
        }
    }
}

/// MNT of versions 1 and 2, and PATHCONF of version 2.
fn older_mount(messages: &mut Messages) {
    let (golden, path) = (golden("mount1"), &golden("mount3")[&3][0]);
    for version in mount1::VERSIONS {
        for result in &golden[&1] {
            messages.exchange(mount3::PROGRAM, version, 1, path, result);
        }
    }
    let path_conf = mount1::PATH_CONF as u8;
    messages.exchange(mount3::PROGRAM, 2, path_conf, path, &golden[&2][0]);
}

fn port_map(messages: &mut Messages) {
    let golden = golden("portmap");
    messages.exchange(
        portmap::PROGRAM,
        portmap::VERSION,
        3,
        &golden[&0][0],
        &[0, 0, 8, 1],
    );
    for list in &golden[&1] {
        messages.exchange(portmap::PROGRAM, portmap::VERSION, 4, &[], list);
    }
}

/// Every golden argument of NFSACL with its golden results.
fn nfs_acl(messages: &mut Messages) {
    let golden = golden("nfsacl3");
    for procedure in [1, 2] {
        let of = |odd: u8| {
            let all = golden[&procedure].iter();
            all.filter(move |input| input[0] % 2 == odd)
        };
        for args in of(0) {
            for result in of(1) {
                let (program, version) = (nfsacl3::PROGRAM, nfsacl3::VERSION);
                messages.exchange(program, version, procedure, &args[1..], &result[1..]);
            }
        }
    }
}

#[test]
fn tshark_understands_every_message() {
    let mut messages = Messages::new();
    nfs2(&mut messages);
    nfs(&mut messages);
    nfs4(&mut messages);
    nfs_acl(&mut messages);
    mount(&mut messages);
    older_mount(&mut messages);
    port_map(&mut messages);
    let (capture, xids) = (messages.capture, messages.xid);

    let Some(packets) = capture.tshark(&["-T", "fields", "-e", "rpc.xid", "-e", "_ws.col.Info"])
    else {
        return;
    };
    assert_eq!(packets.lines().count(), 2 * xids as usize);
    for (line, xid) in packets.lines().zip((1..=xids).flat_map(|xid| [xid, xid])) {
        assert!(line.starts_with(&format!("{xid:#010x}\t")), "{line}");
        assert!(line.contains(" Call") || line.contains(" Reply"), "{line}");
    }
    let wrong = "_ws.malformed || _ws.unreassembled || _ws.expert.severity == error || data";
    assert_eq!(capture.tshark(&["-Y", wrong]).unwrap(), "");

    // Values, not only shapes: the attributes of a GETATTR, an offset above 4 GiB, a name, a target; of version 2 the
    // attributes, blocks, and what PATHCONF says.
    let fields = [
        "nfs.fattr3.size",
        "nfs.offset3",
        "nfs.name",
        "nfs.readlink.data",
        "nfs.fattr.size",
        "nfs.statfs.bavail",
    ];
    let values = capture.fields("nfs", &fields).unwrap().concat().join(" ");
    for value in ["4294971956", "4294967296", "name.c", "a/b/c", "4660", "400"] {
        assert!(values.contains(value), "{value} is missing");
    }
    let fields = [
        "mount.pathconf.name_max",
        "mount.pathconf.path_max",
        "mount.pathconf.mask",
        "mount.pathconf.mask.error_all",
    ];
    let told = capture.fields("mount.pathconf.mask", &fields).unwrap();
    assert_eq!(told.concat(), ["255", "1024", "0x0280", "0"]);
}
