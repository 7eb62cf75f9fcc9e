//! A stranger reads what goes over the RDMA listener: real connections, recorded between client and server, through
//! tshark. Without tshark there is nothing to test (apt-get install tshark).
#![cfg(not(shuttle))]

use odafs_common::wire::nfs3::{self, FileHandle};
use odafs_tests::pcap::Capture;
use odafs_tests::raw::{RawRpc, xdr};
use odafs_tests::raw_rdma::{
    Fpdu, Header, Messages, READ_REQUEST, READ_RESPONSE, RawRdma, To, WRITE,
};
use odafs_tests::served::Served;
use odafs_tests::tap::Tap;
use std::collections::BTreeSet;
use std::fs;
use tempfile::TempDir;

fn serve() -> (Served, TempDir, TempDir) {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), vec![7; 100_000]).expect("file");
    for (path, mode) in [("", 0o777), ("file", 0o666)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(directory.path().join(path), mode).expect("mode");
    }
    let options = ["--rdma", "127.0.0.1:0", "--squash", "none"];
    let server = Served::start(directory.path(), scratch.path(), &options);
    (server, directory, scratch)
}

/// Every packet is iWARP, none is malformed, and every checksum is right. `false` where there is no tshark.
fn is_understood(capture: &Capture, checksums: bool) -> bool {
    let Some(strange) = capture.tshark(&["-Y", "!iwarp_mpa"]) else {
        eprintln!("skipped: no tshark here");
        return false;
    };
    assert_eq!(strange, "", "no MPA frames");
    // It knows revision 1 of the handshake alone, so the flag and the number of revision 2 are errors to it.
    // And it does not look for what READ answers in the write chunk, where it is.
    let wrong =
        "_ws.malformed || (_ws.expert.severity == error && !iwarp_mpa.req && !iwarp_mpa.rep)";
    let wrong = capture.fields(wrong, &["_ws.col.Info"]).expect("tshark");
    let of_read = |info: &&Vec<String>| !info[0].contains("READ Reply");
    let wrong: Vec<_> = wrong.iter().filter(of_read).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let handshakes = capture
        .fields(
            "iwarp_mpa.req || iwarp_mpa.rep",
            &[
                "iwarp_mpa.rev",
                "iwarp_mpa.crc_flag",
                "iwarp_mpa.marker_flag",
                "iwarp_mpa.rej_flag",
            ],
        )
        .expect("tshark");
    assert!(!handshakes.is_empty() && handshakes.len().is_multiple_of(2));
    for handshake in handshakes {
        let crc = if checksums { "1" } else { "0" };
        assert_eq!(handshake, ["2", crc, "0", "0"]);
    }
    let crcs = capture
        .fields("iwarp_mpa.fpdu", &["iwarp_mpa.crc", "iwarp_mpa.crc_check"])
        .expect("tshark");
    for crc in crcs {
        assert_eq!(crc[0] != "0x00000000", checksums, "{crc:?}");
    }
    true
}

/// A call as Linux sends it.
fn call(
    raw: &mut RawRdma,
    procedure: u32,
    arguments: &[u8],
    change: impl FnOnce(&mut Header, u32),
) -> u32 {
    let (xid, mut call) = raw.call((nfs3::PROGRAM, nfs3::VERSION, procedure));
    call.extend(arguments);
    let mut header = Header::message(xid);
    change(&mut header, call.len() as u32);
    raw.message(&[header.bytes(), call].concat()).expect("call");
    xid
}

fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * index..4 * index + 4].try_into().expect("four"))
}

/// A READ into a write chunk and a WRITE out of a read chunk, beside plain calls.
fn as_linux_does(address: &str, root: &[u8], crc: bool) -> [u32; 4] {
    let mut raw = RawRdma::connect(address, crc);
    let null = call(&mut raw, 0, &[], |_, _| {});
    raw.receive().expect("reply");
    let name = nfs3::DirectoryName {
        directory: FileHandle(root),
        name: b"file",
    };
    let lookup = call(&mut raw, 3, &xdr(&name), |_, _| {});
    let found = raw.receive().expect("reply");
    // Behind the transport's header and that of the RPC: the status, and the handle.
    let length = word(&found, 7 + 6 + 1) as usize;
    let file = FileHandle(&found[4 * 15..4 * 15 + length]);

    let arguments = nfs3::ReadArgs {
        file,
        offset: 4096,
        count: 50_000,
    };
    let read = call(&mut raw, 6, &xdr(&arguments), |header, _| {
        header.writes = vec![vec![(0x7701, 30_000, 0x500), (0x7801, 30_000, 0)]];
    });
    while raw.get().expect("an answer").opcode == WRITE {}

    let mut arguments = xdr(&file);
    arguments.extend([0; 8]);
    arguments.extend([20_000_u32, 2, 20_000].map(u32::to_be_bytes).concat());
    let write = call(&mut raw, 7, &arguments, |header, position| {
        header.reads = vec![(position, 0x5151, 20_000, 0x1_0000_1000)];
    });
    let asked = raw.get().expect("a Read Request");
    assert_eq!(asked.opcode, READ_REQUEST);
    let (tag, offset) = (
        word(&asked.payload, 0),
        u64::from(word(&asked.payload, 1)) << 32 | u64::from(word(&asked.payload, 2)),
    );
    let to = To::Tagged { tag, offset };
    raw.put(&Fpdu {
        opcode: READ_RESPONSE,
        last: true,
        to,
        payload: vec![9; 20_000],
    })
    .expect("response");
    raw.receive().expect("reply");
    [null, lookup, read, write]
}

