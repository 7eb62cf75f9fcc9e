use std::fs;

use proptest::prelude::*;

use super::*;
use crate::store::suite::{self, content, list, me, refused};

/// An archive that the test writes.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn header(&mut self, flag: u8, name: &[u8], size: &[u8], link: &[u8]) -> &mut Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name);
        block[100..107].copy_from_slice(b"0000644");
        let who = me();
        block[108..115].copy_from_slice(format!("{:07o}", who.uid).as_bytes());
        block[116..123].copy_from_slice(format!("{:07o}", who.gid).as_bytes());
        block[124..124 + size.len()].copy_from_slice(size);
        block[136..147].copy_from_slice(b"00000001750");
        block[156] = flag;
        block[157..157 + link.len()].copy_from_slice(link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        self.0.extend(block);
        self.sum_up()
    }

    /// Sets the checksum of the last block.
    fn sum_up(&mut self) -> &mut Self {
        let start = self.0.len() - 512;
        let block = &mut self.0[start..];
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self
    }

    fn add(&mut self, flag: u8, name: &[u8], data: &[u8]) -> &mut Self {
        let size = format!("{:011o}", data.len());
        self.header(flag, name, size.as_bytes(), b"");
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn link(&mut self, flag: u8, name: &[u8], target: &[u8]) -> &mut Self {
        self.header(flag, name, b"00000000000", target)
    }

    fn whole(&self) -> Vec<u8> {
        [&self.0[..], &[0; 1024]].concat()
    }

    fn store(&self) -> (tempfile::TempDir, TarStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = open(&directory, &self.whole()).unwrap();
        (directory, store)
    }
}

fn open(directory: &tempfile::TempDir, bytes: &[u8]) -> io::Result<TarStore> {
    let path = directory.path().join("a.tar");
    fs::write(&path, bytes).unwrap();
    TarStore::open(&path)
}

fn why(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let refused = open(&directory, bytes).err().expect("it is refused");
    refused.to_string()
}

fn read(store: &TarStore, path: &str) -> Vec<u8> {
    content(store, find(store, path).0)
}

fn find(store: &TarStore, path: &str) -> (ObjectId, Attributes) {
    let step = |(at, _), name: &str| store.lookup(&me(), at, name.as_bytes()).unwrap();
    let root = (store.root(), store.getattr(store.root()).unwrap());
    path.split('/').fold(root, step)
}

fn names(store: &TarStore, directory: ObjectId) -> Vec<String> {
    let entries = list(store, directory, 100, false).into_iter().skip(2);
    let name = |entry: DirEntry| String::from_utf8(entry.name).unwrap();
    entries.map(name).collect()
}

#[test]
fn suite_for_reading() {
    let data: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    let mut archive = Writer::default();
    archive
        .add(b'0', b"./file", &data)
        .link(b'1', b"hard", b"file")
        .link(b'2', b"link", b"file")
        .link(b'6', b"pipe", b"")
        .add(b'0', b"directory/empty", b"");
    let (_directory, store) = archive.store();
    suite::reading(&store);
    let all = access::MODIFY | access::EXTEND | access::DELETE;
    assert_eq!(store.access(&me(), store.root(), all).unwrap(), 0);
}

#[test]
fn the_systems_tar_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    let long = "n".repeat(70);
    fs::create_dir_all(tree.join(&long).join(&long)).unwrap();
    let data: Vec<u8> = (0..60_001u32).map(|at| (at % 241) as u8).collect();
    fs::write(tree.join(&long).join(&long).join("file"), &data).unwrap();
    for format in ["ustar", "gnu", "posix"] {
        let path = directory.path().join(format);
        let made = std::process::Command::new("tar")
            .args(["--format", format, "-C"])
            .arg(&tree)
            .arg("-cf")
            .arg(&path)
            .arg(".")
            .status();
        let Ok(made) = made else {
            eprintln!("left out: there is no tar");
            return;
        };
        assert!(made.success());
        let store = TarStore::open(&path).unwrap();
        assert!(read(&store, &format!("{long}/{long}/file")) == data);
    }
}

#[test]
fn names_that_are_long_and_records() {
    let long = "x".repeat(200);
    let mut archive = Writer::default();
    archive
        .add(b'L', b"././@LongLink", format!("d/{long}\0").as_bytes())
        .add(b'0', b"cut", b"gnu")
        .add(b'x', b"pax", b"14 path=p/pax\n23 mtime=1000.25000000\n")
        .add(b'0', b"cut", b"pax")
        .add(b'0', b"plain", b"plain");
    // Base 256.
    archive
        .header(
            b'0',
            b"large",
            &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
            b"",
        )
        .0
        .extend([7; 512]);
    let (_directory, store) = archive.store();
    assert_eq!(read(&store, &format!("d/{long}")), b"gnu");
    assert_eq!(read(&store, "p/pax"), b"pax");
    let mtime = find(&store, "p/pax").1.mtime;
    assert_eq!((mtime.seconds, mtime.nanoseconds), (1000, 250_000_000));
    assert_eq!(read(&store, "plain"), b"plain");
    assert_eq!(read(&store, "large"), [7; 3]);
}

