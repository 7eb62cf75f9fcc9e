//! Step 3 of a read over a connection: guarded, or one-sided by RDMA Reads. Many reads are in flight, and their data
//! arrives in the connection's sink.

use crate::{
    direct::{DirectPair, NotPosted},
    part::{Part, ReadStep, Reading},
    session::Session,
    trace::RouteTaken,
    transport::Broken,
};
use odafs_common::exception::Exception;
use odafs_fabric::clock::{self, Nanos};

impl Reading<'_> {
    /// Posts the reads of all parts that are at this step, and takes their answers.
    pub fn on_pair(
        &self,
        session: &Session,
        pair: &mut DirectPair,
        parts: &mut [Part<'_>],
        deadline: Nanos,
    ) -> Result<(), PairFailed> {
        let mut scratch = self.scratch();
        let mut next = 0;
        loop {
            while next < parts.len() {
                let fill = self.keeps(&parts[next], &scratch);
                match self.post(session, pair, &mut parts[next], next, fill) {
                    Ok(()) => next += 1,
                    Err(NotPosted::Full) => break,
                    Err(NotPosted::Broken(broken)) => return Err(broken.into()),
                }
            }
            pair.flush();
            if pair.in_flight() == 0 && next == parts.len() {
                return Ok(());
            }
            let Some(answer) = pair.next(deadline)? else {
                return Err(PairFailed::TimedOut);
            };
            let part = &mut parts[answer.part];
            let (ReadStep::Guarded(reference) | ReadStep::OneSided(reference)) = part.step else {
                return Err(Broken::new("the server completed what was not asked").into());
            };
            let one_sided = matches!(part.step, ReadStep::OneSided(_));
            let wanted = part.wanted(reference.length, self.keeps(part, &scratch));
            match answer.result {
                Ok(bytes) if bytes as usize == wanted.bytes => {
                    let into = if wanted.whole {
                        &mut scratch[..wanted.bytes]
                    } else {
                        &mut part.buf[..wanted.bytes]
                    };
                    if !pair.take(&answer, into) {
                        return Err(Broken::new("the server completed what was not asked").into());
                    }
                    session.was_served();
                    part.finish(
                        self,
                        &wanted,
                        &scratch,
                        if one_sided {
                            RouteTaken::OneSided
                        } else {
                            RouteTaken::Guarded
                        },
                    );
                }
                Ok(_) => self.refuse(session, part, reference.epoch, Exception::OutOfBounds, None),
                Err(exception) => {
                    let sample = clock::now().since(part.began).0;
                    self.refuse(session, part, reference.epoch, exception, Some(sample));
                }
            }
        }
    }

    fn post(
        &self,
        session: &Session,
        pair: &mut DirectPair,
        part: &mut Part<'_>,
        at: usize,
        fill: bool,
    ) -> Result<(), NotPosted> {
        match part.step {
            ReadStep::Guarded(reference) => {
                let wanted = part.wanted(reference.length, fill);
                part.began = clock::now();
                pair.post(
                    session,
                    &reference,
                    wanted.from as u32,
                    wanted.bytes as u32,
                    at,
                )
            }
            ReadStep::OneSided(reference) => {
                let wanted = part.wanted(reference.length, fill);
                part.began = clock::now();
                pair.post_one_sided(&reference, wanted.from as u32, wanted.bytes as u32, at)
            }
            ReadStep::Look | ReadStep::Load(_) | ReadStep::Rpc | ReadStep::Done => Ok(()),
        }
    }
}

/// Why the remaining reads have no answer.
pub enum PairFailed {
    /// The deadline passed.
    TimedOut,
    /// The connection was lost.
    Broken(Broken),
}

impl From<Broken> for PairFailed {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}
