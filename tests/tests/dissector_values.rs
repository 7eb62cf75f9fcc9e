//! A stranger reads values of NFS version 4: what tshark prints of compounds is what was encoded. Whether it can read all
//! messages at all is in `dissector.rs`. Without tshark there is nothing to test (apt-get install tshark).

use std::collections::BTreeMap;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::xdr::{Decode as _, Encode as _, Writer};
use odafs_tests::compounds::compound;
use odafs_tests::pcap::Messages;

const SESSION: SessionId = [0xa1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xbf];
const SESSION_HEX: &str = "a102030405060708090a0b0c0d0e0fbf";
const OPEN: StateId = StateId {
    sequence: 0x0102_0304,
    other: [0xc1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xcc],
};
const OPEN_HEX: &str = "c102030405060708090a0bcc";
const LOCK: StateId = StateId {
    sequence: 0x0506_0708,
    other: [0xd1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xdc],
};
const LOCK_HEX: &str = "d102030405060708090a0bdc";
const CLIENT: u64 = 0x1122_3344_5566_7788;
const CLIENT_HEX: &str = "0x1122334455667788";

/// Fields as tshark prints them, several of one name behind each other.
type Fields<'a> = &'a [(&'a str, &'a str)];

/// A call and its reply, and what tshark prints of each.
struct Sample {
    call: Vec<u8>,
    reply: Vec<u8>,
    asked: BTreeMap<String, String>,
    told: BTreeMap<String, String>,
}

fn sequence() -> (Operation<'static>, OperationResult<'static>) {
    let call = Operation::Sequence(SequenceArgs {
        session: SESSION,
        sequence: 0x2122_2324,
        slot: 25,
        highest_slot: 26,
        cache: true,
    });
    let reply = OperationResult::Sequence(Ok(SequenceOk {
        session: SESSION,
        sequence: 0x2122_2325,
        slot: 27,
        highest_slot: 28,
        target_highest_slot: 29,
        status_flags: sequence_status::LEASE_MOVED | sequence_status::BACKCHANNEL_FAULT,
    }));
    (call, reply)
}

/// A compound in a session.
fn in_session(
    operation: Operation<'_>,
    result: OperationResult<'_>,
    status: Status,
    (asked, told): (Fields<'_>, Fields<'_>),
) -> Sample {
    let (call, reply) = sequence();
    sample(&[call, operation], &[reply, result], status, (asked, told))
}

fn sample(
    operations: &[Operation<'_>],
    results: &[OperationResult<'_>],
    status: Status,
    (asked, told): (Fields<'_>, Fields<'_>),
) -> Sample {
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    status.encode(&mut w);
    w.opaque(b"");
    w.u32(results.len() as u32);
    results.iter().for_each(|result| result.encode(&mut w));
    let owned = |fields: Fields<'_>| {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        fields.iter().map(own).collect()
    };
    Sample {
        call: compound(2, operations),
        reply,
        asked: owned(asked),
        told: owned(told),
    }
}

fn sequence_alone() -> Sample {
    let (call, reply) = sequence();
    let asked: Fields<'_> = &[
        ("nfs.minorversion", "2"),
        ("nfs.ops.count", "1"),
        ("nfs.opcode", "53"),
        ("nfs.session_id4", SESSION_HEX),
        ("nfs.seqid", "0x21222324"),
        ("nfs.slotid", "25"),
        ("nfs.high_slotid", "26"),
        ("nfs.cachethis4", "1"),
    ];
    let told: Fields<'_> = &[
        ("nfs.nfsstat4", "0,0"),
        ("nfs.session_id4", SESSION_HEX),
        ("nfs.seqid", "0x21222325"),
        ("nfs.slotid", "27"),
        ("nfs.high_slotid", "28"),
        ("nfs.target_high_slotid", "29"),
        ("nfs.sequence.flags", "0x00000480"),
        ("nfs.sequence.flags.lease_moved", "1"),
        ("nfs.sequence.flags.backchannel_fault", "1"),
        ("nfs.sequence.flags.restart_reclaim_needed", "0"),
    ];
    sample(&[call], &[reply], Status::Ok, (asked, told))
}

