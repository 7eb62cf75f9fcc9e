//! A client of version 4: what it holds, and how its compounds get through whatever happens to its connections.

use super::lines::{BOTH, By, Came, Line, Lines, SHORT, is_call};
use super::session::{self, Asked, Sent, Session, sequenced};
use super::{Model, UNITS};
use crate::history::PagePosition;
use crate::world::{World, below, name_of};
use odafs_common::wire::nfs4::{OperationResult, StateId, Status, sequence_status};
use odafs_fabric::clock::{self, Nanos};
use odafs_tests::holdings::Holder;
use odafs_tests::linear::Action;
use odafs_tests::page::PAGE;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How long a compound waits for its reply at most, while a server runs.
const WAIT_MAX: Nanos = Nanos::from_secs(60);
/// Owners of ranges within a client.
pub const OWNERS: usize = 2;

/// A file that a client has open.
pub struct Open {
    pub state: StateId,
    pub access: u32,
    pub deny: u32,
    /// Access and deny of each OPEN that it came by.
    pub pairs: Vec<(u32, u32)>,
    pub locks: [Locks; OWNERS],
}

/// What an owner has locked of a file: of each unit whether it excludes others.
#[derive(Clone, Copy, Default)]
pub struct Locks {
    pub state: Option<StateId>,
    pub units: [Option<bool>; UNITS as usize],
}

/// A client's answer to a recall.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// It returns the delegation at this time.
    At(Nanos),
    /// It never returns the delegation.
    Never,
}

/// A delegation, and what the client keeps under it.
pub struct Delegation {
    pub state: StateId,
    pub write: bool,
    pub recalled: Option<Plan>,
    /// What pages hold.
    pub pages: BTreeMap<u8, u64>,
    /// What was read of them so, until the server has shown that it kept the delegation meanwhile.
    pub read: Vec<Seen>,
    /// What was written so, and not sent: of each page in order, with the reads of it.
    pub dirty: BTreeMap<u8, Vec<(Seen, bool)>>,
    /// The change attribute and the size of the file, as far as the client has looked; the size with what it has written since.
    pub known: Option<(u64, u64)>,
    /// It has written something.
    pub changed: bool,
}

impl Delegation {
    /// The client writes a page.
    pub fn changes(&mut self, page: u8) {
        self.changed = true;
        if let Some((_, size)) = &mut self.known {
            *size = (*size).max(end_of(page));
        }
    }

    /// What it tells the server of the change attribute and the size (RFC 8881, section 10.4.3).
    fn tells(&self) -> Option<(u64, u64)> {
        let (change, size) = self.known?;
        Some((change + u64::from(self.changed), size))
    }
}

/// Bytes up to the end of a page.
pub fn end_of(page: u8) -> u64 {
    (u64::from(page) + 1) * PAGE as u64
}

/// An operation that a client has done without the server.
#[derive(Clone, Copy)]
pub struct Seen {
    pub page: u8,
    pub value: u64,
    /// Between these two times of the history,
    pub invoked: u64,
    pub returned: u64,
    /// and before this.
    pub at: Nanos,
}

/// What a client holds of a file.
#[derive(Default)]
pub struct Held {
    pub open: Option<Open>,
    pub delegation: Option<Delegation>,
    /// What its owners have done about it, in minor version 0.
    pub turns: [u32; OWNERS],
    /// What it has written and not committed: the value, the verifier, and whether a COMMIT would promise it.
    pub unstable: BTreeMap<u8, (u64, [u8; 8], bool)>,
}

/// The outcome of a compound.
pub enum Answer {
    /// The reply.
    Reply(Vec<u8>),
    /// The server executed it, and the reply is lost.
    Somehow,
    /// The session is gone. The server may have executed it.
    Gone,
}

