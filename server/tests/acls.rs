//! A real server of a real directory: NFSACL is where clients look for it, and lists are those of the file system.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use odafs_common::wire::mount3::{self, DirPath, MountResult};
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nfs4::{
    Attribute, Attributes, Bitmap, CallWriter, GetAttributesArgs, Opaque, Operation,
    OperationResult, Results,
};
use odafs_common::wire::nfsacl3::{
    self, Acls, Entry, GetAclArgs, GetAclResult, SetAclArgs, SetAclResult, mask, tag,
};
use odafs_common::wire::portmap::{self, Mapping};
use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups};
use odafs_common::wire::xdr::{Decode as _, Encode, Reader, Writer};
use odafs_server::config::{ServerConfig, Squash};
use odafs_server::server::Server;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

const ACCESS: &str = "system.posix_acl_access";
/// `u::rwx u:4001:r-- g::--- m::r-- o::---`, as Linux writes it.
const LIST: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, // the owner
    2, 0, 4, 0, 0xa1, 0x0f, 0, 0, // a user
    4, 0, 0, 0, 255, 255, 255, 255, // the owning group
    16, 0, 4, 0, 255, 255, 255, 255, // the mask
    32, 0, 0, 0, 255, 255, 255, 255, // everyone else
];

/// The results of a call by root, over a connection of its own.
fn call(server: &Server, program: (u32, u32), procedure: u32, arguments: &impl Encode) -> Vec<u8> {
    let address = server.addresses().nfs.expect("it listens");
    let mut stream = TcpStream::connect(address).expect("reached");
    let auth = Auth::Sys(AuthSys {
        stamp: 0,
        machine: b"host",
        uid: 0,
        gid: 0,
        gids: Groups::new(&[]),
    });
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, 7, program.0, program.1, procedure, &auth);
    message.extend(arguments.to_bytes());
    let mark = RecordMark::whole(message.len() as u32).to_bytes();
    let record = [&mark[..], &message].concat();
    stream.write_all(&record).expect("sent");
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("a reply");
    let mut reply = vec![0; RecordMark::from_bytes(mark).length as usize];
    stream.read_exact(&mut reply).expect("all of it");
    let reply = rpc::parse_reply(&reply).expect("a reply");
    reply.body.expect("served").rest().to_vec()
}

/// The owner of the root, as version 4.0 is told it.
fn owner(names: bool) -> String {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, state) = (place.path().join("tree"), place.path().join("state"));
    std::fs::create_dir(&tree).expect("a directory");
    let server = Server::start(ServerConfig {
        nfs: Some("127.0.0.1:0".parse().expect("an address")),
        state: Some(state),
        cache_bytes: 1 << 20,
        owner_names: names,
        owner_domain: "example.org".to_owned(),
        ..ServerConfig::new(&tree)
    });
    let server = server.expect("a server");
    let asked = Bitmap::of(&[Attribute::Owner]);
    let mut compound = Vec::new();
    let mut w = Writer::new(&mut compound);
    let call_writer = CallWriter::compound(&mut w, Opaque(b""), 0)
        .push(&Operation::PutRootFileHandle)
        .push(&Operation::GetAttributes(GetAttributesArgs { asked }));
    call_writer.finish();
    let result = call(&server, (100_003, 4), 1, &Encoded(compound));
    let results = Results::begin(Reader::new(&result)).expect("results");
    let last = results.map(|result| result.expect("a result")).last();
    let Some(OperationResult::GetAttributes(Ok(raw))) = last else {
        panic!("{last:?}");
    };
    let told = Attributes::parse(&raw).expect("attributes").owner;
    String::from_utf8(told.expect("an owner").0.to_vec()).expect("text")
}

/// Bytes that are XDR already.
struct Encoded(Vec<u8>);

impl Encode for Encoded {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque_fixed(&self.0);
    }
}

#[test]
fn owners_are_told_by_number_or_by_name() {
    let id = |option| {
        let id = std::process::Command::new("id").arg(option).output();
        let text = String::from_utf8(id.expect("id(1)").stdout).expect("text");
        text.trim().to_owned()
    };
    let (number, name) = (id("-u"), id("-un"));
    assert_eq!(owner(false), number);
    let expected = match name.as_str() {
        // This user has no name.
        "" => number,
        name if name == number => number,
        name => format!("{name}@example.org"),
    };
    assert_eq!(owner(true), expected);
}

fn has_lists(directory: &Path) -> bool {
    match setxattr(directory, ACCESS, &LIST, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => false,
        set => {
            set.expect("set");
            removexattr(directory, ACCESS).expect("removed");
            true
        }
    }
}

#[test]
fn lists_by_version_3_are_those_of_the_file_system() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, state) = (place.path().join("tree"), place.path().join("state"));
    std::fs::create_dir(&tree).expect("a directory");
    let lists = has_lists(&tree);
    let server = Server::start(ServerConfig {
        nfs: Some("127.0.0.1:0".parse().expect("an address")),
        state: Some(state),
        cache_bytes: 1 << 20,
        squash: Squash::None,
        insecure: true,
        ..ServerConfig::new(&tree)
    });
    let server = server.expect("a server");
    let program = (nfsacl3::PROGRAM, nfsacl3::VERSION);
    let wanted = Mapping {
        program: program.0,
        version: program.1,
        protocol: portmap::TCP,
        port: 0,
    };
    let port = call(&server, (portmap::PROGRAM, portmap::VERSION), 3, &wanted);
    let own = server.addresses().nfs.expect("it listens").port();
    let expected = if lists { u32::from(own) } else { 0 };
    assert_eq!(port, expected.to_be_bytes());
    if !lists {
        println!("the rest was not tried: the file system has no access control lists");
        return;
    }
    let mounted = call(
        &server,
        (mount3::PROGRAM, mount3::VERSION),
        1,
        &DirPath(b"/"),
    );
    let mounted = MountResult::from_bytes(&mounted).expect("a result");
    let handle = mounted.expect("mounted").file.0.to_vec();
    let file = FileHandle(&handle);
    let entry = |tag, id, permissions| Entry {
        tag,
        id,
        permissions,
    };
    let access = vec![
        entry(tag::OWNER, 0, 7),
        entry(tag::USER, 4001, 4),
        entry(tag::OWNING_GROUP, 0, 0),
        entry(tag::MASK, 0, 4),
        entry(tag::OTHER, 0, 0),
    ];
    let acls = Acls {
        mask: mask::ACCESS,
        access_count: 5,
        access,
        ..Acls::default()
    };
    let set = SetAclArgs { file, acls };
    let set = call(&server, program, 2, &set);
    let set = SetAclResult::from_bytes(&set).expect("a result");
    let attributes = set.expect("set").expect("attributes");
    assert_eq!(attributes.mode & 0o777, 0o740);
    let mut found = [0; 100];
    let length = getxattr(&tree, ACCESS, &mut found[..]).expect("a list");
    assert_eq!(found[..length], LIST);
    // What is set there is told here.
    let mut changed = LIST;
    changed[14] = 6;
    setxattr(&tree, ACCESS, &changed, XattrFlags::empty()).expect("set");
    let get = GetAclArgs {
        file,
        mask: mask::ALL,
    };
    let told = call(&server, program, 1, &get);
    let told = GetAclResult::from_bytes(&told).expect("a result");
    let told = told.expect("told").acls;
    assert_eq!((told.access_count, told.default_count), (5, 0));
    let user = told.access.iter().find(|entry| entry.tag == tag::USER);
    assert_eq!(user, Some(&entry(tag::USER, 4001, 6)));
}
