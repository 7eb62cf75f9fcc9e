//! Reads of several files in a ring, against a server behind a gate.

use odafs_c::*;
use odafs_tests::served::Served;
use std::{
    ffi::CString,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

const FILES: usize = 4;

/// How many calls the gate holds until it passes them on together. 0: none.
static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// Listens in front of a server, and returns the port.
fn gate(server: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for from in listener.incoming() {
            let (from, to) = (from.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut answers, &mut back));
            // It ends when either side closes.
            thread::spawn(move || pass(from, to));
        }
    });
    port
}

/// Passes the calls of one connection on. Each is one fragment behind its length.
fn pass(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let (mut held, mut calls) = (Vec::new(), 0);
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        held.extend_from_slice(&mark);
        io::copy(&mut (&mut from).take(length.into()), &mut held)?;
        calls += 1;
        if calls >= HOLDS.load(SeqCst) {
            to.write_all(&held)?;
            (held, calls) = (Vec::new(), 0);
        }
    }
}

#[test]
fn reads_of_several_files_that_are_submitted_together_are_under_way_together() {
    let (directory, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in 0..FILES {
        let content = [file as u8; 100];
        std::fs::write(directory.path().join(file.to_string()), content).unwrap();
    }
    let server = Served::start(directory.path(), scratch.path(), &[]);
    let port = gate(server.nfs.clone());
    let url = CString::new(format!("nfs://127.0.0.1:{port}/?mountport={port}")).unwrap();
    let mut buffers = [[9_u8; 16]; FILES];
    // SAFETY: handles that are used until they are freed below, and buffers that nobody looks at before their reads
    // have completed.
    unsafe {
        let client = odafs_connect(url.as_ptr());
        assert!(!client.is_null());
        let files = [0, 1, 2, 3].map(|file: usize| {
            let name = CString::new(file.to_string()).unwrap();
            odafs_open(client, name.as_ptr(), libc::O_RDONLY, 0)
        });
        assert!(files.iter().all(|file| !file.is_null()));
        // One thread, which would wait for the answer of one file before it asks for the next.
        let ring = odafs_ring_new(8, 1);
        // The server gets none of the four calls before all of them are there.
        HOLDS.store(FILES, SeqCst);
        let submissions: Vec<_> = (0..)
            .zip(files.iter().zip(&mut buffers))
            .map(|(user_data, (file, buffer))| odafs_submission {
                op: ODAFS_OP_READ,
                file: *file,
                buffer: buffer.as_mut_ptr().cast(),
                bytes: buffer.len(),
                offset: 90,
                user_data,
            })
            .collect();
        let submitted = odafs_ring_submit(ring, submissions.as_ptr(), submissions.len());
        assert_eq!(submitted, FILES as isize);
        let none = odafs_completion {
            user_data: 0,
            result: 0,
        };
        let mut done = [none; FILES];
        let ended = odafs_ring_wait(ring, done.as_mut_ptr(), FILES, FILES, -1);
        assert_eq!(ended, FILES as isize);
        let mut done = done.map(|done| (done.user_data, done.result));
        done.sort_unstable();
        assert_eq!(done, [(0, 10), (1, 10), (2, 10), (3, 10)]);
        HOLDS.store(0, SeqCst);
        odafs_ring_free(ring);
        files.iter().for_each(|file| odafs_close(*file));
        odafs_disconnect(client);
    }
    for (file, buffer) in (0..).zip(&buffers) {
        assert_eq!(buffer[..10], [file; 10]);
    }
}