pub struct Client<'w> {
    pub world: &'w World,
    pub model: &'w Model,
    pub number: u32,
    pub name: String,
    pub lines: Lines,
    pub session: Session,
    pub id: u64,
    /// Changes when the client restarts.
    pub verifier: u64,
    /// Whether the client believes that its session exists.
    pub alive: bool,
    /// A time at which the lease was renewed, or before it.
    pub renewed: Nanos,
    pub names: Vec<String>,
    pub handles: Vec<Vec<u8>>,
    pub held: Vec<Held>,
    /// Delegations that the server recalled before the client knew of them.
    pub early: Vec<StateId>,
    /// Whether the server says that it has revoked a delegation.
    pub revoked: bool,
    pub tally: super::Tally,
    /// Whether the run loses nothing on purpose.
    pub careful: bool,
    /// Whether it speaks minor version 0.
    pub legacy: bool,
    /// The number of operations of its owner of opens, in minor version 0.
    pub turn: u32,
    /// A file whose OPEN is to be confirmed.
    pub unconfirmed: Option<usize>,
    /// Whether the server has heard that it reclaims no more: the server of now, and the one before.
    pub done: [bool; 2],
    xid: u32,
}

impl<'w> Client<'w> {
    pub fn new(world: &'w World, model: &'w Model, number: u32, files: usize) -> Self {
        Self {
            world,
            model,
            number,
            name: format!("v4-{number}"),
            lines: Lines::new(&world.network),
            session: Session::default(),
            id: 0,
            verifier: 1,
            alive: false,
            renewed: Nanos(0),
            names: model.files.iter().map(|file| name_of(*file)).collect(),
            handles: Vec::new(),
            held: (0..files).map(|_| Held::default()).collect(),
            early: Vec::new(),
            revoked: false,
            tally: super::Tally::default(),
            careful: false,
            legacy: false,
            turn: 0,
            unconfirmed: None,
            done: [false; 2],
            xid: 0,
        }
    }

    pub fn holder(&self, owner: usize) -> Holder {
        Holder {
            client: self.number,
            owner: owner as u32,
        }
    }

    /// Notes a line of the trace.
    pub fn say(&self, line: &str) {
        let name = &self.name;
        self.world.history.say(&format!("{name} {line}"));
    }

    /// Fails the run.
    pub fn fail(&self, why: &str) -> ! {
        self.say(why);
        let trace = self.world.history.check();
        panic!("{}: {why}\n{trace}", self.name);
    }

    /// Fails the run unless the model agrees.
    pub fn expect(&self, held: Result<(), String>) {
        if let Err(why) = held {
            self.fail(&why);
        }
    }

    /// Records what was done to a page.
    pub fn record(&self, place: PagePosition, invoked: u64, action: Action, answered: bool) {
        let history = &self.world.history;
        history.record(&self.name, [place], invoked, action, answered);
    }

    /// Answers a callback of the server, if one came over a connection that carries callbacks.
    pub fn hears(&mut self) {
        if self.alive && !self.legacy && !self.lines.is_open(By::Rdma) {
            self.connect(By::Rdma);
        }
        while let Some(came) = self.lines.poll() {
            if let Came::Message(by, message) = came
                && is_call(&message)
            {
                self.called(by, &message);
            }
        }
    }

    fn called(&mut self, by: By, message: &[u8]) {
        let refuses = !self.careful && below(8) == 0;
        let mut told = 0;
        let tell = |file: &[u8]| {
            let at = self.handles.iter().position(|handle| handle == file)?;
            let delegation = self.held[at].delegation.as_ref();
            let tells = delegation.filter(|held| held.write && !refuses)?.tells();
            told += u64::from(tells.is_some());
            tells
        };
        let (answer, recalled) = self.session.called(message, tell);
        self.tally.told += told;
        match recalled {
            Some(Asked::Delegation(state)) => self.recall(state),
            Some(Asked::Slots(target)) => {
                self.tally.slots_recalled += 1;
                self.aim(target);
            }
            None => {}
        }
        if !self.careful && below(30) == 0 {
            return self.lines.cut(by);
        }
        self.lines.send(by, &answer);
    }

    /// Notes the highest slot that the server wants to be used.
    fn aim(&mut self, target: u32) {
        match self.session.aim(target) {
            Ordering::Less => self.tally.fewer += 1,
            Ordering::Greater => self.tally.more += 1,
            Ordering::Equal => return,
        }
        self.say(&format!("is to use no slot above {target}"));
    }