/// A channel with six values in order, from this one on.
const fn channel(first: u32) -> ChannelAttributes {
    ChannelAttributes {
        header_padding: first,
        max_request: first + 1,
        max_response: first + 2,
        max_response_cached: first + 3,
        max_operations: first + 4,
        max_requests: first + 5,
        rdma_reads: AtMostOne(None),
    }
}

fn create_session() -> Sample {
    let call = Operation::CreateSession(CreateSessionArgs {
        client_id: CLIENT,
        sequence: 0x3132_3334,
        flags: create_session_flag::PERSIST | create_session_flag::BACK_CHANNEL,
        fore: channel(1000),
        back: channel(2000),
        callback_program: 0x4000_0001,
        callback_security: List(vec![CallbackSecurity::None]),
    });
    let reply = OperationResult::CreateSession(Ok(CreateSessionOk {
        session: SESSION,
        sequence: 0x3132_3335,
        flags: create_session_flag::BACK_CHANNEL,
        fore: channel(3000),
        back: channel(4000),
    }));
    let asked: Fields<'_> = &[
        ("nfs.clientid", CLIENT_HEX),
        ("nfs.seqid", "0x31323334"),
        ("nfs.create_session_flags", "0x00000003"),
        ("nfs.padsize4", "1000,2000"),
        ("nfs.maxreqsize4", "1001,2001"),
        ("nfs.maxrespsize4", "1002,2002"),
        ("nfs.maxrespsizecached4", "1003,2003"),
        ("nfs.maxops4", "1004,2004"),
        ("nfs.maxreqs4", "1005,2005"),
        ("nfs.cb_program", "0x40000001"),
    ];
    let told: Fields<'_> = &[
        ("nfs.session_id4", SESSION_HEX),
        ("nfs.seqid", "0x31323335"),
        ("nfs.create_session_flags", "0x00000002"),
        ("nfs.padsize4", "3000,4000"),
        ("nfs.maxreqsize4", "3001,4001"),
        ("nfs.maxrespsize4", "3002,4002"),
        ("nfs.maxrespsizecached4", "3003,4003"),
        ("nfs.maxops4", "3004,4004"),
        ("nfs.maxreqs4", "3005,4005"),
    ];
    sample(&[call], &[reply], Status::Ok, (asked, told))
}

fn open() -> Sample {
    let set = SetAttributes {
        size: Some(0x1_0000_0001),
        mode: Some(0o640),
        ..SetAttributes::default()
    };
    let set = set.to_bytes();
    let attributes = RawAttributes::from_bytes(&set).expect("attributes");
    let call = Operation::Open(OpenArgs {
        sequence: 0x4142_4344,
        share_access: share_access::BOTH,
        share_deny: share_deny::WRITE,
        owner: StateOwner {
            client_id: CLIENT,
            owner: Opaque(b"owner"),
        },
        create: Some(CreateHow::Guarded(attributes)),
        claim: Claim::Null(Name(b"a file")),
    });
    let reply = OperationResult::Open(Ok(OpenOk {
        state: OPEN,
        directory: ChangeInfo {
            atomic: true,
            before: 0x1_0000_0002,
            after: 0x1_0000_0003,
        },
        flags: open_result::LOCKTYPE_POSIX | open_result::MAY_NOTIFY_LOCK,
        set: Bitmap::of(&[Attribute::Size, Attribute::Mode]),
        delegation: Delegation::Write(WriteDelegation {
            state: LOCK,
            recall: true,
            space_limit: SpaceLimit::Size(0x1_0000_0004),
            permissions: Ace {
                kind: ace_type::DENY,
                flags: ace_flag::IDENTIFIER_GROUP,
                access: ace_mask::WRITE_DATA,
                who: Opaque(b"GROUP@"),
            },
        }),
    }));
    let asked: Fields<'_> = &[
        ("nfs.seqid", "0x21222324,0x41424344"),
        ("nfs.open4.share_access", "3"),
        ("nfs.open4.share_deny", "2"),
        ("nfs.clientid", CLIENT_HEX),
        ("nfs.open_owner4", "6f776e6572"),
        ("nfs.open.opentype", "1"),
        ("nfs.createmode4", "1"),
        ("nfs.attr", "4,33"),
        ("nfs.fattr4.size", "4294967297"),
        ("nfs.mode", "416"),
        ("nfs.open.claim_type", "0"),
        ("nfs.pathname.component", "a file"),
    ];
    let told: Fields<'_> = &[
        ("nfs.stateid.seqid", "16909060,84281096"),
        ("nfs.stateid.other", &format!("{OPEN_HEX},{LOCK_HEX}")),
        ("nfs.change_info.atomic", "1"),
        ("nfs.changeid4.before", "4294967298"),
        ("nfs.changeid4.after", "4294967299"),
        ("nfs.open_rflags", "0x00000024"),
        ("nfs.attr", "4,33"),
        ("nfs.open.delegation_type", "2"),
        ("nfs.recall", "1"),
        ("nfs.open.limit_by", "1"),
        ("nfs.filesize", "4294967300"),
        ("nfs.acetype4", "1"),
        ("nfs.aceflags4", "0x00000040"),
        ("nfs.acemask4", "0x00000002"),
        ("nfs.who", "GROUP@"),
    ];
    in_session(call, reply, Status::Ok, (asked, told))
}

