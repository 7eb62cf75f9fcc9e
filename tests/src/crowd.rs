//! Many clients of NFS version 4 over one connection. Each says the same, and none waits for the others.

use std::collections::HashMap;

use odafs_common::wire::nfs4::*;

use crate::compounds::{
    Client, compound, create_session, exchange_id, next, set_client_id, status,
};
use crate::raw::RawRpc;
use crate::raw4::{COMPOUND, results};

/// Calls under way at once.
const AT_ONCE: usize = 64;

/// Clients of minor version 0, or of 1 with a session each.
#[derive(Debug)]
pub struct Crowd {
    rpc: RawRpc,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    number: u32,
    client: Client,
    file: Vec<u8>,
    state: StateId,
    confirm: Option<ClientIdConfirm>,
    /// The number that CREATE_SESSION has.
    sequence: u32,
}

impl Member {
    fn name(&self) -> [u8; 4] {
        self.number.to_be_bytes()
    }

    /// Operations of its next compound.
    fn says(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        match self.client.minor {
            0 => compound(0, operations),
            minor => {
                let sequence = next(&mut self.client, 0);
                compound(minor, &[&[sequence], operations].concat())
            }
        }
    }

    fn owner(&self) -> StateOwner<'static> {
        StateOwner {
            client_id: self.client.id,
            owner: Opaque(b"owner"),
        }
    }

    fn open<'a>(&self, name: &'a [u8]) -> Operation<'a> {
        let wish = match self.client.minor {
            0 => 0,
            _ => share_access::WANT_NONE,
        };
        Operation::Open(OpenArgs {
            sequence: 1,
            share_access: share_access::BOTH | wish,
            share_deny: share_deny::NONE,
            owner: self.owner(),
            create: None,
            claim: Claim::Null(Name(name)),
        })
    }

    /// A lock of one byte that nobody else wants.
    fn lock(&self, open: StateId) -> Operation<'static> {
        Operation::Lock(LockArgs {
            kind: LockType::Write,
            reclaim: false,
            offset: self.number.into(),
            length: 1,
            locker: Locker::New(OpenToLockOwner {
                open_sequence: 3,
                open,
                lock_sequence: 0,
                owner: self.owner(),
            }),
        })
    }
}

impl Crowd {
    /// Clients with these numbers, which are their names, at `HOST:PORT`. They are confirmed, and have nothing to reclaim.
    ///
    /// # Panics
    /// The server refuses one of them.
    pub fn connect(address: &str, minor: u32, numbers: std::ops::Range<u32>) -> Self {
        let member = |number| Member {
            number,
            client: Client {
                minor,
                ..Client::default()
            },
            file: Vec::new(),
            state: StateId::ANONYMOUS,
            confirm: None,
            sequence: 0,
        };
        let mut crowd = Self {
            rpc: RawRpc::connect(address),
            members: numbers.map(member).collect(),
        };
        match minor {
            0 => crowd.is_confirmed(),
            _ => crowd.has_sessions(),
        }
        crowd
    }

    fn is_confirmed(&mut self) {
        self.each(
            |member| {
                let name = member.name();
                compound(0, &[set_client_id(&name, 1)])
            },
            |member, results| {
                let [OperationResult::SetClientId(Ok(confirm))] = results else {
                    panic!("{results:?}");
                };
                member.client.id = confirm.client_id;
                member.confirm = Some(*confirm);
            },
        );
        self.each(
            |member| {
                let confirm = member.confirm.expect("told");
                compound(0, &[Operation::SetClientIdConfirm(confirm)])
            },
            |_, _| {},
        );
    }

    fn has_sessions(&mut self) {
        self.each(
            |member| {
                let name = member.name();
                compound(member.client.minor, &[exchange_id(&name, 1, 0)])
            },
            |member, results| {
                let [OperationResult::ExchangeId(Ok(known))] = results else {
                    panic!("{results:?}");
                };
                member.client.id = known.client_id;
                member.sequence = known.sequence;
            },
        );
        self.each(
            |member| {
                let create = create_session(member.client.id, member.sequence, 1);
                compound(member.client.minor, &[create])
            },
            |member, results| {
                let [OperationResult::CreateSession(Ok(made))] = results else {
                    panic!("{results:?}");
                };
                member.client.session = made.session;
                member.client.granted = made.fore.max_requests;
            },
        );
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        self.each(
            |member| member.says(std::slice::from_ref(&complete)),
            |_, _| {},
        );
    }

    /// Each opens the file in the root directory whose name `of` says, and locks a byte of it.
    ///
    /// # Panics
    /// The server refuses one of them.
    pub fn open_and_lock(&mut self, of: impl Fn(u32) -> String) {
        let root = Operation::PutRootFileHandle;
        self.each(
            |member| {
                let name = of(member.number);
                let open = member.open(name.as_bytes());
                member.says(&[root.clone(), open, Operation::GetFileHandle])
            },
            |member, results| {
                let [
                    ..,
                    OperationResult::Open(Ok(open)),
                    OperationResult::GetFileHandle(Ok(file)),
                ] = results
                else {
                    panic!("{results:?}");
                };
                member.state = open.state;
                member.file = file.0.to_vec();
            },
        );
        let put = |member: &Member| member.file.clone();
        if self.members.iter().any(|member| member.client.minor == 0) {
            self.each(
                |member| {
                    let file = put(member);
                    let confirm = Operation::OpenConfirm(OpenConfirmArgs {
                        state: member.state,
                        sequence: 2,
                    });
                    member.says(&[Operation::PutFileHandle(FileHandle(&file)), confirm])
                },
                |member, results| {
                    let [.., OperationResult::OpenConfirm(Ok(state))] = results else {
                        panic!("{results:?}");
                    };
                    member.state = *state;
                },
            );
        }
        self.each(
            |member| {
                let file = put(member);
                let lock = member.lock(member.state);
                member.says(&[Operation::PutFileHandle(FileHandle(&file)), lock])
            },
            |_, _| {},
        );
    }

    /// Each calls, and takes its results, all of which are successes.
    fn each(
        &mut self,
        call: impl Fn(&mut Member) -> Vec<u8>,
        take: impl Fn(&mut Member, &[OperationResult<'_>]),
    ) {
        for some in self.members.chunks_mut(AT_ONCE) {
            let mut under_way = HashMap::new();
            for (at, member) in some.iter_mut().enumerate() {
                let arguments = call(member);
                let xid = self.rpc.post(COMPOUND, &arguments).expect("sent");
                under_way.insert(xid, at);
            }
            while !under_way.is_empty() {
                let reply = self.rpc.receive().expect("a reply");
                let xid = u32::from_be_bytes(reply[..4].try_into().expect("an xid"));
                let at = under_way.remove(&xid).expect("a reply to one of the calls");
                let results = results(&reply);
                let last = results.last().expect("a result");
                assert_eq!(status(last), Status::Ok, "{last:?}");
                take(&mut some[at], &results);
            }
        }
    }
}