#[test]
fn a_later_member_replaces_the_earlier() {
    let mut archive = Writer::default();
    archive
        .add(b'0', b"a", b"first")
        .link(b'1', b"kept", b"a")
        .add(b'0', b"a", b"second")
        .link(b'1', b"dangling", b"none")
        .add(b'0', b"a/below", b"")
        .add(b'0', b"d/f", b"")
        .add(b'0', b"d", b"");
    let (_directory, store) = archive.store();
    assert_eq!(read(&store, "a"), b"second");
    assert_eq!(read(&store, "kept"), b"first");
    assert_eq!(find(&store, "kept").1.links, 1);
    assert_eq!(names(&store, store.root()), ["a", "d", "kept"]);
    assert_eq!(names(&store, find(&store, "d").0), ["f"]);
}

#[test]
fn no_name_leads_out() {
    let mut archive = Writer::default();
    archive
        .add(b'0', b"/etc/absolute", b"inside")
        .add(b'0', b"../above", b"")
        .add(b'0', b"a/../../above", b"")
        .link(b'2', b"out", b"/etc")
        .add(b'0', b"out/through", b"")
        .add(b'x', b"pax", b"12 path=a\0b\n")
        .add(b'0', b"cut", b"")
        .add(b'S', b"sparse", b"map");
    let (_directory, store) = archive.store();
    assert_eq!(names(&store, store.root()), ["etc", "out"]);
    assert_eq!(read(&store, "etc/absolute"), b"inside");
}

#[test]
fn what_is_no_archive_is_refused_with_the_reason() {
    assert!(why(b"\x1f\x8b\x08 and so on").contains("gunzip "));
    assert!(why(b"\x28\xb5\x2f\xfd").contains("unzstd "));
    for other in [b"".as_slice(), b"text", &[b'x'; 2048]] {
        assert!(why(other).contains("nor a tar archive"));
    }
    let mut archive = Writer::default();
    archive.add(b'0', b"a", &[1; 2000]);
    let whole = archive.whole();
    assert!(why(&whole[..1000]).contains("offset 1000"));
    assert!(why(&archive.0).contains("offset 2560"));
    let mut sum = whole.clone();
    sum.splice(2560..2560, [b'x'; 512]);
    assert!(why(&sum).contains("offset 2560, a header's checksum"));
    let mut endless = Writer::default();
    endless.header(
        b'0',
        b"a",
        &[0x80, 0, 0, 0, 0x7f, 255, 255, 255, 255, 255, 255, 255],
        b"",
    );
    assert!(why(&endless.whole()).contains("within a member"));
    let mut long = Writer::default();
    long.header(b'L', b"l", b"77777777777", b"");
    assert!(why(&long.whole()).contains("4096 are the most"));
}

#[test]
fn what_is_held_is_bounded() {
    let mut archive = Writer::default();
    for at in 0..20 {
        archive.add(b'0', format!("{at}").as_bytes(), b"");
    }
    let told = |bounds| held(&archive, bounds);
    let (objects, names) = (21, 30);
    assert_eq!(told(Bounds { objects, names }), "");
    assert!(told(Bounds { objects: 20, names }).contains("more than 20 files"));
    assert!(told(Bounds { objects, names: 29 }).contains("more than 29 bytes"));
    // Another name of the same object takes memory, too.
    let mut links = Writer::default();
    links.add(b'0', b"f", b"");
    for at in 0..20 {
        links.link(b'1', format!("{at}").as_bytes(), b"f");
    }
    let names = 1000;
    assert_eq!(held(&links, Bounds { objects, names }), "");
    let less = held(&links, Bounds { objects: 20, names });
    assert!(less.contains("more than 20 names"), "{less}");
}

/// The reason why an archive is refused.
fn held(archive: &Writer, bounds: Bounds) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.tar");
    fs::write(&path, archive.whole()).unwrap();
    let file = File::open(&path).unwrap();
    let stamp = Stamp::of(&file).unwrap();
    let root = root_of(&file.metadata().unwrap(), &stamp);
    match Index::read(&Archive(&file, stamp.size), root, bounds) {
        Ok(_) => String::new(),
        Err(why) => why.to_string(),
    }
}

#[test]
fn objects_outlive_a_restart_but_not_the_archive() {
    let mut archive = Writer::default();
    archive.add(b'0', b"d/f", b"data");
    let (directory, store) = archive.store();
    let file = find(&store, "d/f").0;
    drop(store);
    let path = directory.path().join("a.tar");
    let again = TarStore::open(&path).unwrap();
    again.find(file).unwrap();
    archive.add(b'0', b"g", b"");
    let replaced = open(&directory, &archive.whole()).unwrap();
    refused(replaced.find(file), Status::Stale);
}