fn lock() -> Sample {
    let call = Operation::Lock(LockArgs {
        kind: LockType::WriteWait,
        reclaim: true,
        offset: 0x1_0000_0005,
        length: 0x1_0000_0006,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 0x5152_5354,
            open: OPEN,
            lock_sequence: 0x5152_5355,
            owner: StateOwner {
                client_id: CLIENT,
                owner: Opaque(b"locker"),
            },
        }),
    });
    let reply = OperationResult::Lock(Err(LockFailed::Denied(LockDenied {
        offset: 0x1_0000_0007,
        length: 0x1_0000_0008,
        kind: LockType::Read,
        owner: StateOwner {
            client_id: CLIENT + 1,
            owner: Opaque(b"other"),
        },
    })));
    let asked: Fields<'_> = &[
        ("nfs.locktype4", "4"),
        ("nfs.lock.reclaim", "1"),
        ("nfs.offset4", "4294967301"),
        ("nfs.length4", "4294967302"),
        ("nfs.lock.locker.new_lock_owner", "1"),
        ("nfs.seqid", "0x21222324,0x51525354"),
        ("nfs.stateid.seqid", "16909060"),
        ("nfs.stateid.other", OPEN_HEX),
        ("nfs.lock_seqid", "0x51525355"),
        ("nfs.clientid", CLIENT_HEX),
        ("nfs.lock_owner4", "6c6f636b6572"),
    ];
    let told: Fields<'_> = &[
        ("nfs.nfsstat4", "10010,0,10010"),
        ("nfs.offset4", "4294967303"),
        ("nfs.length4", "4294967304"),
        ("nfs.locktype4", "1"),
        ("nfs.clientid", "0x1122334455667789"),
        ("nfs.lock_owner4", "6f74686572"),
    ];
    in_session(call, reply, Status::Denied, (asked, told))
}

