//! A server of NFS that lacks a procedure: another server, behind a connection that asks it for one that it does not have.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

const NFS: u32 = 100_003;
/// What no server has.
const NONE: u32 = 99;
/// Bytes of one record, at most.
const RECORD_MAX: usize = 4 << 20;

/// The address of one that lacks `procedure`, and leaves all else to `server`.
pub fn before(server: SocketAddr, procedure: u32) -> SocketAddr {
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
            thread::spawn(move || calls(from, to, procedure));
        }
    });
    address
}

/// Passes calls on. Each is one fragment: its length, the call's number and kind, the version of RPC, then the program, its
/// version and the procedure.
fn calls(mut from: TcpStream, mut to: TcpStream, procedure: u32) -> io::Result<()> {
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
        if (word(12), word(20)) == (NFS, procedure) {
            call[20..24].copy_from_slice(&NONE.to_be_bytes());
        }
        to.write_all(&record)?;
    }
}
