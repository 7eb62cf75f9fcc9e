//! A stranger reads our NFS, MOUNT and portmapper messages: the golden inputs of the fuzz corpus, as the calls and
//! replies that they are, through tshark. Without tshark there is nothing to test (apt-get install tshark).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{Auth, AuthSys, Groups, call, reply_success};
use odafs_common::wire::xdr::Writer;
use odafs_common::wire::{mount3, nfs3, portmap};

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

/// One TCP connection in a capture file, without its handshake.
struct Capture {
    file: Vec<u8>,
    sequence: [u32; 2],
    xid: u32,
}

impl Capture {
    fn new() -> Self {
        let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        file.extend([2, 0, 4, 0]);
        file.extend([0; 8]);
        file.extend(65535_u32.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        Self {
            file,
            sequence: [1; 2],
            xid: 0,
        }
    }

    fn exchange(&mut self, program: u32, version: u32, procedure: u8, args: &[u8], result: &[u8]) {
        self.xid += 1;
        let gids = Groups::new(&[100, 4]);
        let sys = Auth::Sys(AuthSys {
            stamp: 1,
            machine: b"host",
            uid: 1000,
            gid: 100,
            gids,
        });
        let xid = self.xid;
        self.record(0, args, |w| {
            call(w, xid, program, version, procedure.into(), &sys)
        });
        self.record(1, result, |w| reply_success(w, xid));
    }

    fn record(&mut self, from: usize, body: &[u8], header: impl FnOnce(&mut Writer<'_>)) {
        let mut message = Vec::new();
        header(&mut Writer::new(&mut message));
        message.extend(body);
        let mark = RecordMark::whole(message.len() as u32).to_bytes();
        self.packet(from, &[&mark[..], &message].concat());
    }

    fn packet(&mut self, from: usize, payload: &[u8]) {
        let ports = [[3, 132], [8, 1]];
        let mut tcp = [ports[from], ports[1 - from]].concat();
        tcp.extend(self.sequence[from].to_be_bytes());
        tcp.extend(self.sequence[1 - from].to_be_bytes());
        tcp.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        self.sequence[from] += payload.len() as u32;

        let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
        frame.extend((20 + tcp.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1 + from as u8, 10, 0, 0, 2 - from as u8]);
        frame.extend(tcp);
        self.file.extend([0; 8]);
        self.file
            .extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        self.file.extend(frame);
    }
}

/// Every golden argument with some result of its procedure, and every golden result with some argument.
fn nfs(capture: &mut Capture) {
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
            capture.exchange(nfs3::PROGRAM, nfs3::VERSION, procedure, args, result);
        }
    }
}

fn mount(capture: &mut Capture) {
    let golden = golden("mount3");
    let path = &golden[&3][0];
    for (procedure, args) in [(1, &path[..]), (2, &[]), (5, &[])] {
        for result in &golden[&procedure] {
            capture.exchange(mount3::PROGRAM, mount3::VERSION, procedure, args, result);
        }
    }
}

fn port_map(capture: &mut Capture) {
    let golden = golden("portmap");
    capture.exchange(
        portmap::PROGRAM,
        portmap::VERSION,
        3,
        &golden[&0][0],
        &[0, 0, 8, 1],
    );
    for list in &golden[&1] {
        capture.exchange(portmap::PROGRAM, portmap::VERSION, 4, &[], list);
    }
}

fn tshark(capture: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(arguments)
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tshark_understands_every_message() {
    let mut capture = Capture::new();
    nfs(&mut capture);
    mount(&mut capture);
    port_map(&mut capture);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("golden.pcap");
    fs::write(&path, &capture.file).unwrap();

    let Some(packets) = tshark(
        &path,
        &["-T", "fields", "-e", "rpc.xid", "-e", "_ws.col.Info"],
    ) else {
        eprintln!("skipped: no tshark here");
        return;
    };
    assert_eq!(packets.lines().count(), 2 * capture.xid as usize);
    for (line, xid) in packets
        .lines()
        .zip((1..=capture.xid).flat_map(|xid| [xid, xid]))
    {
        assert!(line.starts_with(&format!("{xid:#010x}\t")), "{line}");
        assert!(line.contains(" Call") || line.contains(" Reply"), "{line}");
    }
    let wrong = "_ws.malformed || _ws.unreassembled || _ws.expert.severity == error || data";
    assert_eq!(tshark(&path, &["-Y", wrong]).unwrap(), "");

    // Values, not only shapes: the attributes of a GETATTR, an offset above 4 GiB, a name, a target.
    let values = tshark(
        &path,
        &[
            "-T",
            "fields",
            "-e",
            "nfs.fattr3.size",
            "-e",
            "nfs.offset3",
            "-e",
            "nfs.name",
            "-e",
            "nfs.readlink.data",
        ],
    );
    let values = values.unwrap();
    for value in ["4294971956", "4294967296", "name.c", "a/b/c"] {
        assert!(values.contains(value), "{value} is missing");
    }
}