    fn recall(&mut self, state: StateId) {
        self.tally.recalls += 1;
        let plan = match below(8) {
            0 => Plan::Never,
            1..4 => Plan::At(clock::now() + Nanos(below(self.model.lease.0))),
            _ => Plan::At(clock::now()),
        };
        let mut delegations = self.held.iter_mut().filter_map(|h| h.delegation.as_mut());
        match delegations.find(|delegation| delegation.state.other == state.other) {
            Some(delegation) => {
                delegation.recalled.get_or_insert(plan);
                self.say(&format!("is asked for a delegation: {plan:?}"));
            }
            None => self.early.push(state),
        }
    }

    /// Opens a connection, as soon as a server is there.
    fn connect(&mut self, by: By) {
        while self.lines.connect(by).is_err() {
            clock::sleep(Nanos::from_millis(20));
        }
        if by == By::Rdma && self.alive && !self.legacy {
            let xid = self.fresh_xid();
            // SEQUENCE tells the result.
            let bind = session::call(xid, &self.session.bind());
            self.lines.send(by, &bind);
        }
    }

    /// Runs compounds of the session at the same time.
    pub fn exchange(&mut self, sent: &[Sent], by: Option<By>) -> Vec<Answer> {
        let bodies: Vec<&[u8]> = sent.iter().map(|sent| &sent.body[..]).collect();
        if self.legacy {
            return self.exchange_legacy(sent, &bodies, by);
        }
        let mut answers = Vec::new();
        for (reply, sent) in self.deliver(&bodies, by).into_iter().zip(sent) {
            answers.push(match sequenced(&reply) {
                Ok(ok) => {
                    self.heard(sent.first, ok.status_flags);
                    self.aim(ok.target_highest_slot);
                    match session::status(&reply) == Status::RetryUncachedRep {
                        false => Answer::Reply(reply),
                        true if !sent.kept => Answer::Somehow,
                        true => self.fail("a reply that was to be kept is not there"),
                    }
                }
                Err(Status::BadSession | Status::DeadSession) => Answer::Gone,
                Err(status) => self.fail(&format!("SEQUENCE: {status:?}")),
            });
        }
        answers
    }

    /// Notes that the server has executed a compound, sent at `first`, and these flags about the client's state.
    pub fn heard(&mut self, first: Nanos, flags: u32) {
        self.renewed = self.renewed.max(first);
        self.revoked = flags & sequence_status::RECALLABLE_STATE_REVOKED != 0;
        let down =
            sequence_status::CALLBACK_PATH_DOWN | sequence_status::CALLBACK_PATH_DOWN_SESSION;
        self.tally.deaf += u64::from(flags & down != 0);
        let delegations = if self.revoked { 0 } else { first.0 };
        let states = (first + self.model.lease).0;
        let kept = (self.model.holdings()).kept(self.number, states, delegations);
        self.expect(kept);
        if self.revoked {
            return;
        }
        for (file, held) in self.held.iter_mut().enumerate() {
            let Some(delegation) = &mut held.delegation else {
                continue;
            };
            delegation.read.retain(|seen| {
                let sure = seen.at < first;
                if sure {
                    self.tally.cached += 1;
                    self.world.history.record_at(
                        &self.name,
                        (self.model.files[file], seen.page),
                        (seen.invoked, seen.returned),
                        Action::Read { value: seen.value },
                    );
                }
                !sure
            });
        }
    }

