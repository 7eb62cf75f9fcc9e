//! The connections of the small server: it takes calls, and has the trouble that was planned for them.

use odafs_common::wire::{
    mount3,
    nfs3::{self, Procedure, Status},
    record::{RecordAssembler, RecordMark},
    rpc,
    xdr::{Decode as _, Encode as _, Writer},
};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Mutex,
    time::Duration,
};

use super::{Trouble, World, mount};

/// Serves a connection until it ends.
pub fn serve(mut stream: TcpStream, world: &Mutex<World>) {
    let mut assembler = RecordAssembler::new(8 << 20);
    let mut buf = vec![0; 1 << 16];
    loop {
        let Ok(bytes @ 1..) = stream.read(&mut buf) else {
            return;
        };
        let mut input = &buf[..bytes];
        while let Ok(Some(message)) = assembler.feed(&mut input) {
            match answer(&message, world) {
                Some(Some(reply)) => {
                    let mark = RecordMark::whole(reply.len() as u32).to_bytes();
                    stream.write_all(&[&mark[..], &reply].concat()).unwrap();
                }
                Some(None) => {}
                None => return,
            }
        }
    }
}

/// The reply; `Some(None)` for none, `None` for a closed connection.
fn answer(message: &[u8], world: &Mutex<World>) -> Option<Option<Vec<u8>>> {
    let (header, mut arguments) = rpc::parse_call(message).unwrap();
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    if header.program == mount3::PROGRAM {
        rpc::reply_success(&mut w, header.xid);
        mount::answer(header.procedure, &mut w);
        return Some(Some(reply));
    }
    if header.program != nfs3::PROGRAM {
        rpc::reply_prog_unavail(&mut w, header.xid);
        return Some(Some(reply));
    }
    let mut number = Vec::new();
    header.procedure.encode(&mut Writer::new(&mut number));
    let procedure = Procedure::from_bytes(&number).unwrap();
    let mut world = world.lock().unwrap();
    world.calls.push(procedure);
    world.xids.push(header.xid);
    let trouble = match world.trouble.front() {
        Some((on, trouble)) if *on == procedure => Some(*trouble),
        _ => None,
    };
    if trouble.is_some() {
        world.trouble.pop_front();
    }
    match trouble {
        Some(Trouble::Stall) => return Some(None),
        Some(Trouble::CutBefore) => return None,
        Some(Trouble::Restart | Trouble::Fails) => world.restart(),
        Some(Trouble::Late) => std::thread::sleep(Duration::from_millis(50)),
        _ => {}
    }
    rpc::reply_success(&mut w, header.xid);
    let refusal = match trouble {
        Some(Trouble::Jukebox) => Some(Status::Jukebox),
        Some(Trouble::Full) => Some(Status::NoSpc),
        _ => None,
    };
    if let Some(status) = refusal {
        status.encode(&mut w);
        w.bool(false);
        if procedure == Procedure::Write {
            w.bool(false);
        }
        return Some(Some(reply));
    }
    let short = match trouble {
        Some(Trouble::Short(bytes)) => bytes,
        _ => u32::MAX,
    };
    if trouble == Some(Trouble::Fails) {
        let mut unsaid = Vec::new();
        world.call(
            procedure,
            &mut arguments,
            &mut Writer::new(&mut unsaid),
            short,
        );
        Status::Io.encode(&mut w);
        w.bool(false);
        w.bool(false);
        return Some(Some(reply));
    }
    world.call(procedure, &mut arguments, &mut w, short);
    match trouble {
        Some(Trouble::CutAfter) => None,
        Some(Trouble::Garbled) => {
            reply.truncate(reply.len() - 4);
            Some(Some(reply))
        }
        _ => Some(Some(reply)),
    }
}
