//! OPEN_SESSION: a Noise handshake, which covers the parameters as they were sent, and the grant.

use odafs_common::direct;
use odafs_common::mac::MacAlgorithm;
use odafs_common::session::{HandshakeError, Pattern, Responder, Seed};
use odafs_common::wire::odafs::{
    Accepted, Handshake, Mode, OdafsStatus, OpenSessionArgs, OpenSessionResult, Parameters,
};
use odafs_common::wire::xdr::{Decode as _, Encode as _, Writer};
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_fabric::{Peer, clock, entropy};
use odafs_nic::calls::Transport;
use odafs_nic::capability::NewSession;
use odafs_nic::nic::Nic;

use super::{Grantee, Odafs};
use crate::rpc::access::NOBODY;
use crate::rpc::{Answer, Call};
use crate::vfs::export::{Direct, Exports};
use crate::vfs::read::Effort;
use crate::vfs::sessions::SessionOwner;

pub(super) fn open_session(
    odafs: &Odafs,
    call: &Call<'_>,
    arguments: OpenSessionArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    // A handshake takes 0.1 to 0.2 ms, which is too long for a thread that polls for other clients.
    if call.effort == Effort::ResidentOnly {
        return Answer::Blocks;
    }
    let opened = open(odafs, call, arguments);
    let metrics = odafs.export.metrics();
    match &opened {
        Ok(_) => metrics.sessions_opened.increment(),
        Err(status) => {
            metrics.sessions_refused.increment();
            tracing::debug!(peer = %call.caller.peer, %status, "session refused");
        }
    }
    let result: OpenSessionResult<'_> = match &opened {
        Ok(message) => Ok(Handshake(message)),
        Err(status) => Err(*status),
    };
    super::reply(w, &result)
}

fn open(
    odafs: &Odafs,
    call: &Call<'_>,
    arguments: OpenSessionArgs<'_>,
) -> Result<Vec<u8>, OdafsStatus> {
    let (export, policy) = (&odafs.export, &odafs.policy);
    let nic = export.nic().ok_or(OdafsStatus::Unsupported)?;
    let parameters =
        Parameters::from_bytes(arguments.parameters).map_err(|_| OdafsStatus::BadHandshake)?;
    check(export, call, &parameters)?;
    // With any other pattern a client could evade the list.
    let local = matches!(call.caller.peer, Peer::Uid { .. });
    if !local && !policy.admitted.is_empty() && parameters.pattern != Pattern::Kk {
        return Err(OdafsStatus::Denied);
    }
    let mac = MacAlgorithm::choose(parameters.macs, policy.macs).ok_or(OdafsStatus::Unsupported)?;
    let one_sided = parameters.mode == Mode::OneSided && trusted(odafs, call);

    let place = reserve(export, nic, call)?;
    let responder = Responder::read(
        arguments.parameters,
        parameters.pattern,
        Seed::filled(|seed| entropy::fill(seed)),
        policy.identity.as_ref(),
        &|key| policy.admitted.contains(key),
        arguments.handshake,
    )
    .map_err(status)?;
    let number = nic.number_session().map_err(|_| OdafsStatus::TooMany)?;
    let accepted = Accepted {
        session: number.id().0,
        features: 0,
        mac,
        mode: if one_sided {
            Mode::OneSided
        } else {
            Mode::Guarded
        },
        page_bytes: export.page().bytes() as u32,
        life: policy.life,
        rekey_requests: policy.rekey_requests,
        rekey_seconds: (policy.rekey_after.0 / 1_000_000_000) as u32,
        max_read: export.page().bytes() as u32,
    };
    let (key, message) = responder.reply(&accepted.to_bytes()).map_err(status)?;
    let now = clock::now();
    let session = NewSession {
        key,
        mac,
        one_sided,
        credential: u64::from(call.who.uid),
        expires: now + policy.lifetime,
        rekey_requests: policy.rekey_requests,
        rekey_after: policy.rekey_after,
        rekey_grace: policy.rekey_after,
        now,
    };
    let session = nic
        .open_numbered(number, session)
        .map_err(|_| OdafsStatus::TooMany)?;
    let id = session.id().0;
    let opened_by = (&call.caller.peer, call.caller.connection);
    export
        .sessions()
        .add(place, session, call.rights.identity(&call.who), opened_by);
    // Nobody else would end it: the program may have heard of the end of the connection before there was a session.
    if call.caller.notes.is_closed() {
        export.close_session(id);
    }
    Ok(message)
}

