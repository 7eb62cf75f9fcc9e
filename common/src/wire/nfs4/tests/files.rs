use super::*;

pub fn operations() -> Golden<Operation<'static>> {
    let name = Name(b"name.c");
    let device = Device { major: 8, minor: 1 };
    let create = |kind| {
        Operation::Create(CreateArgs {
            kind,
            name,
            attributes: ATTRIBUTES,
        })
    };
    vec![
        of(
            Operation::Access(AccessArgs { access: 0x3f }),
            "00000003 0000003f",
        ),
        of(
            Operation::Commit(CommitArgs {
                offset: 0x1_0000_0000,
                count: 4096,
            }),
            "00000005 00000001 00000000 00001000",
        ),
        of(
            create(CreateType::Symlink(Payload(b"a/b/c"))),
            "00000006 00000005 00000005 612f622f 63000000 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            create(CreateType::Block(device)),
            "00000006 00000003 00000008 00000001 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            create(CreateType::Character(device)),
            "00000006 00000004 00000008 00000001 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            create(CreateType::Socket),
            "00000006 00000006 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            create(CreateType::Fifo),
            "00000006 00000007 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            create(CreateType::Directory),
            "00000006 00000002 00000006 6e616d65 2e630000 ATTRIBUTES",
        ),
        of(
            Operation::GetAttributes(GetAttributesArgs {
                asked: Bitmap::of(&[Attribute::Type, Attribute::FileId, Attribute::ModeUmask]),
            }),
            "00000009 00000003 00100002 00000000 00020000",
        ),
        of(Operation::GetFileHandle, "0000000a"),
        of(Operation::Link(name), "0000000b 00000006 6e616d65 2e630000"),
        of(
            Operation::Lookup(name),
            "0000000f 00000006 6e616d65 2e630000",
        ),
        of(Operation::LookupParent, "00000010"),
        of(Operation::VerifyNot(ATTRIBUTES), "00000011 ATTRIBUTES"),
        of(
            Operation::OpenAttributeDirectory(OpenAttributeDirectoryArgs { create: true }),
            "00000013 00000001",
        ),
        of(
            Operation::PutFileHandle(FileHandle(b"handle")),
            "00000016 00000006 68616e64 6c650000",
        ),
        of(Operation::PutPublicFileHandle, "00000017"),
        of(Operation::PutRootFileHandle, "00000018"),
        of(
            Operation::Read(ReadArgs {
                state: STATE,
                offset: 0x1_0000_0000,
                count: 65536,
            }),
            "00000019 STATE 00000001 00000000 00010000",
        ),
        of(
            Operation::ReadDir(ReadDirArgs {
                cookie: 5,
                verifier: VERIFIER,
                directory_count: 512,
                max_count: 4096,
                asked: Bitmap::of(&[Attribute::FileId]),
            }),
            "0000001a 00000000 00000005 VERIFIER 00000200 00001000 00000001 00100000",
        ),
        of(Operation::ReadLink, "0000001b"),
        of(
            Operation::Remove(name),
            "0000001c 00000006 6e616d65 2e630000",
        ),
        of(
            Operation::Rename(RenameArgs {
                from: name,
                to: Name(b"to"),
            }),
            "0000001d 00000006 6e616d65 2e630000 00000002 746f0000",
        ),
        of(Operation::RestoreFileHandle, "0000001f"),
        of(Operation::SaveFileHandle, "00000020"),
        of(
            Operation::SecInfo(name),
            "00000021 00000006 6e616d65 2e630000",
        ),
        of(
            Operation::SetAttributes(SetAttributesArgs {
                state: STATE,
                attributes: ATTRIBUTES,
            }),
            "00000022 STATE ATTRIBUTES",
        ),
        of(Operation::Verify(ATTRIBUTES), "00000025 ATTRIBUTES"),
        of(
            Operation::Write(WriteArgs {
                state: STATE,
                offset: 0x1_0000_0000,
                stable: Stable::FileSync,
                data: Payload(b"hello"),
            }),
            "00000026 STATE 00000001 00000000 00000002 00000005 68656c6c 6f000000",
        ),
        of(
            Operation::SecInfoNoName(SecInfoStyle::Parent),
            "00000034 00000001",
        ),
    ]
}

