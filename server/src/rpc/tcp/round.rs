//! Rounds of a thread's connections. The runtime looks at the sockets when no task is left to run, or after 61 tasks. The pool's
//! replies make tasks ready all the time, and so a call that has just come might wait for 61 turns of somebody else. So a
//! connection that has had its turn waits until the thread has looked at its sockets.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use odafs_fabric::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::Instant;

/// The rounds of one thread. Other threads do not use it.
#[derive(Debug)]
pub struct Rounds {
    began: Instant,
    /// When the thread last looked at its sockets, as far as is known, and so a round began: nanoseconds since `began`.
    looked: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Rounds {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            looked: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// The thread has just looked at its sockets.
    pub fn looked(&self) {
        // Each look is another one, however coarse the clock is: connections wait for the number to change.
        let next = self.looked.load(Relaxed) + 1;
        let looked = self.began.elapsed().as_nanos() as u64;
        self.looked.store(looked.max(next), Relaxed);
    }

    fn wait(self: &Arc<Self>, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        waiting.push(waker.clone());
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            // The runtime wakes whoever yields when it has looked at the sockets, and nobody else wakes this waker.
            let waker = Waker::from(Arc::clone(self));
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        }
    }
}

/// The thread has looked at its sockets: a round begins.
impl Wake for Rounds {
    fn wake(self: Arc<Self>) {
        self.looked();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// One connection in the rounds of its thread.
#[derive(Debug)]
pub struct ConnectionRound {
    rounds: Arc<Rounds>,
    /// It waits for the end of the round that began then.
    waits: Option<u64>,
}

impl ConnectionRound {
    pub fn new(rounds: Arc<Rounds>) -> Self {
        Self {
            rounds,
            waits: None,
        }
    }

    /// Whether the connection waits for the next round. It is woken then; whoever wakes it before is too early.
    pub fn waits(&mut self) -> bool {
        self.waits = (self.waits).filter(|round| *round == self.rounds.looked.load(Relaxed));
        self.waits.is_some()
    }

    /// When the round began.
    pub fn since(&self) -> Instant {
        self.rounds.began + Duration::from_nanos(self.rounds.looked.load(Relaxed))
    }

    /// Waits for the next round: the others are served, and those who have just called.
    pub fn wait(&mut self, cx: &Context<'_>) {
        self.waits = Some(self.rounds.looked.load(Relaxed));
        self.rounds.wait(cx.waker());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::io::AsyncReadExt as _;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::rpc::tcp::turn::Turn;

    /// Four are longer than a turn.
    const A_LITTLE: Duration = Duration::from_micros(20);

    /// A connection that is woken all the time, and is served for a little: how often, until the thread hears that another one
    /// calls.
    async fn services_until_another_is_heard() -> u32 {
        let (served, heard) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (mut client, server) = UnixStream::pair().expect("sockets");
        server.set_nonblocking(true).expect("a socket");
        let hears = Rc::clone(&heard);
        spawn_local(async move {
            let mut server = tokio::net::UnixStream::from_std(server).expect("a socket");
            server.read_u8().await.expect("a byte");
            hears.set(true);
        });
        let mut round = ConnectionRound::new(Rounds::new());
        let mut turn = Turn::new(Instant::now());
        let busy = poll_fn(move |cx| {
            if heard.get() {
                return Poll::Ready(served.get());
            }
            cx.waker().wake_by_ref();
            let begins = Instant::now();
            if round.waits() {
                return Poll::Pending;
            }
            if !turn.begin(begins, round.since()) {
                round.wait(cx);
                return Poll::Pending;
            }
            served.set(served.get() + 1);
            client.write_all(&[1]).expect("a byte");
            while begins.elapsed() < A_LITTLE {
                std::hint::spin_loop();
            }
            Poll::Pending
        });
        spawn_local(busy).await.expect("no panic")
    }

    #[test]
    fn who_calls_is_heard_in_the_next_round() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let served = LocalSet::new().block_on(&runtime, services_until_another_is_heard());
        assert!(served <= 4, "{served} times");
    }
}
