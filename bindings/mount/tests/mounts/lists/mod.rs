//! Other users, whom the kernel judges by the access control lists that files have at the server.

use super::{World, skipped};
use odafs_mount::Cache;
use rustix::{
    fs::{XattrFlags, getxattr, setxattr},
    io::Errno,
};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = u32::MAX;
/// The user whom lists name.
const NAMED: u32 = 1234;
/// The group of the files.
const GROUP: u32 = 50;

/// Grants the owner everything, the user [`NAMED`], the owning group and all others these rights; with a mask of all that
/// the mode shows for the group.
fn list(named: u16, group: u16, other: u16) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, NOBODY),
        (2, named, NAMED),
        (4, group, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, other, NOBODY),
    ];
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Whether a user of a group can read a file.
fn reads(path: &Path, user: u32, group: u32) -> bool {
    let mut reads = Command::new("cat");
    let output = reads.arg(path).uid(user).gid(group).output().unwrap();
    output.status.success()
}

/// Makes the files. Returns false, and says so, if they can have no lists.
fn makes_files(world: &World) -> bool {
    fs::set_permissions(world.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let files = [
        ("denied", list(0, 0, 4)),
        ("granted", list(4, 0, 0)),
        ("closed/within", list(7, 7, 7)),
        ("closed", list(0, 5, 5)),
    ];
    fs::create_dir(world.files.join("closed")).unwrap();
    for (name, list) in files {
        let path = world.files.join(name);
        if name != "closed" {
            fs::write(&path, "content").unwrap();
        }
        chown(&path, Some(0), Some(GROUP)).unwrap();
        match setxattr(&path, ACCESS, &list, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {
                let place = path.display();
                skipped("acl", &format!("no access control lists in {place}"));
                return false;
            }
            set => set.unwrap(),
        }
    }
    fs::write(world.files.join("plain"), "content").unwrap();
    fs::set_permissions(world.files.join("plain"), fs::Permissions::from_mode(0o640)).unwrap();
    chown(world.files.join("plain"), Some(0), Some(GROUP)).unwrap();
    true
}

#[test]
fn lists_say_who_may_read() {
    let Some(world) = World::with_lists() else {
        return;
    };
    if !makes_files(&world) {
        return;
    }
    let at = |name: &str| world.here.join(name);
    for (name, user, group, may) in [
        ("denied", NAMED, NAMED, false),
        ("denied", 77, GROUP, false),
        ("denied", 77, 77, true),
        ("granted", NAMED, NAMED, true),
        ("granted", 77, GROUP, false),
        ("granted", 77, 77, false),
        ("closed/within", NAMED, NAMED, false),
        ("closed/within", 77, 77, true),
        ("plain", 77, GROUP, true),
        ("plain", NAMED, NAMED, false),
    ] {
        assert_eq!(
            reads(&at(name), user, group),
            may,
            "{name} by {user}:{group}"
        );
    }
}

#[test]
fn programs_read_the_lists_and_change_none() {
    let Some(world) = World::with_lists() else {
        return;
    };
    if !makes_files(&world) {
        return;
    }
    let of = |name: &str, which: &str| {
        let mut value = [0; 100];
        let length = getxattr(world.here.join(name), which, &mut value)?;
        Ok(value[..length].to_vec())
    };
    assert_eq!(of("denied", ACCESS), Ok(list(0, 0, 4)));
    assert_eq!(of("plain", ACCESS), Err(Errno::NODATA));
    assert_eq!(of("closed", DEFAULT), Err(Errno::NODATA));
    let inherited = list(5, 5, 5);
    let path = world.files.join("granted-later");
    fs::create_dir(&path).unwrap();
    setxattr(&path, DEFAULT, &inherited, XattrFlags::empty()).unwrap();
    assert_eq!(of("granted-later", DEFAULT), Ok(inherited.clone()));
    assert_eq!(of("denied", "user.a"), Err(Errno::OPNOTSUPP));
    let set = setxattr(
        world.here.join("denied"),
        ACCESS,
        &inherited,
        XattrFlags::empty(),
    );
    assert_eq!(set, Err(Errno::OPNOTSUPP));
}

#[test]
fn without_the_option_modes_are_all_that_counts() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    if !makes_files(&world) {
        return;
    }
    assert!(reads(&world.here.join("denied"), NAMED, NAMED));
    assert!(!reads(&world.here.join("granted"), NAMED, NAMED));
    let mut value = [0; 100];
    let asked = getxattr(world.here.join("denied"), ACCESS, &mut value);
    assert!(asked.is_err());
}
