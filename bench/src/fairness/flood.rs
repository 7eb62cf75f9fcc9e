//! Calls without end, of each procedure.

use odafs_common::wire::nfs3::{
    AccessArgs, CommitArgs, CreateArgs, CreateHow, FileHandle, LinkArgs, MakeDirectoryArgs,
    MakeNode, MakeNodeArgs, Payload, Procedure, ReadArgs, ReadDirArgs, ReadDirPlusArgs, RenameArgs,
    SetAttributesArgs, Stable, SymlinkArgs, WriteArgs,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::peer::{Arguments, FileHandleBytes, mode, place};

/// What a flood is of: every NFS procedure but NULL.
pub const PROCEDURES: [(&str, Procedure); 21] = [
    ("GETATTR", Procedure::GetAttributes),
    ("SETATTR", Procedure::SetAttributes),
    ("LOOKUP", Procedure::Lookup),
    ("ACCESS", Procedure::Access),
    ("READLINK", Procedure::ReadLink),
    ("READ", Procedure::Read),
    ("WRITE", Procedure::Write),
    ("CREATE", Procedure::Create),
    ("MKDIR", Procedure::MakeDirectory),
    ("SYMLINK", Procedure::Symlink),
    ("MKNOD", Procedure::MakeNode),
    ("REMOVE", Procedure::Remove),
    ("RMDIR", Procedure::RemoveDirectory),
    ("RENAME", Procedure::Rename),
    ("LINK", Procedure::Link),
    ("READDIR", Procedure::ReadDir),
    ("READDIRPLUS", Procedure::ReadDirPlus),
    ("FSSTAT", Procedure::FsStat),
    ("FSINFO", Procedure::FsInfo),
    ("PATHCONF", Procedure::PathConf),
    ("COMMIT", Procedure::Commit),
];

/// The most that one call moves, bytes.
pub const LONG: usize = 1 << 20;

/// What a flood works on.
pub struct Targets {
    /// A directory of its own.
    pub directory: FileHandleBytes,
    /// One with as many names as a reply of a mebibyte holds.
    pub crowd: FileHandleBytes,
    /// Files of [`LONG`] bytes.
    pub files: Vec<FileHandleBytes>,
    /// A symbolic link.
    pub link: FileHandleBytes,
    /// Data for WRITE.
    pub data: Vec<u8>,
}

impl Targets {
    /// The call with this number in a flood: those that make a name and those that take one away alternate.
    pub fn call(&self, of: Procedure, number: u64) -> (Procedure, Box<Arguments<'_>>) {
        let file = FileHandle(&self.files[number as usize % self.files.len()]);
        let (directory, crowd) = (FileHandle(&self.directory), FileHandle(&self.crowd));
        // Taken away when whatever made it has been served.
        let made = number / 2;
        let name = match number % 2 {
            0 => format!("n{made}"),
            _ => format!("n{}", made.saturating_sub(16)),
        };
        macro_rules! call {
            ($procedure:expr, $arguments:expr) => {{
                let arguments = $arguments;
                (
                    $procedure,
                    Box::new(move |w: &mut Writer<'_>| arguments.encode(w)),
                )
            }};
        }
        macro_rules! named {
            ($procedure:expr, |$place:ident| $arguments:expr) => {
                (
                    $procedure,
                    Box::new(move |w: &mut Writer<'_>| {
                        let $place = place(&self.directory, &name);
                        $arguments.encode(w);
                    }),
                )
            };
        }
        let takes = number % 2 == 1;
        match of {
            Procedure::RemoveDirectory | Procedure::MakeDirectory if takes => {
                named!(Procedure::RemoveDirectory, |place| place)
            }
            Procedure::RemoveDirectory | Procedure::MakeDirectory => {
                let attributes = mode(0o777);
                named!(Procedure::MakeDirectory, |place| MakeDirectoryArgs {
                    place,
                    attributes
                })
            }
            Procedure::Create
            | Procedure::Remove
            | Procedure::Symlink
            | Procedure::MakeNode
            | Procedure::Link
                if takes =>
            {
                named!(Procedure::Remove, |place| place)
            }
            Procedure::Create | Procedure::Remove => {
                let how = CreateHow::Unchecked(mode(0o666));
                named!(Procedure::Create, |place| CreateArgs { place, how })
            }
            Procedure::Symlink => named!(Procedure::Symlink, |place| SymlinkArgs {
                place,
                attributes: mode(0o777),
                target: Payload(b"somewhere"),
            }),
            Procedure::MakeNode => {
                let what = MakeNode::Fifo(mode(0o666));
                named!(Procedure::MakeNode, |place| MakeNodeArgs { place, what })
            }
            Procedure::Link => named!(Procedure::Link, |place| LinkArgs { file, place }),
            Procedure::Rename => {
                let (from, to) = match takes {
                    false => ("there", "back"),
                    true => ("back", "there"),
                };
                call!(
                    of,
                    RenameArgs {
                        from: place(&self.directory, from),
                        to: place(&self.directory, to),
                    }
                )
            }
            Procedure::SetAttributes => call!(
                of,
                SetAttributesArgs {
                    file,
                    attributes: mode(0o666),
                    guard: None,
                }
            ),
            Procedure::Lookup => call!(of, place(&self.directory, "absent or not")),
            Procedure::Access => call!(of, AccessArgs { file, access: 0x3f }),
            Procedure::ReadLink => call!(of, FileHandle(&self.link)),
            Procedure::Read => call!(
                of,
                ReadArgs {
                    file,
                    offset: 0,
                    count: LONG as u32,
                }
            ),
            Procedure::Write => call!(
                of,
                WriteArgs {
                    file,
                    offset: 0,
                    count: LONG as u32,
                    stable: if takes {
                        Stable::FileSync
                    } else {
                        Stable::Unstable
                    },
                    data: Payload(&self.data),
                }
            ),
            Procedure::ReadDir => call!(
                of,
                ReadDirArgs {
                    directory: crowd,
                    cookie: 0,
                    verifier: [0; 8],
                    count: LONG as u32,
                }
            ),
            Procedure::ReadDirPlus => call!(
                of,
                ReadDirPlusArgs {
                    directory: crowd,
                    cookie: 0,
                    verifier: [0; 8],
                    directory_count: LONG as u32,
                    max_count: LONG as u32,
                }
            ),
            Procedure::FsStat | Procedure::FsInfo | Procedure::PathConf => call!(of, directory),
            Procedure::Commit => call!(
                of,
                CommitArgs {
                    file,
                    offset: 0,
                    count: 0
                }
            ),
            Procedure::GetAttributes | Procedure::Null => call!(Procedure::GetAttributes, file),
        }
    }
}
