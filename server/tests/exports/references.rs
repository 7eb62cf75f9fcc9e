//! Sessions and references of callers whose rights differ by export.

use odafs_common::wire::nfs3::Status;
use odafs_common::wire::nfs4::{self};
use odafs_common::wire::odafs::OdafsStatus;

use crate::harness::{OPEN, Server, closed_rule, open_rule};

#[test]
fn references_are_for_those_who_may_read_where_they_act() {
    let server = Server::new();
    let closed = server.handle(&["deep", "closed", "private"]);
    let open = server.handle(&["open", "private"]);
    let (owner, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    assert_eq!(outside.session("/deep/closed"), Err(OdafsStatus::Denied));
    let foreign = outside.session("/").unwrap();
    let session = owner.session("/deep/closed").unwrap();
    // The first READ fills the cache.
    owner.read(&closed, session).unwrap();
    assert_eq!(owner.read(&closed, session), Ok(1));
    assert_eq!(owner.refs(&closed, session), Ok((Status::Ok, 1)));
    assert_eq!(owner.refs(&open, session), Ok((Status::Access, 0)));
    assert_eq!(outside.refs(&closed, foreign), Ok((Status::Stale, 0)));
    assert_eq!(outside.read(&closed, foreign), Err(Status::Stale));
    // Another user of the same host is squashed to the same one in `/open`, and yet another here.
    let other = server.client("10.1.0.1:700", 6);
    assert_eq!(other.refs(&closed, session), Err(OdafsStatus::NoSession));
}

#[test]
fn a_client_that_is_no_longer_admitted_loses_access_and_references() {
    let server = Server::new();
    let file = server.handle(&["deep", "closed", "public"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let session = inside.session("/").unwrap();
    let stays = outside.session("/").unwrap();
    assert_eq!(
        (inside.reads(&file), inside.reads_4(&file)),
        (Ok(4096), Ok(4096))
    );
    inside.read(&file, session).unwrap();
    assert_eq!(inside.refs(&file, session), Ok((Status::Ok, 1)));
    server.close();
    assert_eq!(inside.reads(&file), Err(Status::Stale));
    assert_eq!(inside.reads_4(&file), Err(nfs4::Status::Stale));
    assert_eq!(inside.refs(&file, session), Err(OdafsStatus::NoSession));
    assert_eq!(inside.names_4(), ["open"]);
    // Whom it does not concern keeps its session.
    let open = server.handle(&["open", "public"]);
    assert_eq!(
        outside.refs(&open, stays).map(|(status, _)| status),
        Ok(Status::Ok)
    );
}

#[test]
fn an_export_without_direct_reads_gives_no_references() {
    let server = Server::with(open_rule(), closed_rule(), vec![OPEN]);
    let client = server.client("10.1.0.1:700", 5);
    let session = client.session("/open").unwrap();
    for (path, references) in [
        (&["open", "public"][..], 0),
        (&["deep", "closed", "public"], 1),
    ] {
        let file = server.handle(path);
        client.read(&file, session).unwrap();
        assert_eq!(client.read(&file, session), Ok(references), "{path:?}");
        let refs = client.refs(&file, session).map(|(_, count)| count);
        assert_eq!(refs, Ok(references), "{path:?}");
    }
}