pub fn results() -> Golden<OperationResult<'static>> {
    use OperationResult as Done;
    let flavors = || {
        List(vec![
            SecInfo::Gss(GssInfo {
                oid: Opaque(&[0x2a, 0x86, 0x48]),
                quality: 0,
                service: GssService::Integrity,
            }),
            SecInfo::Flavor(1),
        ])
    };
    let entry = |cookie, name| Entry {
        cookie,
        name: Name(name),
        attributes: ATTRIBUTES,
    };
    vec![
        of(
            Done::Access(Ok(AccessOk {
                supported: 0x1f,
                access: 0x11,
            })),
            "00000003 00000000 0000001f 00000011",
        ),
        of(Done::Access(Err(Status::Stale)), "00000003 00000046"),
        of(
            Done::Commit(Ok(CommitOk { verifier: VERIFIER })),
            "00000005 00000000 VERIFIER",
        ),
        of(
            Done::Create(Ok(CreateOk {
                directory: CHANGE,
                set: Bitmap::of(&[Attribute::Mode]),
            })),
            "00000006 00000000 CHANGE 00000002 00000000 00000002",
        ),
        of(
            Done::GetAttributes(Ok(ATTRIBUTES)),
            "00000009 00000000 ATTRIBUTES",
        ),
        of(
            Done::GetFileHandle(Ok(FileHandle(b"handle"))),
            "0000000a 00000000 00000006 68616e64 6c650000",
        ),
        of(Done::Link(Ok(CHANGE)), "0000000b 00000000 CHANGE"),
        of(Done::Lookup(Ok(())), "0000000f 00000000"),
        of(Done::Lookup(Err(Status::NoEnt)), "0000000f 00000002"),
        of(Done::LookupParent(Ok(())), "00000010 00000000"),
        of(Done::VerifyNot(Err(Status::Same)), "00000011 00002719"),
        of(
            Done::OpenAttributeDirectory(Err(Status::NotSupp)),
            "00000013 00002714",
        ),
        of(
            Done::PutFileHandle(Err(Status::BadHandle)),
            "00000016 00002711",
        ),
        of(Done::PutPublicFileHandle(Ok(())), "00000017 00000000"),
        of(Done::PutRootFileHandle(Ok(())), "00000018 00000000"),
        of(
            Done::Read(Ok(ReadOk {
                eof: true,
                data: Payload(b"hello"),
            })),
            "00000019 00000000 00000001 00000005 68656c6c 6f000000",
        ),
        of(
            Done::ReadDir(Ok(ReadDirOk {
                verifier: VERIFIER,
                entries: vec![entry(3, b"a"), entry(4, b"b")],
                eof: true,
            })),
            "0000001a 00000000 VERIFIER
             00000001 00000000 00000003 00000001 61000000 ATTRIBUTES
             00000001 00000000 00000004 00000001 62000000 ATTRIBUTES
             00000000 00000001",
        ),
        of(
            Done::ReadLink(Ok(ReadLinkOk {
                target: Payload(b"a/b/c"),
            })),
            "0000001b 00000000 00000005 612f622f 63000000",
        ),
        of(Done::Remove(Ok(CHANGE)), "0000001c 00000000 CHANGE"),
        of(
            Done::Rename(Ok(RenameOk {
                from: CHANGE,
                to: CHANGE,
            })),
            "0000001d 00000000 CHANGE CHANGE",
        ),
        of(
            Done::RestoreFileHandle(Err(Status::RestoreFh)),
            "0000001f 0000272e",
        ),
        of(Done::SaveFileHandle(Ok(())), "00000020 00000000"),
        of(
            Done::SecInfo(Ok(flavors())),
            "00000021 00000000 00000002 00000006 00000003 2a864800 00000000 00000002 00000001",
        ),
        of(
            Done::SetAttributes(SetAttributesResult {
                status: Status::Perm,
                set: Bitmap::of(&[Attribute::Size]),
            }),
            "00000022 00000001 00000001 00000010",
        ),
        of(Done::Verify(Ok(())), "00000025 00000000"),
        of(
            Done::Write(Ok(WriteOk {
                count: 5,
                committed: Stable::FileSync,
                verifier: VERIFIER,
            })),
            "00000026 00000000 00000005 00000002 VERIFIER",
        ),
        of(
            Done::SecInfoNoName(Ok(flavors())),
            "00000034 00000000 00000002 00000006 00000003 2a864800 00000000 00000002 00000001",
        ),
        of(Done::Illegal(Status::OpIllegal), "0000273c 0000273c"),
        of(Done::LayoutGet(Status::NotSupp), "00000032 00002714"),
        of(Done::GetDeviceInfo(Status::NotSupp), "0000002f 00002714"),
        of(Done::GetDeviceList(Status::NotSupp), "00000030 00002714"),
        of(Done::LayoutCommit(Status::NotSupp), "00000031 00002714"),
        of(Done::LayoutReturn(Status::NotSupp), "00000033 00002714"),
        of(Done::SetSsv(Status::NotSupp), "00000036 00002714"),
        of(Done::LayoutError(Status::NotSupp), "00000040 00002714"),
        of(Done::LayoutStats(Status::NotSupp), "00000041 00002714"),
    ]
}

#[test]
fn create_of_other_types_has_no_body() {
    let other = CreateType::Other(FileType::NamedAttribute);
    golden(other, "00000009");
    golden(CreateType::Other(FileType::Regular), "00000001");
}