fn get_attributes() -> Sample {
    let number = |number: u32| 0x1_0000_0000 + u64::from(number);
    let time = |number: u32| Time {
        seconds: i64::from(number),
        nanoseconds: number,
    };
    let attributes = Attributes {
        kind: Some(FileType::Regular),
        change: Some(number(3)),
        size: Some(number(4)),
        fsid: Some(FsId {
            major: number(8),
            minor: number(9),
        }),
        lease_time: Some(10),
        fileid: Some(number(20)),
        files_available: Some(number(21)),
        files_free: Some(number(22)),
        files_total: Some(number(23)),
        max_file_size: Some(number(27)),
        max_link: Some(28),
        max_name: Some(29),
        max_read: Some(number(30)),
        max_write: Some(number(31)),
        mode: Some(0o4755),
        links: Some(35),
        owner: Some(Opaque(b"1000")),
        group: Some(Opaque(b"group@domain")),
        space_available: Some(number(42)),
        space_free: Some(number(43)),
        space_total: Some(number(44)),
        space_used: Some(number(45)),
        time_access: Some(time(47)),
        time_metadata: Some(time(52)),
        time_modify: Some(time(53)),
        mounted_on_fileid: Some(number(55)),
        clone_block_size: Some(77),
        space_freed: Some(number(78)),
        xattr_support: Some(true),
        ..Attributes::default()
    };
    let mask = attributes.mask();
    let numbers = mask.iter().map(|number| number.to_string());
    let numbers = numbers.collect::<Vec<_>>().join(",");
    let bytes = attributes.to_bytes();
    let raw = RawAttributes::from_bytes(&bytes).expect("attributes");
    let asked: Fields<'_> = &[("nfs.opcode", "53,9"), ("nfs.attr", &numbers)];
    let told: Fields<'_> = &[
        ("nfs.attr", &numbers),
        ("nfs.nfs_ftype4", "1"),
        ("nfs.changeid4", "4294967299"),
        ("nfs.fattr4.size", "4294967300"),
        ("nfs.fsid4.major", "4294967304"),
        ("nfs.fsid4.minor", "4294967305"),
        ("nfs.fattr4.lease_time", "10"),
        ("nfs.fattr4.fileid", "4294967316"),
        ("nfs.fattr4.files_avail", "4294967317"),
        ("nfs.fattr4.files_free", "4294967318"),
        ("nfs.fattr4.files_total", "4294967319"),
        ("nfs.fattr4.maxfilesize", "4294967323"),
        ("nfs.fattr4.maxlink", "28"),
        ("nfs.fattr4.maxname", "29"),
        ("nfs.fattr4.maxread", "4294967326"),
        ("nfs.fattr4.maxwrite", "4294967327"),
        ("nfs.mode", "2541"),
        ("nfs.fattr4.numlinks", "35"),
        ("nfs.fattr4_owner", "1000"),
        ("nfs.fattr4_owner_group", "group@domain"),
        ("nfs.fattr4.space_avail", "4294967338"),
        ("nfs.fattr4.space_free", "4294967339"),
        ("nfs.fattr4.space_total", "4294967340"),
        ("nfs.fattr4.space_used", "4294967341"),
        ("nfs.nfstime4.seconds", "47,52,53"),
        ("nfs.nfstime4.nseconds", "47,52,53"),
        ("nfs.fattr4.mounted_on_fileid", "0x0000000100000037"),
        ("nfs.fattr4.clone_block_size", "77"),
        ("nfs.fattr4.space_freed", "4294967374"),
        ("nfs.fattr4_xattr_support", "1"),
    ];
    let call = Operation::GetAttributes(GetAttributesArgs { asked: mask });
    let reply = OperationResult::GetAttributes(Ok(raw));
    in_session(call, reply, Status::Ok, (asked, told))
}

fn read_plus() -> Sample {
    let call = Operation::ReadPlus(ReadArgs {
        state: OPEN,
        offset: 0x1_0000_0009,
        count: 70_000,
    });
    let reply = OperationResult::ReadPlus(Ok(ReadPlusOk {
        eof: true,
        contents: List(vec![
            Content::Data(0x1_0000_0009, Data(b"seven b")),
            Content::Hole(0x1_0000_0010, 0x1_0000_0011),
        ]),
    }));
    let asked: Fields<'_> = &[
        ("nfs.opcode", "53,68"),
        ("nfs.stateid.other", OPEN_HEX),
        ("nfs.offset4", "4294967305"),
        ("nfs.count4", "70000"),
    ];
    let told: Fields<'_> = &[
        ("nfs.eof", "1"),
        ("nfs.content.type", "0,1"),
        ("nfs.offset4", "4294967305,4294967312"),
        ("nfs.read.data_length", "7"),
        ("nfs.data", "736576656e2062"),
        ("nfs.length4", "4294967313"),
    ];
    in_session(call, reply, Status::Ok, (asked, told))
}