    /// Brings calls to the server, and their replies back, over as many connections as that takes. `by` names the only kind of
    /// connection to use, if that matters.
    pub fn deliver(&mut self, bodies: &[&[u8]], by: Option<By>) -> Vec<Vec<u8>> {
        let only = by;
        let began = clock::now();
        let mut replies: Vec<Option<Vec<u8>>> = vec![None; bodies.len()];
        // Replies that came and were dropped.
        let mut lost: Vec<Option<Vec<u8>>> = vec![None; bodies.len()];
        let mut under_way: BTreeMap<u32, (usize, Line)> = BTreeMap::new();
        // In minor version 0 the server knows a call again by its xid.
        let first_xid = self.xid + 1;
        self.xid += bodies.len() as u32;
        let mut tried = began;
        while replies.contains(&None) {
            under_way.retain(|_, (_, line)| self.lines.is_there(*line));
            for (at, body) in bodies.iter().enumerate() {
                let is_sent = under_way.values().any(|(sent, _)| *sent == at);
                if replies[at].is_none() && !is_sent {
                    let any = match body.len() > SHORT || below(2) == 0 {
                        true => By::Messages,
                        false => By::Rdma,
                    };
                    let by = only.unwrap_or(any);
                    if !self.lines.is_open(by) {
                        self.connect(by);
                    }
                    let xid = match self.legacy {
                        true => first_xid + at as u32,
                        false => self.fresh_xid(),
                    };
                    tried = clock::now();
                    if self.lines.send(by, &session::call(xid, body)) {
                        under_way.insert(xid, (at, self.lines.line(by)));
                        if !self.careful && below(60) == 0 {
                            self.lines.cut(by);
                        }
                    }
                }
            }
            match self.lines.poll() {
                Some(Came::Message(by, message)) if is_call(&message) => self.called(by, &message),
                Some(Came::Message(by, message)) => {
                    let xid = u32::from_be_bytes(*message.first_chunk().expect("an xid"));
                    let Some((at, _)) = under_way.remove(&xid) else {
                        continue;
                    };
                    if asks_for_time(&message) {
                        clock::sleep(Nanos::from_millis(1 + below(10)));
                    } else if !self.careful && lost[at].is_none() && below(25) == 0 {
                        lost[at] = Some(message);
                        self.lines.cut(by);
                    } else {
                        if let Some(first) = lost[at].take() {
                            self.same(&first, &message);
                        }
                        replies[at] = Some(message);
                    }
                }
                Some(Came::End) => {}
                None if !self.all_sent(&replies, &under_way) => {}
                // The first reply went to a connection that has ended.
                None if self.legacy && clock::now().since(tried) > Nanos::from_secs(1) => {
                    BOTH.into_iter().for_each(|by| self.lines.cut(by));
                }
                None => self.lines.wait(clock::now() + Nanos::from_secs(1)),
            }
            let waited = clock::now().since(began.max(self.model.started()));
            if waited > WAIT_MAX && self.model.in_time {
                self.fail("a call waits for ever");
            }
        }
        replies.into_iter().flatten().collect()
    }

    fn fresh_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// Whether all unanswered calls are on their way.
    fn all_sent(
        &self,
        replies: &[Option<Vec<u8>>],
        under_way: &BTreeMap<u32, (usize, Line)>,
    ) -> bool {
        let mut waiting = (0..replies.len()).filter(|at| replies[*at].is_none());
        waiting.all(|at| {
            let mut sent = under_way.values();
            sent.any(|(sent, line)| *sent == at && self.lines.is_there(*line))
        })
    }

    /// Checks that the server answers a repetition with the first reply.
    fn same(&mut self, first: &[u8], reply: &[u8]) {
        self.tally.repeated += 1;
        // A refusal for want of room is not kept: the repetition is another attempt.
        let tried_later = OperationResult::CreateSession(Err(Status::Delay));
        let again = match session::results(reply).first() {
            Some(OperationResult::Sequence(taken)) => {
                taken.is_ok() && session::status(reply) != Status::RetryUncachedRep
            }
            Some(OperationResult::CreateSession(made)) => {
                made.is_ok() && session::results(first).first() != Some(&tried_later)
            }
            // A client id that is not confirmed is another each time.
            _ => false,
        };
        if again && first[4..] != reply[4..] {
            let (first, again) = (session::results(first), session::results(reply));
            self.fail(&format!("repeated: {first:?}, and then {again:?}"));
        }
    }
}

/// The slot is still busy.
fn asks_for_time(reply: &[u8]) -> bool {
    let first = session::results(reply);
    let delay = OperationResult::Sequence(Err(Status::Delay));
    first.first() == Some(&delay)
}
