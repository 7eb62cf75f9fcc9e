use nfs3_types::nfs3 as theirs;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::wire::nfs3::*;
use crate::wire::testing::{
    both, bytes, device, file_handle, payload, post_attributes, round_trip, set_attributes, time,
    wcc,
};

fn place() -> impl Strategy<Value = DirectoryName<'static>> {
    (file_handle(), bytes(40)).prop_map(|(directory, name)| DirectoryName { directory, name })
}

fn failure() -> impl Strategy<Value = Status> {
    select(&Status::ALL[1..])
}

fn how() -> impl Strategy<Value = CreateHow> {
    prop_oneof![
        set_attributes().prop_map(CreateHow::Unchecked),
        set_attributes().prop_map(CreateHow::Guarded),
        any::<[u8; 8]>().prop_map(CreateHow::Exclusive),
    ]
}

fn node() -> impl Strategy<Value = MakeNode> {
    prop_oneof![
        (set_attributes(), device()).prop_map(|(a, d)| MakeNode::Character(a, d)),
        (set_attributes(), device()).prop_map(|(a, d)| MakeNode::Block(a, d)),
        set_attributes().prop_map(MakeNode::Socket),
        set_attributes().prop_map(MakeNode::Fifo),
        select(&[FileType::Regular, FileType::Directory, FileType::Symlink][..])
            .prop_map(MakeNode::Other),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry<'static>>> {
    let entry = (any::<[u64; 2]>(), bytes(20)).prop_map(|([fileid, cookie], name)| Entry {
        fileid,
        name,
        cookie,
    });
    vec(entry, 0..4)
}

fn entries_plus() -> impl Strategy<Value = Vec<EntryPlus<'static>>> {
    let rest = vec((post_attributes(), of(file_handle())), 3);
    (entries(), rest).prop_map(|(entries, rest)| {
        let plus = |(entry, (attributes, file))| EntryPlus {
            entry,
            attributes,
            file,
        };
        entries.into_iter().zip(rest).map(plus).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arguments_about_files(
        file in file_handle(),
        attributes in set_attributes(),
        guard in of(time()),
        words: [u32; 2],
        offset: u64,
        stable in select(Stable::ALL),
        data in payload(),
    ) {
        let [count, access] = words;
        both::<theirs::GETATTR3args, _>(file);
        both::<theirs::SETATTR3args, _>(SetAttributesArgs { file, attributes, guard });
        both::<theirs::ACCESS3args, _>(AccessArgs { file, access });
        both::<theirs::READ3args, _>(ReadArgs { file, offset, count });
        both::<theirs::WRITE3args, _>(WriteArgs { file, offset, count, stable, data });
        both::<theirs::COMMIT3args, _>(CommitArgs { file, offset, count });
    }

    #[test]
    fn arguments_about_directories(
        place in place(),
        other in place(),
        attributes in set_attributes(),
        how in how(),
        what in node(),
        target in payload(),
        cookie: u64,
        verifier: [u8; 8],
        counts: [u32; 2],
    ) {
        let directory = other.directory;
        let [count, max_count] = counts;
        both::<theirs::LOOKUP3args<'_>, _>(place);
        both::<theirs::CREATE3args, _>(CreateArgs { place, how });
        both::<theirs::MKDIR3args, _>(MakeDirectoryArgs { place, attributes });
        both::<theirs::SYMLINK3args, _>(SymlinkArgs { place, attributes, target });
        if let MakeNode::Other(_) = what {
            // The other codec forgets the type.
            round_trip(MakeNodeArgs { place, what });
        } else {
            both::<theirs::MKNOD3args, _>(MakeNodeArgs { place, what });
        }
        both::<theirs::RENAME3args, _>(RenameArgs { from: place, to: other });
        both::<theirs::LINK3args, _>(LinkArgs { file: directory, place });
        both::<theirs::READDIR3args, _>(ReadDirArgs { directory, cookie, verifier, count });
        both::<theirs::READDIRPLUS3args, _>(ReadDirPlusArgs { directory, cookie, verifier, directory_count: count, max_count });
    }

    #[test]
    fn results_about_files(
        file in file_handle(),
        attributes in post_attributes(),
        directory in post_attributes(),
        data in payload(),
        words: [u32; 2],
        eof: bool,
        wcc in wcc(),
        committed in select(Stable::ALL),
        verifier: [u8; 8],
        status in failure(),
    ) {
        let [count, access] = words;
        both::<theirs::GETATTR3res, _>(GetAttributesResult::Err(Failed { status, rest: () }));
        if let Some(attributes) = attributes {
            both::<theirs::GETATTR3res, _>(GetAttributesResult::Ok(attributes));
        }
        both::<theirs::LOOKUP3res, _>(LookupResult::Ok(LookupOk { file, attributes, directory }));
        both::<theirs::ACCESS3res, _>(AccessResult::Ok(AccessOk { attributes, access }));
        both::<theirs::READLINK3res, _>(ReadLinkResult::Ok(ReadLinkOk { attributes, target: data }));
        both::<theirs::READ3res, _>(ReadResult::Ok(ReadOk { attributes, count, eof, data }));
        both::<theirs::READ3res, _>(ReadResult::Err(Failed { status, rest: attributes }));
        both::<theirs::WRITE3res, _>(WriteResult::Ok(WriteOk { wcc, count, committed, verifier }));
        both::<theirs::WRITE3res, _>(WriteResult::Err(Failed { status, rest: wcc }));
        both::<theirs::COMMIT3res, _>(CommitResult::Ok(CommitOk { wcc, verifier }));
    }

    #[test]
    fn results_about_directories(
        file in of(file_handle()),
        attributes in post_attributes(),
        directory in wcc(),
        other in wcc(),
        status in failure(),
        entries in entries(),
        plus in entries_plus(),
        verifier: [u8; 8],
        eof: bool,
    ) {
        let renamed = RenameData { from: directory, to: other };
        let linked = LinkData { attributes, directory };
        both::<theirs::CREATE3res, _>(CreateResult::Ok(CreateOk { file, attributes, directory }));
        both::<theirs::RENAME3res, _>(RenameResult::Ok(renamed));
        both::<theirs::RENAME3res, _>(RenameResult::Err(Failed { status, rest: renamed }));
        both::<theirs::LINK3res, _>(LinkResult::Ok(linked));
        both::<theirs::LINK3res, _>(LinkResult::Err(Failed { status, rest: linked }));
        both::<theirs::READDIR3res, _>(ReadDirResult::Ok(ReadDirOk { attributes, verifier, entries, eof }));
        both::<theirs::READDIRPLUS3res, _>(ReadDirPlusResult::Ok(ReadDirPlusOk { attributes, verifier, entries: plus, eof }));
    }

    #[test]
    fn results_about_the_file_system(
        attributes in post_attributes(),
        sizes: [u64; 6],
        counts: [u32; 8],
        flags: [bool; 4],
        time_delta in time(),
    ) {
        both::<theirs::FSSTAT3res, _>(FsStatResult::Ok(FsStatOk {
            attributes,
            total_bytes: sizes[0],
            free_bytes: sizes[1],
            available_bytes: sizes[2],
            total_files: sizes[3],
            free_files: sizes[4],
            available_files: sizes[5],
            invariant_seconds: counts[0],
        }));
        both::<theirs::FSINFO3res, _>(FsInfoResult::Ok(FsInfoOk {
            attributes,
            read_max: counts[0],
            read_preferred: counts[1],
            read_multiple: counts[2],
            write_max: counts[3],
            write_preferred: counts[4],
            write_multiple: counts[5],
            directory_preferred: counts[6],
            file_max: sizes[0],
            time_delta,
            properties: counts[7],
        }));
        both::<theirs::PATHCONF3res, _>(PathConfResult::Ok(PathConfOk {
            attributes,
            link_max: counts[0],
            name_max: counts[1],
            no_truncate: flags[0],
            chown_restricted: flags[1],
            case_insensitive: flags[2],
            case_preserving: flags[3],
        }));
    }
}
