//! A connection that carries no more calls to its client, but the client's calls.

use super::callbacks::{hearing, listening};
use super::delegations::{READ, open_op, opens, recall};
use super::*;

const DOWN: u32 = sequence_status::CALLBACK_PATH_DOWN | sequence_status::CALLBACK_PATH_DOWN_SESSION;

/// What SEQUENCE says of the state of the client.
fn flags(client: &Client<'_>) -> u32 {
    let reply = client.does(&[]);
    let taken = last!(reply, Sequence);
    taken.status_flags
}

/// What a client gets that binds its connection.
fn binds(client: &Client<'_>, channel: WantedChannel) -> Result<GrantedChannel, Status> {
    let bind = client.bind(channel);
    let reply = client.call(1, &[bind]);
    let OperationResult::BindConnection(bound) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    bound.map(|bound| bound.channel)
}

#[test]
fn a_client_whose_way_back_was_closed_is_told_and_binds_another() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (mut holder, mailbox) = hearing(&room, b"holder", 1);
    let other = Client::new(&room, b"other", 2);
    opens(&holder, b"file", READ);
    let open = open_op(&other, share_access::WRITE, Claim::Null(Name(b"file")));
    let asks = || other.does(&[Operation::PutRootFileHandle, open.clone()]);
    assert_eq!(asks().status(), Status::Delay);
    recall(&holder, &mailbox);
    assert_eq!(flags(&holder), 0);
    mailbox.close();
    room.nfs.back_closed(1);
    assert_eq!(flags(&holder), DOWN);
    // The connection is good for calls alone.
    use WantedChannel as W;
    assert_eq!(binds(&holder, W::ForeOrBoth), Ok(GrantedChannel::Fore));
    assert_eq!(binds(&holder, W::BackOrBoth), Err(Status::Inval));
    assert_eq!(binds(&holder, W::Back), Err(Status::Inval));
    assert_eq!(flags(&holder), DOWN);
    // What was not answered is said over the next connection.
    let (caller, mailbox) = listening(3);
    holder.caller = caller;
    assert_eq!(binds(&holder, W::ForeOrBoth), Ok(GrantedChannel::Both));
    recall(&holder, &mailbox);
    assert_eq!(flags(&holder), 0);
}
