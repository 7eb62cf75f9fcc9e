//! A server of NFS that lacks a procedure, or does not answer its calls: another server, behind a connection that asks
//! it for a procedure that it does not have, or that keeps its answers.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

const NFS: u32 = 100_003;
/// What no server has.
const NONE: u32 = 99;
/// What nobody calls.
pub const NOTHING: u32 = u32::MAX;
/// Bytes of one record, at most.
const RECORD_MAX: usize = 4 << 20;

/// Numbers of procedures.
pub struct Faults {
    /// The one that is lacking.
    pub lacking: AtomicU32,
    /// The one whose calls are made, and not answered.
    pub unanswered: AtomicU32,
}

impl Faults {
    /// Of a server that lacks this one.
    pub fn lacking(procedure: u32) -> Arc<Self> {
        Arc::new(Self {
            lacking: procedure.into(),
            unanswered: NOTHING.into(),
        })
    }
}

/// The address of one with these faults, which leaves all else to `server`.
pub fn before(server: SocketAddr, faults: &Arc<Faults>) -> SocketAddr {
    let faults = faults.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for from in listener.incoming() {
            let (from, to) = (from.unwrap(), TcpStream::connect(server).unwrap());
            // Small calls wait for nothing.
            for end in [&from, &to] {
                end.set_nodelay(true).unwrap();
            }
            let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut answers, &mut back));
            // It ends when either side closes.
            let faults = faults.clone();
            thread::spawn(move || calls(from, to, server, &faults));
        }
    });
    address
}

/// Passes calls on. Each is one fragment: its length, the call's number and kind, the version of RPC, then the program, its
/// version and the procedure.
fn calls(
    mut from: TcpStream,
    mut to: TcpStream,
    server: SocketAddr,
    faults: &Faults,
) -> io::Result<()> {
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark)?;
        let length = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
        assert!((24..=RECORD_MAX).contains(&length), "{length}");
        let mut record = mark.to_vec();
        record.resize(4 + length, 0);
        let call = &mut record[4..];
        from.read_exact(call)?;
        let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
        let (program, procedure) = (word(12), word(20));
        let meets = |fault: &AtomicU32| (program, procedure) == (NFS, fault.load(SeqCst));
        if meets(&faults.lacking) {
            call[20..24].copy_from_slice(&NONE.to_be_bytes());
        }
        if meets(&faults.unanswered) {
            let mut apart = TcpStream::connect(server)?;
            apart.write_all(&record)?;
            // By the time of an answer it is made.
            apart.read_exact(&mut [0])?;
            continue;
        }
        to.write_all(&record)?;
    }
}
