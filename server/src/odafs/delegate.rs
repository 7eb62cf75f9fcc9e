//! DELEGATE: a client gives delegations back, and asks for one.

use odafs_common::wire::odafs::{DelegateArgs, DelegateResult, Delegated, OdafsStatus};
use odafs_common::wire::xdr::Writer;
use odafs_fabric::clock;

use super::Odafs;
use super::delegations::{LEASE, Refused};
use crate::rpc::{Answer, Call};
use crate::vfs::read::{Effort, check_right};

pub(super) fn delegate(
    odafs: &Odafs,
    call: &Call<'_>,
    arguments: &DelegateArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    if call.effort == Effort::ResidentOnly {
        return Answer::Blocks;
    }
    let result: DelegateResult = match super::session(&odafs.export, call, arguments.session) {
        Some(_) => {
            let delegations = &odafs.delegations;
            delegations.give_back(arguments.session, &arguments.returned);
            let file = arguments.file.as_ref();
            file.map(|file| grant(odafs, call, arguments.session, file.0))
                .transpose()
        }
        None => Err(OdafsStatus::NoSession),
    };
    super::reply(w, &result)
}

fn grant(
    odafs: &Odafs,
    call: &Call<'_>,
    session: u32,
    handle: &[u8],
) -> Result<Delegated, OdafsStatus> {
    let export = &odafs.export;
    let who = call
        .rights
        .credential(export.tag_of_handle(handle), &call.who);
    let who = who.map_err(|_| OdafsStatus::Denied)?;
    let file = export.file_of_handle(handle, Effort::MayBlock);
    let file = file.map_err(|_| OdafsStatus::Denied)?;
    // Somebody may have changed it unseen.
    if export.promises().is_hidden(file.object()) {
        return Err(OdafsStatus::TryLater);
    }
    let number = odafs.delegations.grant(clock::now(), session, &file);
    let number = number.map_err(|refused| match refused {
        Refused::Contention => OdafsStatus::TryLater,
        Refused::Full => OdafsStatus::TooMany,
        Refused::Never => OdafsStatus::Unsupported,
    })?;
    // What is so now stays so. The gate is closed by those who ask for delegations: it is entered without a lock.
    let gate = file.enter_blocking();
    let facts = file.facts();
    let may = !gate.gone && check_right(export, &who, &file, &facts, Effort::MayBlock).is_ok();
    let change = file.change();
    drop(gate);
    if !may {
        odafs.delegations.give_back(session, &[number]);
        return Err(OdafsStatus::Denied);
    }
    Ok(Delegated {
        number,
        lease_ms: LEASE.duration().as_millis() as u32,
        change,
        attributes: facts.attributes.into(),
    })
}
