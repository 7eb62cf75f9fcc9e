//! For the fuzzer: checks what the index of an archive promises.

use std::io;

use super::Name;
use super::index::{Body, Bounds, Bytes, Index, ROOT};
use crate::store::{Attributes, Device, FileType, Time};

/// Reads bytes as an archive and checks what the index promises.
pub fn index(bytes: &[u8]) {
    struct Slice<'a>(&'a [u8]);
    impl Bytes for Slice<'_> {
        fn length(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_exact(&self, data: &mut [u8], offset: u64) -> io::Result<()> {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let found = self.0.get(start..).and_then(|rest| rest.get(..data.len()));
            data.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }
    let time = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    let root = Attributes {
        kind: FileType::Directory,
        mode: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: Device::default(),
        fsid: 0,
        fileid: ROOT,
        atime: time,
        mtime: time,
        ctime: time,
    };
    let bounds = Bounds {
        objects: 1000,
        names: 1 << 16,
    };
    let Ok(index) = Index::read(&Slice(bytes), root, bounds) else {
        return;
    };
    assert!(index.nodes.len() <= bounds.objects);
    let (mut links, mut names_bytes) = (vec![0; index.nodes.len()], 0);
    links[0] = 2;
    for (place, node) in index.nodes.iter().enumerate() {
        match &node.body {
            Body::File(data) => {
                let end = data.checked_add(node.attributes.size);
                assert!(end.is_some_and(|end| end <= bytes.len() as u64));
            }
            Body::Directory(names) if node.attributes.links > 0 => {
                for (name, child) in &names.sorted {
                    names_bytes += name.len();
                    assert!(matches!(Name::parse(name), Ok(Name::Proper(_))));
                    match &index.nodes[*child as usize].body {
                        Body::Directory(inner) => {
                            assert_eq!(inner.parent as usize, place);
                            links[*child as usize] += 2;
                            links[place] += 1;
                        }
                        _ => links[*child as usize] += 1,
                    }
                }
            }
            _ => {}
        }
    }
    assert!(names_bytes <= bounds.names);
    for (node, counted) in index.nodes.iter().zip(links) {
        assert_eq!(node.attributes.links, counted);
        let found = index.find(node.attributes.fileid).is_some();
        assert_eq!(found, counted > 0);
    }
}
