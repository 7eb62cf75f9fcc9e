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

fn serve(options: &[&str]) -> (Served, TempDir, TempDir) {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), vec![7; 100_000]).expect("file");
    for (path, mode) in [("", 0o777), ("file", 0o666)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(directory.path().join(path), mode).expect("mode");
    }
    let ours = ["--rdma", "127.0.0.1:0", "--squash", "none", "--insecure"];
    let options = [&ours, options].concat();
    let server = Served::start(directory.path(), scratch.path(), &options);
    (server, directory, scratch)
}

/// Every packet is iWARP, none is malformed, and every checksum is right. `false` where there is no tshark.
fn is_understood(capture: &Capture, checksums: bool) -> bool {
    let Some(strange) = capture.tshark(&["-Y", "!iwarp_mpa"]) else {
        return false;
    };
    assert_eq!(strange, "", "no MPA frames");
    // It knows revision 1 of the handshake alone, so the flag and the number of revision 2 are errors to it.
    // And it does not look for what READ answers in the write chunk, where it is.
    let wrong =
        "_ws.malformed || (_ws.expert.severity == error && !iwarp_mpa.req && !iwarp_mpa.rep)";
    let wrong = capture
        .fields(wrong, &["frame.number", "_ws.col.Info"])
        .expect("tshark");
    let placed = placed_reads(capture);
    let stray: Vec<_> = (wrong.iter().filter(|row| !placed.contains(&row[0]))).collect();
    assert!(stray.is_empty(), "{stray:?}");
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

/// The frames of READ replies whose data is in a write chunk. What stands in them ends behind the length of that data, which
/// is the count that they give, and as much as the chunk has (RFC 8267 section 2.1.1).
fn placed_reads(capture: &Capture) -> BTreeSet<String> {
    let replies = capture
        .fields(
            "rpc.msgtyp == 1 && nfs.procedure_v3 == 6 && rpcordma.writes_count == 1",
            &[
                "frame.number",
                "iwarp_mpa.ulpdulength",
                "rpcordma.rdma_length",
                "rpc.state_accept",
                "nfs.status",
                "nfs.count3",
                "tcp.payload",
            ],
        )
        .expect("tshark");
    for reply in &replies {
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let [_, length, placed, accepted, status, count, payload] = &reply[..] else {
            panic!("{reply:?}");
        };
        // It says what stands in front of the data once more when it has found none.
        let zero = |text: &str| text.split(',').all(|status| status == "0");
        assert!(zero(accepted) && zero(status), "{reply:?}");
        let segments: Vec<usize> = placed.split(',').map(number).collect();
        let count = number(count.split(',').next().expect("a count"));
        assert_eq!(segments.iter().sum::<usize>(), count, "{reply:?}");
        // Header of DDP; of RPC-over-RDMA, with three lists of which one has an entry; of the reply; status and attributes.
        let before = 18 + (4 + 3 + 2) * 4 + segments.len() * 16 + 24 + (4 + 4 + 84);
        assert_eq!(number(length), before + 3 * 4, "{reply:?}");
        // The count, whether the file ends there, the length of the data. In front of it all stands its length.
        let word = |at: usize| u32::from_str_radix(&payload[2 * (2 + at)..][..8], 16);
        assert_eq!(word(before), Ok(count as u32), "{reply:?}");
        assert!(word(before + 4).is_ok_and(|eof| eof <= 1), "{reply:?}");
        assert_eq!(word(before + 8), Ok(count as u32), "{reply:?}");
    }
    replies
        .into_iter()
        .map(|mut row| row.swap_remove(0))
        .collect()
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
    let (server, directory, _scratch) = serve(&[]);
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
    let (server, _directory, _scratch) = serve(&[]);
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

/// Reads of one page by this route: what is recorded of them, and how many were direct.
fn direct_reads(server: &Served, crc: bool, route: odafs::Route) -> (Capture, usize) {
    let tap = Tap::start(&server.rdma);
    let query = if crc { "?crc=1" } else { "" };
    let url = format!("odafs://{}/{query}", tap.address);
    let options = odafs::Options {
        route,
        cache: odafs::Cache::Off,
        ..odafs::Options::default()
    };
    let client = odafs::Client::connect_with(&url.parse().expect("url"), options).expect("connect");
    let file = client.open("/file").expect("open");
    let mut page = [0; 4096];
    for _ in 0..5 {
        file.read_exact_at(&mut page, 8192).expect("read");
        assert_eq!(page, [7; 4096]);
    }
    let direct = client.statistics().direct_hits as usize;
    assert!(direct >= 4, "{direct} direct reads of 5");
    drop((file, client));
    (tap.capture(), direct)
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("no number: {text:?}"))
}

/// What is in these fields of the packets that `filter` lets through.
fn numbers(capture: &Capture, filter: &str, fields: &[&str]) -> Vec<Vec<u64>> {
    let rows = capture.fields(filter, fields).expect("tshark");
    let numbers = |row: &Vec<String>| row.iter().map(|text| number(text)).collect();
    rows.iter().map(numbers).collect()
}

/// Header of DDP and RDMAP in a segment with a tag (RFC 5041 section 4.2).
const TAGGED_BYTES: u64 = 14;
/// The same in one without (section 4.3).
const UNTAGGED_BYTES: u64 = 18;
const FROM_CLIENT: &str = "tcp.dstport == 20049";
const FROM_SERVER: &str = "tcp.srcport == 20049";

#[test]
fn tshark_understands_one_sided_reads() {
    let (server, _directory, _scratch) = serve(&["--direct", "one-sided"]);
    for crc in [false, true] {
        let (capture, direct) = direct_reads(&server, crc, odafs::Route::OneSided);
        if !is_understood(&capture, crc) {
            return;
        }
        // The page, and behind it its stamp: two regions, two sinks, each read in its order.
        let asked = numbers(
            &capture,
            &format!("iwarp_rdma.opcode == 1 && {FROM_CLIENT}"),
            &[
                "iwarp_ddp.qn",
                "iwarp_ddp.msn",
                "iwarp_rdma.rdmardsz",
                "iwarp_rdma.srcstag",
                "iwarp_rdma.srcto",
                "iwarp_rdma.sinkstag",
                "iwarp_rdma.sinkto",
            ],
        );
        assert_eq!(asked.len(), 2 * direct, "{asked:?}");
        for (pair, at) in asked.chunks(2).zip((1..).step_by(2)) {
            let [data, stamp] = pair else {
                panic!("{asked:?}");
            };
            assert_eq!(data[..3], [1, at, 4096]);
            assert_eq!(stamp[..3], [1, at + 1, 8]);
            assert_eq!((data[3], stamp[3]), (asked[0][3], asked[1][3]));
            assert_ne!(data[3], stamp[3], "one tag for the arena and its stamps");
            assert_eq!(data[4] % 4096, 0, "no page's address");
            assert_eq!(stamp[4], data[4] / 4096 * 8, "another page's stamp");
        }
        // What is answered goes where that was to go: all of it, in the order of the questions.
        let answers = numbers(
            &capture,
            &format!("iwarp_rdma.opcode == 2 && {FROM_SERVER}"),
            &[
                "iwarp_ddp.last_flag",
                "iwarp_ddp.stag",
                "iwarp_ddp.tagged_offset",
                "iwarp_mpa.ulpdulength",
            ],
        );
        let wanted: Vec<_> = asked
            .iter()
            .map(|asked| vec![1, asked[5], asked[6], TAGGED_BYTES + asked[2]])
            .collect();
        assert_eq!(answers, wanted);
    }
}

#[test]
fn tshark_understands_guarded_reads() {
    let (server, _directory, _scratch) = serve(&["--direct", "guarded"]);
    for crc in [false, true] {
        let (capture, direct) = direct_reads(&server, crc, odafs::Route::Guarded);
        if !is_understood(&capture, crc) {
            return;
        }
        let none = numbers(&capture, "iwarp_rdma.opcode == 1", &["iwarp_ddp.qn"]);
        assert_eq!(none, [[0; 0]; 0], "RDMA Reads");
        // Sealed requests of 80 bytes, in the Sends of a connection whose messages are numbered without a gap.
        let messages = |from: &str, bytes: u64| {
            let filter = format!(
                "iwarp_rdma.opcode == 3 && iwarp_ddp.qn == 0 && !rpcordma && {from} && iwarp_mpa.ulpdulength == {}",
                UNTAGGED_BYTES + bytes
            );
            let fields = ["iwarp_ddp.msn", "iwarp_ddp.last_flag", "iwarp_ddp.mo"];
            numbers(&capture, &filter, &fields)
        };
        let requests = messages(FROM_CLIENT, 80);
        assert_eq!(requests.len(), direct);
        let first = requests[0][0];
        let in_order: Vec<_> = (first..).take(direct).map(|n| vec![n, 1, 0]).collect();
        assert_eq!(requests, in_order);
        // Each says where the page shall go: there it is written, all at once, and a completion of 32 bytes follows.
        let sealed = capture
            .fields(
                &format!("{FROM_CLIENT} && iwarp_mpa.ulpdulength == 98 && !rpcordma"),
                &["tcp.payload"],
            )
            .expect("tshark");
        let sinks: Vec<Vec<u64>> = sealed.iter().map(|row| sink(&row[0])).collect();
        let writes = numbers(
            &capture,
            &format!("iwarp_rdma.opcode == 0 && {FROM_SERVER}"),
            &[
                "iwarp_ddp.last_flag",
                "iwarp_mpa.ulpdulength",
                "iwarp_ddp.stag",
                "iwarp_ddp.tagged_offset",
            ],
        );
        let to_sinks: Vec<_> = (writes.iter())
            .filter(|write| sinks.contains(&write[2..].to_vec()))
            .collect();
        assert_eq!(to_sinks.len(), direct, "{writes:?}, {sinks:?}");
        let whole = [1, TAGGED_BYTES + 4096];
        assert!(
            to_sinks.iter().all(|write| write[..2] == whole),
            "{writes:?}"
        );
        assert_eq!(messages(FROM_SERVER, 32).len(), direct);
    }
}

/// Tag and offset of the sink in a sealed request (docs/WIRE-DIRECT.md), behind the length of the segment and its header.
fn sink(payload: &str) -> Vec<u64> {
    let request = &payload[2 * (2 + UNTAGGED_BYTES as usize)..];
    let little = |at: usize, bytes: usize| {
        let octet = |at| u64::from_str_radix(&request[2 * at..2 * at + 2], 16).expect("hex");
        (at..at + bytes)
            .rev()
            .fold(0, |sum, at| sum << 8 | octet(at))
    };
    vec![little(12, 4), little(48, 8)]
}
