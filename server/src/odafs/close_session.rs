//! CLOSE_SESSION: the client ends its session.

use odafs_common::session::Control;
use odafs_common::wire::odafs::{CloseSessionArgs, CloseSessionResult, OdafsStatus};

use super::Odafs;

pub(super) fn close_session(odafs: &Odafs, arguments: CloseSessionArgs) -> CloseSessionResult {
    let CloseSessionArgs { session, tag } = arguments;
    let export = &odafs.export;
    let open = export.sessions().get(session);
    let open = open.ok_or(OdafsStatus::NoSession)?;
    if !open.nic().verify_control(Control::Close { session }, &tag) {
        return Err(OdafsStatus::Denied);
    }
    export.close_session(session);
    odafs.delegations.end_session(session);
    Ok(())
}
