//! Many calls of one procedure in flight on one connection.

use crate::{
    calls::{Calls, Line, answer},
    error::{CallError, Status},
    nfs::procedure::{Asks, Procedure},
    patience::{Patience, Pause},
    transport::{Broken, PlacedData, ReplyBuffer},
};
use odafs_common::wire::{
    nfs3,
    xdr::{Encode, Reader},
};
use odafs_fabric::{Region, clock::Nanos, sync::Arc};
use std::collections::VecDeque;

/// Calls in flight at most.
pub const WINDOW: usize = 16;

/// What is to be done, call by call. All calls must be idempotent.
pub trait Work {
    /// What one call is for.
    type Item: Copy;

    /// Hands the call's arguments to `put`. `slot` is below [`WINDOW`] and unlike that of any call in flight.
    fn send(
        &mut self,
        item: Self::Item,
        slot: usize,
        sink: Option<&Arc<Region>>,
        put: &mut dyn FnMut(&dyn Encode) -> Result<(), Broken>,
    ) -> Result<(), Broken>;

    /// How much a call asks for. `sink`: its data goes there.
    fn asks(&self, item: Self::Item, sink: bool) -> Asks {
        let _ = (item, sink);
        Asks::NOTHING
    }

    /// Where a call's data may land, in memory of the caller's.
    fn place(&self, item: Self::Item) -> Option<ReplyBuffer> {
        let _ = item;
        None
    }

    /// Takes a result in. `placed`: where its data lies, if that came apart from it; it is empty in `result` then.
    fn take(
        &mut self,
        item: Self::Item,
        slot: usize,
        sink: Option<&Arc<Region>>,
        placed: Option<PlacedData<'_>>,
        result: &mut Reader<'_>,
    ) -> Result<Next<Self::Item>, CallError>;
}

/// What follows on a result.
pub enum Next<I> {
    /// Nothing.
    Done,
    /// A further call, for what is left.
    More(I),
    /// The same call again, a little later.
    Later(I),
    /// No further call; the answers to those under way are waited for.
    Drain,
    /// No further call, and no answer is of interest any more.
    Stop,
}

impl<I> Next<I> {
    /// On a refusal: the same call later, if that is what the server asks for; else none, and `failed` says why.
    pub fn refused(status: nfs3::Status, item: I, failed: &mut Option<Status>) -> Self {
        if status == nfs3::Status::Jukebox {
            return Self::Later(item);
        }
        *failed = Some(status.into());
        Self::Stop
    }
}

/// One run of a [`Work`].
struct Run<'a, W: Work> {
    calls: &'a Calls,
    procedure: &'a Procedure,
    work: &'a mut W,
    /// With its xid what was sent on a connection that was lost: the server's cache of duplicate requests then knows
    /// it again. Under another xid it might be done a second time, on top of what others did since.
    todo: VecDeque<(Option<u32>, W::Item)>,
    in_flight: Vec<Flying<W::Item>>,
    sink_bytes: usize,
    /// Memory of the caller's may be lent to the server.
    lent: bool,
    deadline: Nanos,
    pause: Pause,
}

struct Flying<I> {
    xid: u32,
    /// Sent before, on a connection that was lost.
    again: bool,
    slot: usize,
    item: I,
}

enum Stopped {
    Broken(Broken),
    Failed(CallError),
    TimedOut,
    AsAsked,
}

/// Makes all calls, again on another connection where one is lost. With `sink_bytes`, data may be written by the
/// server into memory of the connection.
pub fn run<W: Work>(
    calls: &Calls,
    procedure: &Procedure,
    work: &mut W,
    items: impl IntoIterator<Item = W::Item>,
    sink_bytes: usize,
) -> Result<(), CallError> {
    let mut run = Run {
        calls,
        procedure,
        work,
        todo: items.into_iter().map(|item| (None, item)).collect(),
        in_flight: Vec::new(),
        sink_bytes,
        lent: false,
        deadline: calls.deadline(),
        pause: Pause::default(),
    };
    run.finish()
}

