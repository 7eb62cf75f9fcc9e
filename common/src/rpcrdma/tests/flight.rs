//! Many calls under way, answered in any order, twice, late or not at all.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::{Exchange, Memory, World, message};
use crate::rpcrdma::*;
use crate::wire::rpcrdma::Segments;

const RESULT: usize = 5000;

fn exchange(xid: u32) -> Exchange {
    let (call, arguments) = message(xid, 0, 3, &[], 0);
    let results = &[RESULT; 2][..(xid % 3) as usize];
    let (reply, data) = message(xid, 1, 5, results, 1);
    Exchange {
        call,
        shape: CallShape {
            arguments,
            results_max: Placements::new(&[RESULT as u32; 2][..results.len()]),
            reply_max: 100,
        },
        reply,
        data,
    }
}

/// What happens next. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Call,
    SendAgain(usize),
    Serve(usize),
    /// The server drops a call.
    Drop(usize),
    Deliver(usize),
    /// The network of a faulty peer delivers a reply once more.
    Duplicate(usize),
    Abandon(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    prop_oneof![
        4 => Just(Step::Call),
        1 => which().prop_map(Step::SendAgain),
        4 => which().prop_map(Step::Serve),
        1 => which().prop_map(Step::Drop),
        4 => which().prop_map(Step::Deliver),
        1 => which().prop_map(Step::Duplicate),
        1 => which().prop_map(Step::Abandon),
    ]
}

/// A call as the client sees it.
struct Waiting {
    xid: u32,
    sent: Vec<u8>,
    given: Vec<(NeedKind, Segments)>,
}

struct Flight {
    world: World,
    next: u32,
    waiting: Vec<Waiting>,
    abandoned: BTreeSet<u32>,
    serving: Vec<Ticket>,
    replies: Vec<(u32, Vec<u8>)>,
    delivered: Vec<(u32, Vec<u8>)>,
}

fn pick<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(which % list.len()))
}

impl Flight {
    fn step(&mut self, step: Step) {
        match step {
            Step::Call if self.world.requester.may_call() => {
                self.next += 1;
                let mut given = Vec::new();
                let sent = self.world.send(&exchange(self.next), &mut given);
                self.arrive(&sent);
                let xid = self.next;
                self.waiting.push(Waiting { xid, sent, given });
            }
            Step::SendAgain(which) if !self.waiting.is_empty() => {
                let at = which % self.waiting.len();
                let Waiting { xid, sent, .. } = &self.waiting[at];
                if self.world.requester.send_again(*xid) {
                    let sent = sent.clone();
                    self.arrive(&sent);
                }
            }
            Step::Serve(which) => {
                if let Some(ticket) = pick(&mut self.serving, which) {
                    let xid = ticket.xid();
                    // What nobody waits for any more may have no memory: it is not written.
                    let known = self.waiting.iter().any(|call| call.xid == xid);
                    if known || self.abandoned.contains(&xid) {
                        let (message, _) = self.world.answer(ticket, &exchange(xid));
                        self.replies.push((xid, message));
                    } else {
                        self.world.responder.dropped(ticket);
                    }
                    self.world.post();
                }
            }
            Step::Drop(which) => {
                if let Some(ticket) = pick(&mut self.serving, which) {
                    self.world.responder.dropped(ticket);
                    self.world.post();
                }
            }
            Step::Deliver(which) => {
                if let Some((xid, message)) = pick(&mut self.replies, which) {
                    self.deliver(xid, &message);
                    self.delivered.push((xid, message));
                }
            }
            Step::Duplicate(which) => {
                if !self.delivered.is_empty() {
                    let (xid, message) = self.delivered[which % self.delivered.len()].clone();
                    let granted = self.world.requester.granted();
                    if !self.abandoned.contains(&xid)
                        && self.waiting.iter().all(|call| call.xid != xid)
                    {
                        assert_eq!(
                            self.world.requester.receive(&message),
                            Event::Unknown { xid }
                        );
                        assert_eq!(self.world.requester.granted(), granted);
                    }
                }
            }
            Step::Abandon(which) => {
                if let Some(call) = pick(&mut self.waiting, which) {
                    assert!(self.world.requester.abandon(call.xid));
                    self.abandoned.insert(call.xid);
                }
            }
            Step::Call | Step::SendAgain(_) => {}
        }
    }

    /// As the RPC layer above a responder has it: a repetition of a call that is still served is dropped at once, and one of
    /// a call that was answered is answered at once. Neither holds a receive while the client counts its credits as free.
    fn arrive(&mut self, sent: &[u8]) {
        self.world.arrive();
        let ticket = match self.world.responder.receive(sent) {
            crate::rpcrdma::Received::Call(incoming) => incoming.ticket,
            step => panic!("{step:?}"),
        };
        let xid = ticket.xid();
        let answered = |(of, _): &(u32, Vec<u8>)| *of == xid;
        if self.serving.iter().any(|other| other.xid() == xid) {
            self.world.responder.dropped(ticket);
        } else if self.replies.iter().chain(&self.delivered).any(answered) {
            let (message, _) = self.world.answer(ticket, &exchange(xid));
            self.replies.push((xid, message));
        } else {
            self.serving.push(ticket);
        }
        self.world.post();
    }

    fn deliver(&mut self, xid: u32, message: &[u8]) {
        let event = self.world.requester.receive(message);
        if self.abandoned.remove(&xid) {
            assert_eq!(event, Event::Late { xid });
        } else if let Some(at) = self.waiting.iter().position(|call| call.xid == xid) {
            let call = self.waiting.swap_remove(at);
            let reply = self
                .world
                .finish(event, message, &exchange(xid), &call.given);
            assert_eq!(reply, Ok(exchange(xid).reply));
        } else {
            assert_eq!(event, Event::Unknown { xid }, "answered before");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_call_has_its_own_reply(steps in proptest::collection::vec(step(), 1..300)) {
        let peer = PrivateData::default();
        let memory = || Memory::new(1 << 20, true);
        let mut flight = Flight {
            world: World::new(peer, peer, memory(), memory()),
            next: 0,
            waiting: Vec::new(),
            abandoned: BTreeSet::new(),
            serving: Vec::new(),
            replies: Vec::new(),
            delivered: Vec::new(),
        };
        for step in steps {
            flight.step(step);
            let calls = (flight.waiting.len() + flight.abandoned.len()) as u32;
            prop_assert!(flight.world.requester.under_way() >= calls);
            prop_assert!(flight.world.requester.under_way() <= flight.world.requester.granted().max(32));
        }
        while let Some(ticket) = flight.serving.pop() {
            flight.serving.push(ticket);
            flight.step(Step::Serve(0));
        }
        while !flight.replies.is_empty() {
            flight.step(Step::Deliver(0));
        }
        prop_assert_eq!(flight.world.responder.under_way(), 0);
    }
}