#[test]
fn an_archive_that_changes_is_stale() {
    let mut archive = Writer::default();
    archive.add(b'0', b"f", b"data");
    let (directory, store) = archive.store();
    let file = find(&store, "f").0;
    assert!(store.watch(file));
    assert_eq!(content(&store, file), b"data");
    assert!(store.wait_events(Duration::ZERO).is_empty());
    let longer = [archive.whole(), vec![0; 512]].concat();
    fs::write(directory.path().join("a.tar"), longer).unwrap();
    let told = store.wait_events(Duration::ZERO);
    assert_eq!(told, [OutsideEvent::Overflow]);
    assert!(store.wait_events(Duration::ZERO).is_empty());
    refused(store.read_at(file, 0, &mut [0; 4]), Status::Stale);
    assert!(!store.read_at_hand(file, 0, &mut [0; 4]));
    refused(store.getattr(file), Status::Stale);
    refused(store.lookup(&me(), store.root(), b"f"), Status::Stale);
}

#[test]
fn long_links_records_and_devices() {
    let target = "t/".repeat(80);
    let mut archive = Writer::default();
    archive
        .add(b'K', b"././@LongLink", format!("{target}\0").as_bytes())
        .link(b'2', b"gnu", b"cut")
        .add(b'x', b"x", format!("174 linkpath={target}\n").as_bytes())
        .link(b'2', b"pax", b"cut")
        .add(b'0', b"long/name", b"data")
        .add(b'x', b"x", b"22 linkpath=long/name\n")
        .link(b'1', b"hard", b"cut")
        .add(b'x', b"x", b"9 size=5\n15 uid=4000000\n9 gid=-7\n");
    // Its own header has the size 0.
    archive.header(b'0', b"owned", b"00000000000", b"");
    archive.0.extend(b"bytes");
    archive.0.resize(archive.0.len().next_multiple_of(512), 0);
    archive.link(b'3', b"device", b"");
    let start = archive.0.len() - 512;
    archive.0[start + 329..start + 336].copy_from_slice(b"0000010");
    archive.0[start + 337..start + 345].copy_from_slice(&[0x80, 0, 0, 0, 0, 3, 0, 1]);
    archive.sum_up();
    let (_directory, store) = archive.store();
    for name in ["gnu", "pax"] {
        let link = store.readlink(find(&store, name).0).unwrap();
        assert_eq!(link, target.as_bytes(), "{name}");
    }
    assert_eq!(find(&store, "hard").0, find(&store, "long/name").0);
    let (_, owned) = find(&store, "owned");
    assert_eq!((owned.uid, owned.gid), (4_000_000, 65534));
    assert_eq!(read(&store, "owned"), b"bytes");
    let (_, device) = find(&store, "device");
    assert_eq!(device.kind, FileType::Character);
    let (major, minor) = (8, 0x30001);
    assert_eq!(device.device, Device { major, minor });
}

#[test]
fn what_has_no_data_may_tell_a_size() {
    let mut archive = Writer::default();
    for flag in b'1'..=b'6' {
        archive.header(flag, b"d", b"00000010000", b"d");
    }
    archive.add(b'0', b"f", b"data");
    let (_directory, store) = archive.store();
    assert_eq!(read(&store, "f"), b"data");
}

#[test]
fn what_a_later_member_replaces_is_not_served_when_that_is_left_out() {
    let mut archive = Writer::default();
    archive
        .add(b'0', b"gnu", b"old")
        .add(b'S', b"gnu", b"new")
        .add(b'0', b"d/pax", b"old")
        .add(
            b'x',
            b"x",
            b"25 GNU.sparse.name=d/pax\n22 GNU.sparse.major=1\n",
        )
        .add(b'0', b"GNUSparseFile.0/pax", b"new")
        .link(b'1', b"hard", b"gnu");
    let (_directory, store) = archive.store();
    assert_eq!(names(&store, store.root()), ["d"]);
    assert_eq!(names(&store, find(&store, "d").0), [""; 0]);
}

#[test]
fn a_first_name_like_the_mark_of_a_compressed_file_is_a_name() {
    let mut archive = Writer::default();
    archive.add(b'0', b"BZh9", b"data");
    let (_directory, store) = archive.store();
    assert_eq!(read(&store, "BZh9"), b"data");
}

fn sample() -> Vec<u8> {
    let mut archive = Writer::default();
    archive
        .add(b'5', b"d/", b"")
        .add(b'0', b"d/a", &[1; 600])
        .link(b'1', b"h", b"d/a")
        .link(b'2', b"s", b"h")
        .add(b'g', b"g", b"9 gid=12\n")
        .add(b'x', b"x", b"10 path=p\n")
        .add(b'0', b"cut", b"")
        .add(b'L', b"l", b"d/long")
        .add(b'0', b"d/a", b"again");
    archive.whole()
}

proptest! {
    #[test]
    fn a_hostile_archive_does_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..12),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = sample();
        fuzz::index(&bytes);
        for (at, value, mends) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
            if mends {
                // The checksum is right, so that the code behind it is reached.
                let start = at / 512 * 512;
                let mut block = Writer(bytes[start..start + 512].to_vec());
                bytes[start..start + 512].copy_from_slice(&block.sum_up().0);
            }
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        fuzz::index(&bytes);
    }
}
