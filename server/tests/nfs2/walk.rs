//! A random walk beside a plain map of names and contents.

use std::collections::BTreeMap;

use odafs_common::wire::nfs2::{
    ChangeResult, DirectoryName, Procedure, ReadDirArgs, ReadDirResult, RenameArgs, SetAttributes,
    SetAttributesArgs, Status,
};
use proptest::prelude::*;

use crate::harness::{Server, at, mode};

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(usize, bool),
    Write(usize, u32, u8, u32),
    Cut(usize, u32),
    Remove(usize),
    Rename(usize, usize),
    Read(usize),
    List,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    prop_oneof![
        (name(), any::<bool>()).prop_map(|(name, cut)| Step::Create(name, cut)),
        (name(), 0..20_000_u32, any::<u8>(), 0..8193_u32)
            .prop_map(|(name, offset, byte, length)| Step::Write(name, offset, byte, length)),
        (name(), 0..30_000_u32).prop_map(|(name, size)| Step::Cut(name, size)),
        name().prop_map(Step::Remove),
        (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        name().prop_map(Step::Read),
        Just(Step::List),
    ]
}

type Model = BTreeMap<&'static str, Vec<u8>>;

fn take(server: &Server, model: &mut Model, step: Step) {
    let root = server.root();
    let absent = Err(Status::NoEnt);
    match step {
        Step::Create(name, cut) => {
            let name = NAMES[name];
            let attributes = SetAttributes {
                size: cut.then_some(0),
                ..mode(0o644)
            };
            let made = server.make(Procedure::Create, at(root, name), attributes);
            let content = model.entry(name).or_default();
            if cut {
                content.clear();
            }
            let size = made.expect("created").attributes.size;
            assert_eq!(size as usize, content.len());
        }
        Step::Write(name, offset, byte, length) => {
            let Some((file, content)) = found(server, model, NAMES[name]) else {
                return;
            };
            let data = vec![byte; length as usize];
            let written = server.write(file, offset, &data).expect("written");
            let end = (offset + length) as usize;
            if length > 0 {
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].fill(byte);
            }
            assert_eq!(written.size as usize, content.len());
        }
        Step::Cut(name, size) => {
            let Some((file, content)) = found(server, model, NAMES[name]) else {
                return;
            };
            let attributes = SetAttributes {
                size: Some(size),
                ..SetAttributes::default()
            };
            let arguments = SetAttributesArgs { file, attributes };
            let set: odafs_common::wire::nfs2::AttributesResult =
                server.nfs(Procedure::SetAttributes, &arguments);
            assert_eq!(set.expect("cut").size, size);
            content.resize(size as usize, 0);
        }
        Step::Remove(name) => {
            let removed: ChangeResult = server.nfs(Procedure::Remove, &at(root, NAMES[name]));
            match model.remove(NAMES[name]) {
                Some(_) => assert_eq!(removed, Ok(())),
                None => assert_eq!(removed, absent),
            }
        }
        Step::Rename(from, to) => {
            let (from, to) = (NAMES[from], NAMES[to]);
            let arguments = RenameArgs {
                from: at(root, from),
                to: at(root, to),
            };
            let moved: ChangeResult = server.nfs(Procedure::Rename, &arguments);
            match model.remove(from) {
                Some(content) => {
                    assert_eq!(moved, Ok(()));
                    model.insert(to, content);
                }
                None => assert_eq!(moved, absent),
            }
        }
        Step::Read(name) => {
            if let Some((file, content)) = found(server, model, NAMES[name]) {
                assert!(server.content(file) == *content);
            }
        }
        Step::List => {
            let arguments = ReadDirArgs {
                directory: root,
                cookie: 2,
                count: 8192,
            };
            let listed: ReadDirResult<'_> = server.nfs(Procedure::ReadDir, &arguments);
            let listed = listed.expect("listed");
            let mut names: Vec<_> = listed.entries.iter().map(|entry| entry.name).collect();
            names.sort();
            assert!(listed.eof);
            let expected = model.keys().map(|name| name.as_bytes());
            assert_eq!(names, Vec::from_iter(expected));
        }
    }
}

/// A file that the model has, or the refusal for one that it has not.
fn found<'m>(
    server: &Server,
    model: &'m mut Model,
    name: &'static str,
) -> Option<(
    odafs_common::wire::nfs2::FileHandle<'static>,
    &'m mut Vec<u8>,
)> {
    let place = DirectoryName {
        directory: server.root(),
        name: name.as_bytes(),
    };
    let result: odafs_common::wire::nfs2::ObjectResult<'static> =
        server.nfs(Procedure::Lookup, &place);
    match (result, model.get_mut(name)) {
        (Ok(found), Some(content)) => {
            assert_eq!(found.attributes.size as usize, content.len());
            Some((found.file, content))
        }
        (Err(Status::NoEnt), None) => None,
        (found, content) => panic!("{name}: {found:?}, in the model {}", content.is_some()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_walk_finds_what_a_map_holds(steps in proptest::collection::vec(step(), 1..60)) {
        let server = Server::new();
        let mut model = Model::new();
        for step in steps {
            take(&server, &mut model, step);
        }
        for name in 0..NAMES.len() {
            take(&server, &mut model, Step::Read(name));
        }
        take(&server, &mut model, Step::List);
    }
}
