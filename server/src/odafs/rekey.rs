//! REKEY: the session moves to the next generation of its request key.

use odafs_common::session::Control;
use odafs_common::wire::odafs::{OdafsStatus, RekeyArgs, RekeyResult, Rekeyed};
use odafs_fabric::clock;
use odafs_nic::capability::RekeyRefused;

use crate::vfs::export::Exports;

pub(super) fn rekey(export: &Exports, arguments: RekeyArgs) -> RekeyResult {
    let RekeyArgs {
        session,
        generation,
        tag,
    } = arguments;
    let open = export.sessions().get(session);
    let open = open.ok_or(OdafsStatus::NoSession)?;
    let asked = Control::Rekey {
        session,
        generation,
    };
    if !open.nic().verify_control(asked, &tag) {
        return Err(OdafsStatus::Denied);
    }
    match open.nic().rekey(generation, clock::now()) {
        Ok(()) => {}
        // This is a repetition, because the first answer may have been lost.
        Err(RekeyRefused::Generation { current }) if current == generation => {}
        Err(RekeyRefused::Generation { .. }) => return Err(OdafsStatus::Denied),
        Err(RekeyRefused::NoSession) => return Err(OdafsStatus::NoSession),
    }
    let done = Control::Rekeyed {
        session,
        generation,
    };
    Ok(Rekeyed {
        generation,
        tag: open.nic().control_tag(done),
    })
}
