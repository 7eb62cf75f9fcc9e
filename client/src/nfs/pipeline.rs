//! Many calls of one procedure in flight on one connection.

use crate::{
    calls::{Calls, Line, answer},
    error::{CallError, Status},
    nfs::procedure::{Asks, Procedure},
    patience::{Pause, ResendPause},
    transport::{Broken, PlacedData, ReplyBuffer},
};
use odafs_common::wire::{
    nfs3,
    xdr::{Encode, Reader},
};
use odafs_fabric::{
    Region,
    clock::{self, Nanos},
    sync::Arc,
};
use std::collections::VecDeque;

/// The most calls in flight.
pub const WINDOW: usize = 16;

/// The work of a pipeline, call by call. All calls must be idempotent.
pub trait Work {
    /// The state of one call.
    type Item: Copy;

    /// Passes the call's arguments to `put`. `slot` is below [`WINDOW`] and differs from that of every call in flight.
    fn send(
        &mut self,
        item: Self::Item,
        slot: usize,
        sink: Option<&Arc<Region>>,
        put: &mut dyn FnMut(&dyn Encode) -> Result<(), Broken>,
    ) -> Result<(), Broken>;

    /// The size of the reply. With `sink`, its data goes there.
    fn asks(&self, item: Self::Item, sink: bool) -> Asks {
        let _ = (item, sink);
        Asks::NOTHING
    }

    /// Where a call's data may be written, in the caller's memory.
    fn place(&self, item: Self::Item) -> Option<ReplyBuffer> {
        let _ = item;
        None
    }

    /// Takes a result. `placed` says where its data lies, if that came apart from it. In that case `result` contains no
    /// data.
    fn take(
        &mut self,
        item: Self::Item,
        slot: usize,
        sink: Option<&Arc<Region>>,
        placed: Option<PlacedData<'_>>,
        result: &mut Reader<'_>,
    ) -> Result<Next<Self::Item>, CallError>;
}

/// What to do after a result.
pub enum Next<I> {
    /// Nothing.
    Done,
    /// Make another call, for the rest.
    More(I),
    /// Make the same call again a little later.
    Later(I),
    /// Make no further call, and wait for the answers to those under way.
    Drain,
    /// Make no further call, and drop all answers.
    Stop,
}

impl<I> Next<I> {
    /// After a refusal: the same call later, if the server asks for that. Otherwise none, and `failed` is set to the
    /// reason.
    pub fn refused(status: nfs3::Status, item: I, failed: &mut Option<Status>) -> Self {
        if status == nfs3::Status::Jukebox {
            return Self::Later(item);
        }
        *failed = Some(status.into());
        Self::Stop
    }
}

/// One run of a [`Work`].
struct Run<'a, W: Work, I> {
    calls: &'a Calls,
    procedure: &'a Procedure,
    work: &'a mut W,
    /// What nobody has begun. `None`: nothing more is begun.
    items: Option<I>,
    /// What comes before that: calls to make again, and rests. Those that were sent on a lost connection have their xids.
    /// The server's duplicate request cache recognizes them by these. With another xid, a call might be done a second
    /// time, over what others have done since.
    todo: VecDeque<(Option<u32>, W::Item)>,
    in_flight: Vec<Flying<W::Item>>,
    sink_bytes: usize,
    /// Whether the caller's memory may be lent to the server.
    lent: bool,
    /// Of the next answer. A transfer may take longer than a call, as long as answers come.
    deadline: Nanos,
    pause: Pause,
}

struct Flying<I> {
    xid: u32,
    /// Whether the call was sent before, on a connection that was lost.
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

/// Makes all calls, on another connection if one is lost. The first answer must come by `deadline`, or by that of a call if
/// there is none. With `sink_bytes`, the server may write data into memory of the connection.
pub fn run<W: Work>(
    calls: &Calls,
    deadline: Option<Nanos>,
    procedure: &Procedure,
    work: &mut W,
    items: impl IntoIterator<Item = W::Item>,
    sink_bytes: usize,
) -> Result<(), CallError> {
    let mut run = Run {
        calls,
        procedure,
        work,
        items: Some(items.into_iter()),
        todo: VecDeque::new(),
        in_flight: Vec::new(),
        sink_bytes,
        lent: false,
        deadline: deadline.unwrap_or_else(|| calls.deadline()),
        pause: Pause::default(),
    };
    run.finish()
}

impl<W: Work, I: Iterator<Item = W::Item>> Run<'_, W, I> {
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
                    if clock::now() >= self.deadline {
                        return Err(self.calls.given_up(self.procedure, last));
                    }
                }
                Err(stopped) => {
                    // Data may still be on its way into memory. No more comes when the connection is gone.
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
        let mut pause = ResendPause::default();
        loop {
            self.fill_window(line, sink.as_ref())
                .map_err(Stopped::Broken)?;
            if self.in_flight.is_empty() {
                return Ok(());
            }
            // A server that is still processing a call does not answer its repetition, so ask again. (It would write
            // into a sink twice, but does not remember such calls either.)
            let ask = self.sink_bytes == 0 && self.in_flight.iter().any(|flying| flying.again);
            let until = match ask {
                true => pause.until(self.deadline),
                false => self.deadline,
            };
            match line.transport().receive(until) {
                Ok(true) => {
                    self.calls.silence.broken_on(line.answered());
                    self.reply(line, sink.as_ref())?;
                }
                Ok(false) if until < self.deadline => {
                    pause = pause.longer();
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
            && let Some((xid, item)) = self.next()
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

    fn next(&mut self) -> Option<(Option<u32>, W::Item)> {
        let again = self.todo.pop_front();
        again.or_else(|| Some((None, self.items.as_mut()?.next()?)))
    }

    /// Sends the calls again that were sent on another connection and have no answer yet.
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
            // The answer belongs to a call that had timed out, or to one that was sent twice.
            return match clock::now() < self.deadline {
                true => Ok(()),
                false => Err(Stopped::TimedOut),
            };
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
            Next::Drain => {
                self.items = None;
                self.todo.clear();
            }
            Next::Stop => return Err(Stopped::AsAsked),
            Next::More(item) => self.todo.push_front((None, item)),
            Next::Later(item) => {
                if !self.pause.before_retry(self.deadline) {
                    return Err(Stopped::TimedOut);
                }
                self.todo.push_back((None, item));
                // Nothing was done, however often the server says so.
                return Ok(());
            }
        }
        self.deadline = self.calls.deadline();
        Ok(())
    }
}
