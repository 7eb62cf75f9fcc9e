//! Fields of one type that stand beside each other: the other codec must give them the same names.

use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::Unpack;

use super::golden::{ATTRIBUTES, FILE};
use crate::wire::nfs3::*;
use crate::wire::xdr::Encode;

fn read<Theirs: Unpack>(ours: impl Encode) -> Theirs {
    Theirs::unpack(&mut ours.to_bytes().as_slice())
        .expect("what the RFC describes")
        .0
}

#[test]
fn attributes() {
    let theirs: theirs::fattr3 = read(ATTRIBUTES);
    let time = |time: theirs::nfstime3| Time {
        seconds: time.seconds,
        nanoseconds: time.nseconds,
    };
    assert_eq!(theirs.type_, theirs::ftype3::NF3REG);
    assert_eq!(
        (theirs.mode, theirs.nlink),
        (ATTRIBUTES.mode, ATTRIBUTES.links)
    );
    assert_eq!((theirs.uid, theirs.gid), (ATTRIBUTES.uid, ATTRIBUTES.gid));
    assert_eq!(
        (theirs.size, theirs.used),
        (ATTRIBUTES.size, ATTRIBUTES.used)
    );
    assert_eq!((theirs.rdev.specdata1, theirs.rdev.specdata2), (8, 1));
    assert_eq!(
        (theirs.fsid, theirs.fileid),
        (ATTRIBUTES.fsid, ATTRIBUTES.fileid)
    );
    assert_eq!(time(theirs.atime), ATTRIBUTES.atime);
    assert_eq!(time(theirs.mtime), ATTRIBUTES.mtime);
    assert_eq!(time(theirs.ctime), ATTRIBUTES.ctime);
}

#[test]
fn directory_counts() {
    let theirs: theirs::READDIRPLUS3args = read(ReadDirPlusArgs {
        directory: FILE,
        cookie: 1,
        verifier: [2; 8],
        directory_count: 3,
        max_count: 4,
    });
    assert_eq!((theirs.cookie, theirs.dircount, theirs.maxcount), (1, 3, 4));
}

#[test]
fn the_file_system() {
    let theirs: theirs::FSSTAT3resok = read(FsStatOk {
        attributes: None,
        total_bytes: 1,
        free_bytes: 2,
        available_bytes: 3,
        total_files: 4,
        free_files: 5,
        available_files: 6,
        invariant_seconds: 7,
    });
    assert_eq!((theirs.tbytes, theirs.fbytes, theirs.abytes), (1, 2, 3));
    assert_eq!(
        (theirs.tfiles, theirs.ffiles, theirs.afiles, theirs.invarsec),
        (4, 5, 6, 7)
    );

    let theirs: theirs::FSINFO3resok = read(FsInfoOk {
        attributes: None,
        read_max: 1,
        read_preferred: 2,
        read_multiple: 3,
        write_max: 4,
        write_preferred: 5,
        write_multiple: 6,
        directory_preferred: 7,
        file_max: 8,
        time_delta: Time::default(),
        properties: 9,
    });
    assert_eq!((theirs.rtmax, theirs.rtpref, theirs.rtmult), (1, 2, 3));
    assert_eq!((theirs.wtmax, theirs.wtpref, theirs.wtmult), (4, 5, 6));
    assert_eq!(
        (theirs.dtpref, theirs.maxfilesize, theirs.properties),
        (7, 8, 9)
    );
    assert_eq!(properties::LINK, theirs::FSF3_LINK);
    assert_eq!(properties::SYMLINK, theirs::FSF3_SYMLINK);
    assert_eq!(properties::HOMOGENEOUS, theirs::FSF3_HOMOGENEOUS);
    assert_eq!(properties::CAN_SET_TIME, theirs::FSF3_CANSETTIME);
}

#[test]
fn what_a_path_can_be() {
    for at in 0..4 {
        let flag = |i| i == at;
        let theirs: theirs::PATHCONF3resok = read(PathConfOk {
            attributes: None,
            link_max: 1,
            name_max: 2,
            no_truncate: flag(0),
            chown_restricted: flag(1),
            case_insensitive: flag(2),
            case_preserving: flag(3),
        });
        assert_eq!((theirs.linkmax, theirs.name_max), (1, 2));
        assert_eq!(
            (theirs.no_trunc, theirs.chown_restricted),
            (flag(0), flag(1))
        );
        assert_eq!(
            (theirs.case_insensitive, theirs.case_preserving),
            (flag(2), flag(3))
        );
    }
}

#[test]
fn rights() {
    assert_eq!(access::READ, theirs::ACCESS3_READ);
    assert_eq!(access::LOOKUP, theirs::ACCESS3_LOOKUP);
    assert_eq!(access::MODIFY, theirs::ACCESS3_MODIFY);
    assert_eq!(access::EXTEND, theirs::ACCESS3_EXTEND);
    assert_eq!(access::DELETE, theirs::ACCESS3_DELETE);
    assert_eq!(access::EXECUTE, theirs::ACCESS3_EXECUTE);
}
