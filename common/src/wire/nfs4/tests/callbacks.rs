use super::*;

const FILE: FileHandle<'_> = FileHandle(b"handle");
const FILE_HEX: &str = "00000006 68616e64 6c650000";

pub fn operations() -> Golden<CallbackOperation<'static>> {
    use CallbackOperation as Call;
    let referring = ReferringCalls {
        session: SESSION,
        calls: List(vec![ReferringCall {
            sequence: 8,
            slot: 1,
        }]),
    };
    let offload = |info| {
        Call::Offload(OffloadArgs {
            file: FILE,
            state: STATE,
            info,
        })
    };
    vec![
        of(
            Call::GetAttributes(CallbackGetAttributesArgs {
                file: FILE,
                asked: Bitmap::of(&[Attribute::Change, Attribute::Size]),
            }),
            &format!("00000003 {FILE_HEX} 00000001 00000018"),
        ),
        of(
            Call::Recall(RecallArgs {
                state: STATE,
                truncate: true,
                file: FILE,
            }),
            &format!("00000004 STATE 00000001 {FILE_HEX}"),
        ),
        of(
            Call::RecallAny(RecallAnyArgs {
                keep: 10,
                types: Bitmap::EMPTY
                    .with(recall_any::READ_DELEGATIONS)
                    .with(recall_any::WRITE_DELEGATIONS),
            }),
            "00000008 0000000a 00000001 00000003",
        ),
        of(
            Call::RecallSlot(RecallSlotArgs {
                target_highest_slot: 7,
            }),
            "0000000a 00000007",
        ),
        of(
            Call::Sequence(CallbackSequenceArgs {
                session: SESSION,
                sequence: 1,
                slot: 2,
                highest_slot: 3,
                cache: false,
                referring: List(vec![referring]),
            }),
            "0000000b SESSION 00000001 00000002 00000003 00000000
             00000001 SESSION 00000001 00000008 00000001",
        ),
        of(
            Call::NotifyLock(NotifyLockArgs {
                file: FILE,
                owner: OWNER,
            }),
            &format!("0000000d {FILE_HEX} OWNER"),
        ),
        of(
            offload(OffloadInfo::Done(WriteResponse {
                callback: AtMostOne(Some(STATE)),
                count: 5,
                committed: Stable::FileSync,
                verifier: VERIFIER,
            })),
            &format!(
                "0000000f {FILE_HEX} STATE 00000000 00000001 STATE 00000000 00000005 00000002 VERIFIER"
            ),
        ),
        of(
            offload(OffloadInfo::Failed(Status::Io, 4)),
            &format!("0000000f {FILE_HEX} STATE 00000005 00000000 00000004"),
        ),
    ]
}

pub fn results() -> Golden<CallbackResult<'static>> {
    use CallbackResult as Done;
    vec![
        of(
            Done::GetAttributes(Ok(ATTRIBUTES)),
            "00000003 00000000 ATTRIBUTES",
        ),
        of(Done::Recall(Ok(())), "00000004 00000000"),
        of(Done::Recall(Err(Status::BadHandle)), "00000004 00002711"),
        of(Done::RecallAny(Ok(())), "00000008 00000000"),
        of(
            Done::RecallSlot(Err(Status::BadHighSlot)),
            "0000000a 0000275d",
        ),
        of(
            Done::Sequence(Ok(CallbackSequenceOk {
                session: SESSION,
                sequence: 1,
                slot: 2,
                highest_slot: 3,
                target_highest_slot: 4,
            })),
            "0000000b 00000000 SESSION 00000001 00000002 00000003 00000004",
        ),
        of(Done::NotifyLock(Ok(())), "0000000d 00000000"),
        of(Done::Offload(Ok(())), "0000000f 00000000"),
        of(Done::Illegal(Err(Status::OpIllegal)), "0000273c 0000273c"),
    ]
}