impl<W: Work> Run<'_, W> {
    fn finish(&mut self) -> Result<(), CallError> {
        let mut last = None;
        loop {
            let mut line = match self.calls.line(self.deadline) {
                Ok(line) => line,
                Err(why) => {
                    let (pause, deadline) = (&mut self.pause, self.deadline);
                    let calls = self.calls;
                    last = Some(calls.without_line(self.procedure, why, last, pause, deadline)?);
                    continue;
                }
            };
            match self.on_line(&mut line) {
                Ok(()) => {
                    line.transport().let_go();
                    return Ok(());
                }
                Err(Stopped::Broken(broken)) => {
                    last = Some(self.calls.lost(line, &broken));
                    let sent = self.in_flight.drain(..);
                    self.todo
                        .extend(sent.map(|flying| (Some(flying.xid), flying.item)));
                }
                Err(stopped) => {
                    // Data may still be on its way into memory: no more comes when the connection has gone.
                    if self.sink_bytes > 0 || self.lent {
                        line.discard();
                    }
                    return match stopped {
                        Stopped::AsAsked => Ok(()),
                        Stopped::Failed(error) => Err(error),
                        Stopped::Broken(_) | Stopped::TimedOut => {
                            Err(self.calls.given_up(self.procedure, None))
                        }
                    };
                }
            }
        }
    }

    fn on_line(&mut self, line: &mut Line) -> Result<(), Stopped> {
        let sink = if self.sink_bytes > 0 {
            line.sink(self.sink_bytes)
        } else {
            None
        };
        let mut patience = Patience::default();
        loop {
            self.fill_window(line, sink.as_ref())
                .map_err(Stopped::Broken)?;
            if self.in_flight.is_empty() {
                return Ok(());
            }
            // A server that is still at a call does not answer its repetition: it has to be asked again. (What it
            // writes into a sink it would write twice; but such calls it does not keep in mind either.)
            let ask = self.sink_bytes == 0 && self.in_flight.iter().any(|flying| flying.again);
            let until = match ask {
                true => patience.until(self.deadline),
                false => self.deadline,
            };
            match line.transport().receive(until) {
                Ok(true) => {
                    self.calls.silence.broken_on(line.answered());
                    self.reply(line, sink.as_ref())?;
                }
                Ok(false) if until < self.deadline => {
                    patience = patience.longer();
                    self.ask_again(line).map_err(Stopped::Broken)?;
                }
                Ok(false) => return Err(Stopped::TimedOut),
                Err(broken) => return Err(Stopped::Broken(broken)),
            }
        }
    }

    fn fill_window(&mut self, line: &mut Line, sink: Option<&Arc<Region>>) -> Result<(), Broken> {
        let mut sent = false;
        while self.in_flight.len() < WINDOW
            && let Some((xid, item)) = self.todo.pop_front()
        {
            let slot =
                (0..WINDOW).find(|slot| self.in_flight.iter().all(|flying| flying.slot != *slot));
            let slot = slot.expect("there are as many slots as calls in flight");
            let again = xid.is_some();
            let xid = xid.unwrap_or_else(|| self.calls.next_xid());
            self.in_flight.push(Flying {
                xid,
                again,
                slot,
                item,
            });
            let (calls, deadline) = (self.calls, self.deadline);
            let procedure = (self.procedure).asking(self.work.asks(item, sink.is_some()));
            let place = self.work.place(item);
            self.lent |= place.is_some();
            self.work.send(item, slot, sink, &mut |arguments| {
                calls.send(line, xid, &procedure, arguments, place.as_ref(), deadline)
            })?;
            sent = true;
        }
        if sent {
            line.flush(self.deadline)
        } else {
            Ok(())
        }
    }

    /// Sends once more what was sent on another connection before, and has no answer yet.
    fn ask_again(&mut self, line: &mut Line) -> Result<(), Broken> {
        for at in 0..self.in_flight.len() {
            let Flying {
                xid,
                again: true,
                slot,
                item,
            } = self.in_flight[at]
            else {
                continue;
            };
            let (calls, deadline) = (self.calls, self.deadline);
            let procedure = self.procedure.asking(self.work.asks(item, false));
            let place = self.work.place(item);
            self.work.send(item, slot, None, &mut |arguments| {
                calls.send(line, xid, &procedure, arguments, place.as_ref(), deadline)
            })?;
        }
        line.flush(self.deadline)
    }

    fn reply(&mut self, line: &mut Line, sink: Option<&Arc<Region>>) -> Result<(), Stopped> {
        let transport = &*line.transport();
        let (xid, body) = answer(transport, &[], self.procedure).map_err(Stopped::Failed)?;
        let Some(at) = self.in_flight.iter().position(|flying| flying.xid == xid) else {
            return Ok(());
        };
        let flying = self.in_flight.swap_remove(at);
        let mut result = body.map_err(Stopped::Failed)?;
        match self
            .work
            .take(
                flying.item,
                flying.slot,
                sink,
                transport.placed(),
                &mut result,
            )
            .map_err(Stopped::Failed)?
        {
            Next::Done => {}
            Next::Drain => self.todo.clear(),
            Next::Stop => return Err(Stopped::AsAsked),
            Next::More(item) => self.todo.push_front((None, item)),
            Next::Later(item) => {
                if !self.pause.before_retry(self.deadline) {
                    return Err(Stopped::TimedOut);
                }
                self.todo.push_back((None, item));
            }
        }
        Ok(())
    }
}