fn copy() -> Sample {
    let call = Operation::Copy(CopyArgs {
        source: OPEN,
        destination: LOCK,
        source_offset: 0x1_0000_0012,
        destination_offset: 0x1_0000_0013,
        count: 0x1_0000_0014,
        consecutive: true,
        synchronous: false,
        source_servers: List(vec![]),
    });
    let reply = OperationResult::Copy(Ok(CopyOk {
        response: WriteResponse {
            callback: AtMostOne(Some(LOCK)),
            count: 0x1_0000_0015,
            committed: Stable::DataSync,
            verifier: [0xe1, 2, 3, 4, 5, 6, 7, 0xef],
        },
        requirements: CopyRequirements {
            consecutive: true,
            synchronous: false,
        },
    }));
    let asked: Fields<'_> = &[
        ("nfs.stateid.other", &format!("{OPEN_HEX},{LOCK_HEX}")),
        ("nfs.offset4", "4294967314,4294967315"),
        ("nfs.length4", "4294967316"),
        ("nfs.consecutive", "1"),
        ("nfs.synchronous", "0"),
        ("nfs.source_servers", "0"),
    ];
    let told: Fields<'_> = &[
        ("nfs.callback_ids", "1"),
        ("nfs.stateid.other", LOCK_HEX),
        ("nfs.length4", "4294967317"),
        ("nfs.stable_how4", "1"),
        ("nfs.verifier4", "0xe1020304050607ef"),
        ("nfs.consecutive", "1"),
        ("nfs.synchronous", "0"),
    ];
    in_session(call, reply, Status::Ok, (asked, told))
}

fn set_xattr() -> Sample {
    let call = Operation::SetXattr(SetXattrArgs {
        option: SetXattrOption::Replace,
        name: Name(b"colour"),
        value: XattrValue(b"blue"),
    });
    let reply = OperationResult::SetXattr(Ok(ChangeInfo {
        atomic: true,
        before: 0x1_0000_0016,
        after: 0x1_0000_0017,
    }));
    let asked: Fields<'_> = &[
        ("nfs.setxattr.options", "2"),
        ("nfs.xattr.key", "colour"),
        ("nfs.data", "626c7565"),
    ];
    let told: Fields<'_> = &[
        ("nfs.change_info.atomic", "1"),
        ("nfs.changeid4.before", "4294967318"),
        ("nfs.changeid4.after", "4294967319"),
    ];
    in_session(call, reply, Status::Ok, (asked, told))
}

#[test]
fn tshark_prints_what_was_encoded() {
    let samples = [
        sequence_alone(),
        create_session(),
        open(),
        lock(),
        get_attributes(),
        read_plus(),
        copy(),
        set_xattr(),
    ];
    let mut messages = Messages::new();
    for sample in &samples {
        messages.exchange(PROGRAM, VERSION, 1, &sample.call, &sample.reply);
    }
    let told = samples
        .iter()
        .flat_map(|sample| [&sample.asked, &sample.told]);
    let names = |fields: &BTreeMap<String, String>| fields.keys().cloned().collect::<Vec<_>>();
    let mut fields: Vec<String> = told.clone().flat_map(names).collect();
    fields.sort();
    fields.dedup();
    let asked: Vec<&str> = fields.iter().map(String::as_str).collect();
    let Some(rows) = messages.capture.fields("nfs", &asked) else {
        return;
    };
    assert_eq!(rows.len(), 2 * samples.len());
    let mut others = String::new();
    for (number, (expected, row)) in told.zip(&rows).enumerate() {
        for (name, value) in expected {
            let printed = &row[fields.binary_search(name).expect("asked for")];
            if printed != value {
                others += &format!("packet {number}: {name} is {value}, printed {printed}\n");
            }
        }
    }
    assert_eq!(others, "");
}