#[test]
fn tshark_understands_what_linux_is_answered() {
    let (server, directory, _scratch) = serve();
    let root = RawRpc::connect(&server.nfs).root();
    for crc in [false, true] {
        let tap = Tap::start(&server.rdma);
        let xids = as_linux_does(&tap.address.to_string(), &root, crc);
        let written = fs::read(directory.path().join("file")).expect("file");
        assert!(written[..20_000].iter().all(|&byte| byte == 9));
        let capture = tap.capture();
        if !is_understood(&capture, crc) {
            return;
        }
        let hex = |number: u32| format!("{number:#010x}");
        // Messages: number, transport's header. The answer to the WRITE gives back the only tag of its call.
        let messages = capture
            .fields(
                "iwarp_ddp.qn == 0",
                &[
                    "iwarp_ddp.msn",
                    "iwarp_rdma.opcode",
                    "iwarp_rdma.inval_stag",
                    "rpcordma.xid",
                    "rpcordma.version",
                    "rpcordma.msg_type",
                ],
            )
            .expect("tshark");
        let mut expected: Vec<Vec<String>> = (1..)
            .zip(xids)
            .flat_map(|(number, xid)| {
                let one = vec![
                    number.to_string(),
                    "0x03".into(),
                    String::new(),
                    hex(xid),
                    "1".into(),
                    "0".into(),
                ];
                [one.clone(), one]
            })
            .collect();
        expected[7][1] = "0x04".into();
        expected[7][2] = 0x5151.to_string();
        assert_eq!(messages, expected);
        // What they carry; the WRITE is put together with what was read for it.
        let calls = capture
            .fields("rpc.msgtyp == 0", &["rpc.xid", "nfs.procedure_v3"])
            .expect("tshark");
        let procedures = ["0", "3", "6", "7"].map(String::from);
        let expected: Vec<[String; 2]> = xids
            .into_iter()
            .map(hex)
            .zip(procedures)
            .map(|(xid, procedure)| [xid, procedure])
            .collect();
        assert_eq!(calls, expected);
        let credits = capture
            .fields(
                "rpcordma && tcp.srcport == 20049",
                &["rpcordma.flow_control"],
            )
            .expect("tshark");
        assert!(
            credits
                .iter()
                .all(|c| c[0].parse::<u32>().is_ok_and(|c| (1..=128).contains(&c))),
            "{credits:?}"
        );
        // The read chunk and the server's RDMA Read of it.
        let chunks = capture
            .fields(
                "rpcordma.reads_count == 1",
                &[
                    "rpcordma.rdma_handle",
                    "rpcordma.rdma_length",
                    "rpcordma.rdma_offset",
                ],
            )
            .expect("tshark");
        assert_eq!(chunks, [["0x00005151", "20000", "0x0000000100001000"]]);
        let reads = capture
            .fields(
                "iwarp_rdma.opcode == 1",
                &[
                    "iwarp_ddp.qn",
                    "iwarp_ddp.msn",
                    "iwarp_rdma.rdmardsz",
                    "iwarp_rdma.srcstag",
                    "iwarp_rdma.srcto",
                ],
            )
            .expect("tshark");
        assert_eq!(
            reads,
            [["1", "1", "20000", "0x00005151", "0x0000000100001000"]]
        );
        // The write chunk, the RDMA Writes to it, and what the reply says of it: the second segment is not filled.
        let tags: BTreeSet<String> = capture
            .fields("iwarp_rdma.opcode == 0", &["iwarp_ddp.stag"])
            .expect("tshark")
            .concat()
            .into_iter()
            .collect();
        assert_eq!(tags, ["0x00007701", "0x00007801"].map(String::from).into());
        let returned = capture
            .fields(
                "rpcordma.writes_count == 1 && tcp.srcport == 20049",
                &["rpcordma.rdma_handle", "rpcordma.rdma_length"],
            )
            .expect("tshark");
        assert_eq!(returned, [["0x00007701,0x00007801", "30000,20000"]]);
    }
}

#[test]
fn tshark_understands_our_own_client() {
    let (server, _directory, _scratch) = serve();
    for crc in [false, true] {
        let tap = Tap::start(&server.rdma);
        let query = if crc { "?crc=1" } else { "" };
        let url = format!("odafs://{}/{query}", tap.address);
        let client = odafs::Client::connect(&url).expect("connect");
        let file = client.open("/file").expect("open");
        let mut bytes = vec![0; 70_000];
        for _ in 0..3 {
            file.read_exact_at(&mut bytes, 4096).expect("read");
        }
        let made = client.create(format!("/made-{crc}")).expect("create");
        made.write_at(&vec![5; 40_000], 0).expect("write");
        made.sync().expect("sync");
        client.read_dir("/").expect("read_dir");
        client.remove(format!("/made-{crc}")).expect("remove");
        drop((file, made, client));
        let capture = tap.capture();
        if !is_understood(&capture, crc) {
            return;
        }
        let opcodes: BTreeSet<String> = capture
            .fields("iwarp_rdma.opcode", &["iwarp_rdma.opcode"])
            .expect("tshark")
            .concat()
            .into_iter()
            .collect();
        assert!(opcodes.contains("0x03"), "{opcodes:?}");
        let headers = capture
            .fields("rpcordma", &["rpcordma.version"])
            .expect("tshark");
        assert!(headers.len() > 10 && headers.iter().all(|version| version[0] == "1"));
    }
}
