//! Symbolic links that lead out of an export and back into it: an absolute target that names the export's own directory, or
//! `..` above the export's root. The names are compared with where the host has that directory. Nothing outside of the export
//! is looked at, so a status tells nothing of other files of the host. A client that can make links may find out the path of the
//! export's own directory by guessing.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::components;
use crate::vfs::export::Place;

/// A directory of the host, on the way to that of the export: its names, from the host's root.
pub(super) struct Outside<'a> {
    place: &'a Place,
    names: Vec<Vec<u8>>,
}

/// Where a name leads.
pub(super) enum Next<'a> {
    /// To the export's root.
    Root,
    /// To a directory that lies on the way.
    OnTheWay(Outside<'a>),
}

impl<'a> Outside<'a> {
    /// The host's root.
    pub fn root(place: &'a Place) -> Option<Next<'a>> {
        Self::at(place, Vec::new())
    }

    /// The directory above the export's.
    pub fn above(place: &'a Place) -> Option<Next<'a>> {
        let mut names = names(&place.real);
        names.pop();
        Self::at(place, names)
    }

    /// Goes on by a name. `None` if that does not lead to the export.
    pub fn step(self, name: &[u8]) -> Option<Next<'a>> {
        let Self { place, mut names } = self;
        match name {
            // What only the named path has may be a symbolic link, and then this does not lead back.
            b".." if is_begun(&names, &place.real) => drop(names.pop()),
            b".." => return None,
            _ => names.push(name.to_vec()),
        }
        Self::at(place, names)
    }

    fn at(place: &'a Place, names: Vec<Vec<u8>>) -> Option<Next<'a>> {
        let paths = [&place.named, &place.real];
        if paths.iter().any(|path| self::names(path) == names) {
            return Some(Next::Root);
        }
        let leads = paths.iter().any(|path| is_begun(&names, path));
        leads.then_some(Next::OnTheWay(Self { place, names }))
    }
}

fn names(path: &Path) -> Vec<Vec<u8>> {
    let names = components(path.as_os_str().as_bytes());
    names.map(<[u8]>::to_vec).collect()
}

/// Whether a path begins with these names.
fn is_begun(begun: &[Vec<u8>], path: &Path) -> bool {
    names(path).starts_with(begun)
}