/// Whether the client asks for this version, an export that it may reach, and the fabric over which the call came. (A
/// credential that one fabric vouches for is worth nothing on another.)
fn check(
    export: &Exports,
    call: &Call<'_>,
    parameters: &Parameters<'_>,
) -> Result<(), OdafsStatus> {
    let transport = call.caller.transport;
    let mut names = export.config().names();
    let supported = parameters.version == u32::from(direct::VERSION)
        && names.any(|name| parameters.export == name.as_bytes())
        && transport != Transport::NfsTcp
        && parameters.fabric == transport.name().as_bytes();
    if !supported {
        return Err(OdafsStatus::Unsupported);
    }
    let tags = export.store().tags();
    let asked = tags
        .iter()
        .find(|(name, _)| parameters.export == name.as_bytes());
    match asked {
        Some((_, tag)) => call.rights.check(*tag).map_err(|_| OdafsStatus::Denied),
        None => Ok(()),
    }
}

/// Whether this session may read the whole cache by itself. On one host root and the serving user may, who can read the
/// server's memory anyhow, and users whom the options name. On other hosts nobody may, or with [`Direct::OneSided`] those
/// who may reach every export. The kernel shows the number of nobody for every user for whom a namespace has no number, so
/// a server that runs as nobody cannot recognize its own user.
fn trusted(odafs: &Odafs, call: &Call<'_>) -> bool {
    let (direct, policy) = (odafs.export.config().direct, &odafs.policy);
    match &call.caller.peer {
        Peer::Uid {
            uid, gid, groups, ..
        } => {
            let named = |grantee: &Grantee| match grantee {
                Grantee::User(user) => user == uid,
                Grantee::Group(group) => group == gid || groups.contains(group),
                Grantee::All => true,
            };
            matches!(direct, Direct::Auto | Direct::OneSided)
                && (*uid == 0
                    || (*uid == policy.serving_uid && *uid != NOBODY)
                    || policy.one_sided_for.iter().any(named))
        }
        Peer::Address(_) | Peer::Simulated(_) => {
            direct == Direct::OneSided && call.rights.reach_all()
        }
    }
}

/// Reserves a session for the caller.
fn reserve<'a>(
    export: &'a Exports,
    nic: &Arc<Nic>,
    call: &Call<'_>,
) -> Result<crate::vfs::sessions::SessionPermit<'a>, OdafsStatus> {
    let owner = SessionOwner::from(&call.caller.peer);
    // No user of this host, and no other host, may take all of them.
    let max = export.config().nic.sessions_max / 2;
    if let Some(place) = export.sessions().reserve(owner, max) {
        return Ok(place);
    }
    make_room(export, owner, clock::now());
    let place = export.sessions().reserve(owner, max);
    place.ok_or_else(|| {
        tracing::debug!(?owner, sessions = nic.session_count(), "too many sessions");
        OdafsStatus::TooMany
    })
}

/// Ends sessions that are over, and those of the owner that no connection has used for direct reads in their first minute.
pub(super) fn make_room(export: &Exports, owner: SessionOwner, now: Nanos) {
    for id in export.sessions().matching(|session| {
        let nic = session.nic();
        !nic.is_open(now) || session.owner() == owner && !nic.is_used(now)
    }) {
        export.close_session(id);
    }
}

fn status(error: HandshakeError) -> OdafsStatus {
    match error {
        HandshakeError::NotAdmitted => OdafsStatus::Denied,
        HandshakeError::IdentityMissing => OdafsStatus::Unsupported,
        HandshakeError::ServerKeyMissing | HandshakeError::BadMessage => OdafsStatus::BadHandshake,
    }
}
