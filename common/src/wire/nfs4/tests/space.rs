use super::*;

const RANGE: RangeArgs = RangeArgs {
    state: STATE,
    offset: 16,
    length: 0x1_0000_0000,
};

fn response(callback: Option<StateId>) -> WriteResponse {
    WriteResponse {
        callback: AtMostOne(callback),
        count: 5,
        committed: Stable::DataSync,
        verifier: VERIFIER,
    }
}

pub fn operations() -> Golden<Operation<'static>> {
    let address = NetLocation::Address(NetAddress {
        network: Opaque(b"tcp6"),
        address: Opaque(b"::1."),
    });
    let name = Name(b"key");
    vec![
        of(
            Operation::Allocate(RANGE),
            "0000003b STATE 00000000 00000010 00000001 00000000",
        ),
        of(
            Operation::Copy(CopyArgs {
                source: STATE,
                destination: StateId::CURRENT,
                source_offset: 1,
                destination_offset: 2,
                count: 3,
                consecutive: true,
                synchronous: false,
                source_servers: List(vec![
                    NetLocation::Name(Opaque(b"host")),
                    NetLocation::Url(Opaque(b"nfs:")),
                    address,
                ]),
            }),
            "0000003c STATE 00000001 00000000 00000000 00000000 00000000 00000001 00000000 00000002
             00000000 00000003 00000001 00000000 00000003 00000001 00000004 686f7374
             00000002 00000004 6e66733a 00000003 00000004 74637036 00000004 3a3a312e",
        ),
        of(
            Operation::CopyNotify(CopyNotifyArgs {
                source: STATE,
                destination: address,
            }),
            "0000003d STATE 00000003 00000004 74637036 00000004 3a3a312e",
        ),
        of(
            Operation::Deallocate(RANGE),
            "0000003e STATE 00000000 00000010 00000001 00000000",
        ),
        of(
            Operation::IoAdvise(IoAdviseArgs {
                state: STATE,
                offset: 16,
                count: 0,
                hints: Bitmap::EMPTY.with(io_advice::WILL_NEED),
            }),
            "0000003f STATE 00000000 00000010 00000000 00000000 00000001 00000010",
        ),
        of(Operation::OffloadCancel(STATE), "00000042 STATE"),
        of(Operation::OffloadStatus(STATE), "00000043 STATE"),
        of(
            Operation::ReadPlus(ReadPlusArgs {
                state: STATE,
                offset: 16,
                count: 4096,
            }),
            "00000044 STATE 00000000 00000010 00001000",
        ),
        of(
            Operation::Seek(SeekArgs {
                state: STATE,
                offset: 16,
                what: ContentType::Hole,
            }),
            "00000045 STATE 00000000 00000010 00000001",
        ),
        of(
            Operation::WriteSame(WriteSameArgs {
                state: STATE,
                stable: Stable::Unstable,
                block: DataBlock {
                    offset: 1,
                    block_size: 2,
                    block_count: 3,
                    number_offset: 4,
                    number: 5,
                    pattern_offset: 6,
                    pattern: Data(b"ab"),
                },
            }),
            "00000046 STATE 00000000 00000000 00000001 00000000 00000002 00000000 00000003
             00000000 00000004 00000005 00000000 00000006 00000002 61620000",
        ),
        of(
            Operation::Clone(CloneArgs {
                source: STATE,
                destination: STATE,
                source_offset: 1,
                destination_offset: 2,
                count: 3,
            }),
            "00000047 STATE STATE 00000000 00000001 00000000 00000002 00000000 00000003",
        ),
        of(Operation::GetXattr(name), "00000048 00000003 6b657900"),
        of(
            Operation::SetXattr(SetXattrArgs {
                option: SetXattrOption::Replace,
                name,
                value: XattrValue(b"value"),
            }),
            "00000049 00000002 00000003 6b657900 00000005 76616c75 65000000",
        ),
        of(
            Operation::ListXattrs(ListXattrsArgs {
                cookie: 1,
                max_count: 4096,
            }),
            "0000004a 00000000 00000001 00001000",
        ),
        of(Operation::RemoveXattr(name), "0000004b 00000003 6b657900"),
    ]
}

pub fn results() -> Golden<OperationResult<'static>> {
    use OperationResult as Done;
    let requirements = CopyRequirements {
        consecutive: true,
        synchronous: false,
    };
    vec![
        of(Done::Allocate(Err(Status::NoSpc)), "0000003b 0000001c"),
        of(
            Done::Copy(Ok(CopyOk {
                response: response(Some(STATE)),
                requirements,
            })),
            "0000003c 00000000 00000001 STATE 00000000 00000005 00000001 VERIFIER 00000001 00000000",
        ),
        of(
            Done::Copy(Err(CopyFailed::Requirements(requirements))),
            "0000003c 0000276e 00000001 00000000",
        ),
        of(
            Done::Copy(Err(CopyFailed::Other(Status::Inval))),
            "0000003c 00000016",
        ),
        of(
            Done::CopyNotify(Ok(CopyNotifyOk {
                lease: Time {
                    seconds: 90,
                    nanoseconds: 1,
                },
                state: STATE,
                source_servers: List(vec![NetLocation::Name(Opaque(b"host"))]),
            })),
            "0000003d 00000000 00000000 0000005a 00000001 STATE 00000001 00000001 00000004 686f7374",
        ),
        of(Done::Deallocate(Ok(())), "0000003e 00000000"),
        of(
            Done::IoAdvise(Ok(Bitmap::EMPTY.with(4))),
            "0000003f 00000000 00000001 00000010",
        ),
        of(Done::OffloadCancel(Ok(())), "00000042 00000000"),
        of(
            Done::OffloadStatus(Ok(OffloadStatusOk {
                count: 5,
                complete: AtMostOne(Some(Status::NoSpc)),
            })),
            "00000043 00000000 00000000 00000005 00000001 0000001c",
        ),
        of(
            Done::ReadPlus(Ok(ReadPlusOk {
                eof: true,
                contents: List(vec![
                    Content::Hole(0, 4096),
                    Content::Data(4096, Data(b"hello")),
                ]),
            })),
            "00000044 00000000 00000001 00000002
             00000001 00000000 00000000 00000000 00001000
             00000000 00000000 00001000 00000005 68656c6c 6f000000",
        ),
        of(
            Done::Seek(Ok(SeekOk {
                eof: false,
                offset: 4096,
            })),
            "00000045 00000000 00000000 00000000 00001000",
        ),
        of(
            Done::WriteSame(Ok(response(None))),
            "00000046 00000000 00000000 00000000 00000005 00000001 VERIFIER",
        ),
        of(Done::Clone(Err(Status::XDev)), "00000047 00000012"),
        of(
            Done::GetXattr(Ok(XattrValue(b"value"))),
            "00000048 00000000 00000005 76616c75 65000000",
        ),
        of(Done::GetXattr(Err(Status::NoXattr)), "00000048 0000276f"),
        of(Done::SetXattr(Ok(CHANGE)), "00000049 00000000 CHANGE"),
        of(
            Done::ListXattrs(Ok(ListXattrsOk {
                cookie: 2,
                names: List(vec![Name(b"a"), Name(b"bc")]),
                eof: true,
            })),
            "0000004a 00000000 00000000 00000002 00000002 00000001 61000000 00000002 62630000 00000001",
        ),
        of(Done::RemoveXattr(Ok(CHANGE)), "0000004b 00000000 CHANGE"),
    ]
}
