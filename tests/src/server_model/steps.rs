//! One call each, and what must be true of its reply.

use super::*;

impl World {
    pub(super) fn create(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let name = choices.one_of(&NAMES);
        let how = match choices.byte() % 3 {
            0 => CreateHow::Unchecked(choices.attributes()),
            1 => CreateHow::Guarded(choices.attributes()),
            _ => CreateHow::Exclusive([choices.byte(); 8]),
        };
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name,
        };
        let results = self.call(uid, Procedure::Create, &CreateArgs { place, how });
        let Ok(created) = CreateResult::from_bytes(&results).expect("a result") else {
            return;
        };
        let (Some(file), Some(attributes)) = (created.file, created.attributes) else {
            return;
        };
        self.learn(file.0);
        let content = self.contents.entry(file.0.to_vec()).or_default();
        if let CreateHow::Unchecked(SetAttributes {
            size: Some(size), ..
        })
        | CreateHow::Guarded(SetAttributes {
            size: Some(size), ..
        }) = how
        {
            content.resize(size as usize, 0);
        }
        assert_eq!(content.len() as u64, attributes.size);
    }

    pub(super) fn made(&mut self, results: &[u8]) {
        if let Ok(made) = CreateResult::from_bytes(results).expect("a result")
            && let Some(file) = made.file
        {
            self.learn(file.0);
        }
    }

    pub(super) fn make_directory(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let attributes = choices.attributes();
        let args = MakeDirectoryArgs { place, attributes };
        let results = self.call(uid, Procedure::MakeDirectory, &args);
        self.made(&results);
    }

    pub(super) fn symlink(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let target = Payload(choices.one_of(&NAMES));
        let args = SymlinkArgs {
            place,
            attributes: choices.attributes(),
            target,
        };
        let results = self.call(uid, Procedure::Symlink, &args);
        if let Ok(CreateOk {
            file: Some(file), ..
        }) = CreateResult::from_bytes(&results).expect("a result")
        {
            let results = self.call(0, Procedure::ReadLink, &file);
            let read = ReadLinkResult::from_bytes(&results)
                .expect("a result")
                .expect("a link");
            assert_eq!(read.target, target);
        }
        self.made(&results);
    }

    pub(super) fn make_node(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let attributes = choices.attributes();
        let what = match choices.byte() % 4 {
            0 => MakeNode::Fifo(attributes),
            1 => MakeNode::Socket(attributes),
            2 => MakeNode::Character(attributes, Device { major: 1, minor: 3 }),
            _ => MakeNode::Other(FileType::Regular),
        };
        let results = self.call(uid, Procedure::MakeNode, &MakeNodeArgs { place, what });
        self.made(&results);
    }

    pub(super) fn lookup(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let results = self.call(uid, Procedure::Lookup, &place);
        if let Ok(found) = LookupResult::from_bytes(&results).expect("a result") {
            self.learn(found.file.0);
            self.check_size(found.file.0, found.attributes);
        }
    }

    pub(super) fn write(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let offset = choices.offset();
        self.written = self.written.wrapping_add(1);
        let data: Vec<u8> = (0..choices.small() % 10_000)
            .map(|i| (i / 3) as u8 ^ self.written)
            .collect();
        let stable = choices.one_of(Stable::ALL);
        let count = data.len() as u32;
        let args = WriteArgs {
            file: FileHandle(&handle),
            offset,
            count,
            stable,
            data: Payload(&data),
        };
        let results = self.call(uid, Procedure::Write, &args);
        let Ok(written) = WriteResult::from_bytes(&results).expect("a result") else {
            return;
        };
        assert!(written.count <= count && written.committed >= stable);
        let content = self
            .contents
            .get_mut(&handle)
            .expect("only files are written");
        if written.count > 0 {
            let (start, count) = (offset as usize, written.count as usize);
            content.resize(content.len().max(start + count), 0);
            content[start..start + count].copy_from_slice(&data[..count]);
        }
        self.check_size(&handle, written.wcc.after);
    }

    pub(super) fn read(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let (offset, count) = (choices.offset(), choices.small());
        self.read_at(uid, &handle, offset, count);
    }

    /// Bytes read, if it could be.
    pub(super) fn read_at(
        &mut self,
        uid: u32,
        handle: &[u8],
        offset: u64,
        count: u32,
    ) -> Option<u32> {
        let args = ReadArgs {
            file: FileHandle(handle),
            offset,
            count,
        };
        let results = self.call(uid, Procedure::Read, &args);
        let read = ReadResult::from_bytes(&results).expect("a result").ok()?;
        let content = &self.contents[handle];
        let rest = content
            .get(usize::try_from(offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        assert_eq!(read.count as usize, read.data.0.len());
        assert!(read.count <= count);
        assert!(
            rest.starts_with(read.data.0),
            "other bytes than were written"
        );
        assert_eq!(read.eof, read.count as usize == rest.len());
        assert!(
            read.count > 0 || count == 0 || read.eof,
            "a read that gets nowhere"
        );
        self.check_size(handle, read.attributes);
        Some(read.count)
    }

    pub(super) fn check_size(&self, handle: &[u8], attributes: Option<Attributes>) {
        if let (Some(content), Some(attributes)) = (self.contents.get(handle), attributes) {
            assert_eq!(content.len() as u64, attributes.size);
        }
    }

    pub(super) fn set_attributes(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let attributes = choices.attributes();
        let guard = (choices.byte() == 0).then_some(Time {
            seconds: 1,
            nanoseconds: 1,
        });
        let args = SetAttributesArgs {
            file: FileHandle(&handle),
            attributes,
            guard,
        };
        let results = self.call(uid, Procedure::SetAttributes, &args);
        if let Ok(wcc) = SetAttributesResult::from_bytes(&results).expect("a result") {
            if let (Some(size), Some(content)) = (attributes.size, self.contents.get_mut(&handle)) {
                content.resize(size as usize, 0);
            }
            self.check_size(&handle, wcc.after);
        } else {
            // What failed half way may have been done half way.
            self.relearn(&handle);
        }
    }

    /// Takes what the store holds for right.
    pub(super) fn relearn(&mut self, handle: &[u8]) {
        let Some(content) = self.contents.get_mut(handle) else {
            return;
        };
        let Ok(object) = self.export.resolve(handle, Effort::MayBlock) else {
            return;
        };
        let Ok(attributes) = self.store.getattr(object) else {
            return;
        };
        content.resize(attributes.size as usize, 0);
        let read = self.store.read_at(object, 0, content).expect("a file");
        assert_eq!(read, content.len());
    }

    pub(super) fn remove(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.directory(choices);
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let procedure = choices.one_of(&[Procedure::Remove, Procedure::RemoveDirectory]);
        let results = self.call(uid, procedure, &place);
        let _ = RemoveResult::from_bytes(&results).expect("a result");
    }

    pub(super) fn rename(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let (from, to) = (self.directory(choices), self.directory(choices));
        let from = DirectoryName {
            directory: FileHandle(&from),
            name: choices.one_of(&NAMES),
        };
        let to = DirectoryName {
            directory: FileHandle(&to),
            name: choices.one_of(&NAMES),
        };
        let results = self.call(uid, Procedure::Rename, &RenameArgs { from, to });
        let _ = RenameResult::from_bytes(&results).expect("a result");
    }

    pub(super) fn link(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let (file, directory) = (self.handle(choices), self.directory(choices));
        let place = DirectoryName {
            directory: FileHandle(&directory),
            name: choices.one_of(&NAMES),
        };
        let results = self.call(
            uid,
            Procedure::Link,
            &LinkArgs {
                file: FileHandle(&file),
                place,
            },
        );
        let _ = LinkResult::from_bytes(&results).expect("a result");
    }

    pub(super) fn list(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let (mut cookie, count) = (u64::from(choices.byte() / 64), choices.small() % 600);
        let (mut verifier, directory) = ([0; 8], FileHandle(&handle));
        for _ in 0..8 {
            let args = ReadDirArgs {
                directory,
                cookie,
                verifier,
                count,
            };
            let results = self.call(uid, Procedure::ReadDir, &args);
            let Ok(list) = ReadDirResult::from_bytes(&results).expect("a result") else {
                return;
            };
            assert!(results.len() as u32 - 4 <= count);
            let Some(last) = list.entries.last() else {
                return assert!(list.eof);
            };
            (cookie, verifier) = (last.cookie, list.verifier);
        }
    }

    pub(super) fn list_plus(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = ReadDirPlusArgs {
            directory: FileHandle(&handle),
            cookie: u64::from(choices.byte() / 64),
            verifier: [0; 8],
            directory_count: choices.small(),
            max_count: choices.small(),
        };
        let results = self.call(uid, Procedure::ReadDirPlus, &args);
        let Ok(list) = ReadDirPlusResult::from_bytes(&results).expect("a result") else {
            return;
        };
        assert!(results.len() as u32 - 4 <= args.max_count);
        for entry in &list.entries {
            if let Some(file) = entry.file {
                self.learn(file.0);
                self.check_size(file.0, entry.attributes);
            }
        }
    }

    /// Calls that only ask.
    pub(super) fn ask(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let file = FileHandle(&handle);
        let access = choices.byte().into();
        let attributes =
            GetAttributesResult::from_bytes(&self.call(uid, Procedure::GetAttributes, &file));
        self.check_size(&handle, attributes.expect("a result").ok());
        let results = self.call(uid, Procedure::Access, &AccessArgs { file, access });
        if let Ok(granted) = AccessResult::from_bytes(&results).expect("a result") {
            assert_eq!(granted.access & !access, 0);
        }
        let _ =
            FsStatResult::from_bytes(&self.call(uid, Procedure::FsStat, &file)).expect("a result");
        let _ =
            FsInfoResult::from_bytes(&self.call(uid, Procedure::FsInfo, &file)).expect("a result");
        let _ = PathConfResult::from_bytes(&self.call(uid, Procedure::PathConf, &file))
            .expect("a result");
        let _ = ReadLinkResult::from_bytes(&self.call(uid, Procedure::ReadLink, &file))
            .expect("a result");
    }

    pub(super) fn commit(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = CommitArgs {
            file: FileHandle(&handle),
            offset: choices.offset(),
            count: choices.small(),
        };
        let results = self.call(uid, Procedure::Commit, &args);
        if let Ok(done) = CommitResult::from_bytes(&results).expect("a result") {
            self.check_size(&handle, done.wcc.after);
        }
    }

    /// A change behind the server's back, of which its watch tells.
    pub(super) fn outside(&mut self, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let Ok(object) = self.export.resolve(&handle, Effort::MayBlock) else {
            return;
        };
        let data = [choices.byte(); 5000];
        let (offset, mode) = (choices.offset() % STORE_BYTES, choices.small() & 0o777);
        let change = match choices.byte() % 4 {
            0 | 1 => OutsideChange::Write {
                offset,
                data: &data,
            },
            2 => OutsideChange::Resize(offset),
            _ => OutsideChange::Mode(mode),
        };
        if self.contents.contains_key(&handle) {
            let _ = self.store.outside_change(object, change);
            observe(&self.export, Duration::ZERO);
            self.relearn(&handle);
        }
    }

    /// A call that asks, with a byte changed: any answer but silence will do.
    pub(super) fn mangled(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = ReadArgs {
            file: FileHandle(&handle),
            offset: choices.offset(),
            count: 100,
        };
        let procedure = choices.one_of(&[
            Procedure::Read,
            Procedure::Access,
            Procedure::ReadDir,
            Procedure::Lookup,
        ]);
        let mut message = self.message(uid, procedure, &args);
        let args_at = message.len() - args.to_bytes().len();
        let at = args_at + usize::from(choices.byte()) % (message.len() - args_at);
        message[at] ^= choices.byte();
        message.truncate(message.len() - usize::from(choices.byte() % 5));
        let reply = self.serve(&message);
        let reply = parse_reply(&reply).expect("a reply");
        assert!(matches!(
            reply.body,
            Ok(_) | Err(Rejection::GarbageArguments)
        ));
    }

    /// Any arguments to anybody; they hold no handle, so nothing comes of them.
    pub(super) fn raw(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let program = choices.one_of(&[PROGRAM, mount3::PROGRAM, portmap::PROGRAM, 7]);
        let version = choices.one_of(&[2, 3, 4]);
        let procedure = u32::from(choices.byte() % 24);
        let args: Vec<u8> = (0..choices.byte() % 64).map(|_| choices.byte()).collect();
        let message = self.message_to(uid, [program, version, procedure], &args);
        let reply = self.serve(&message);
        assert_eq!(parse_reply(&reply).expect("a reply").xid, self.xid);
    }

    /// A handle that the server did not make.
    pub(super) fn forged(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let mut handle = self.handle(choices);
        let at = usize::from(choices.byte()) % handle.len();
        handle[at] ^= choices.byte() | 1;
        let attributes = self.call(uid, Procedure::GetAttributes, &FileHandle(&handle));
        let refused = GetAttributesResult::from_bytes(&attributes).expect("a result");
        assert!(matches!(
            refused.expect_err("a forged handle").status,
            Status::BadHandle | Status::Stale
        ));
    }
}
