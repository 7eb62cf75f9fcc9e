//! A real server whose portmapper listens beside its programs: over TCP, and by datagrams.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use odafs_common::wire::portmap::{self, Mapping};
use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_common::wire::{nfs3, nlm4, nsm};
use odafs_server::config::{Direct, ServerConfig};
use odafs_server::server::Server;

fn server() -> (tempfile::TempDir, Server) {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, state) = (place.path().join("tree"), place.path().join("state"));
    std::fs::create_dir(&tree).expect("a directory");
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = ServerConfig {
        nfs: Some(any),
        portmap: Some(any),
        state: Some(state),
        cache_bytes: 1 << 20,
        direct: Direct::Off,
        ..ServerConfig::new(tree)
    };
    (place, Server::start(config).expect("a server"))
}

fn call(xid: u32, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, xid, program, version, procedure, &Auth::None);
    message.extend_from_slice(arguments);
    message
}

fn wanted(program: u32, version: u32, protocol: u32) -> Vec<u8> {
    let wanted = Mapping {
        program,
        version,
        protocol,
        port: 0,
    };
    wanted.to_bytes()
}

const GET_PORT: (u32, u32, u32) = (portmap::PROGRAM, portmap::VERSION, 3);

/// The results of a reply to this call.
fn results(reply: &[u8], xid: u32) -> Vec<u8> {
    let reply = rpc::parse_reply(reply).expect("a reply");
    assert_eq!(reply.xid, xid);
    reply.body.expect("served").rest().to_vec()
}

fn port(address: Option<SocketAddr>) -> Vec<u8> {
    let port = address.expect("an address").port();
    u32::from(port).to_be_bytes().to_vec()
}

#[test]
fn the_portmapper_answers_where_clients_look_for_it() {
    let (_place, server) = server();
    let addresses = server.addresses().clone();
    let mut stream = TcpStream::connect(addresses.portmap.expect("it listens")).expect("reached");
    let message = call(
        1,
        GET_PORT,
        &wanted(nlm4::PROGRAM, nlm4::VERSION, portmap::TCP),
    );
    let mark = RecordMark::whole(message.len() as u32).to_bytes();
    stream
        .write_all(&[&mark, &message[..]].concat())
        .expect("sent");
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("a reply");
    let mut reply = vec![0; RecordMark::from_bytes(mark).length as usize];
    stream.read_exact(&mut reply).expect("all of it");
    assert_eq!(results(&reply, 1), port(addresses.nfs));
}

#[test]
fn datagrams_bring_the_port_and_tell_of_a_new_start_and_nothing_else() {
    let (_place, server) = server();
    let addresses = server.addresses().clone();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket
        .connect(addresses.portmap.expect("it listens"))
        .expect("an address");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("set");
    let exchange = |xid, procedure, arguments: &[u8]| {
        // What is not answered comes first: its answer would be taken for the next one's.
        for unanswered in [
            call(90, (portmap::PROGRAM, portmap::VERSION, 4), &[]),
            call(91, (nfs3::PROGRAM, nfs3::VERSION, 1), &[0; 68]),
            call(92, (nlm4::PROGRAM, nlm4::VERSION, 23), &[0; 8]),
            b"no call".to_vec(),
            Vec::new(),
        ] {
            socket.send(&unanswered).expect("sent");
        }
        socket.send(&call(xid, procedure, arguments)).expect("sent");
        let mut reply = [0; 1024];
        let bytes = socket.recv(&mut reply).expect("a reply");
        results(&reply[..bytes], xid)
    };
    let monitor = wanted(nsm::PROGRAM, nsm::VERSION, portmap::UDP);
    assert_eq!(exchange(1, GET_PORT, &monitor), port(addresses.portmap));
    let locks = wanted(nlm4::PROGRAM, nlm4::VERSION, portmap::TCP);
    assert_eq!(exchange(2, GET_PORT, &locks), port(addresses.nfs));
    let told = nsm::Notification {
        host: nsm::HostName(b"client"),
        state: 5,
    };
    let notify = (nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify.code());
    assert_eq!(exchange(3, notify, &told.to_bytes()), [0; 0]);
}
