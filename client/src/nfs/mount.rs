//! Finding the export that holds a path, and its root (MOUNT version 3, RFC 1813 appendix I).

use crate::{
    calls::{Calls, Trusting},
    error::{CallError, ConnectError},
    handle::FileHandle,
    link::Link,
    nfs::procedure::{Asks, Number, Procedure},
    options::Options,
    url::{Host, Url},
};
use odafs_common::wire::{
    mount3::{self, DirPath, Exports, MountResult, Procedure as P, Status},
    portmap::{self, Mapping},
    xdr::Decode as _,
};

const fn procedure(name: &'static str, which: P) -> Procedure {
    Procedure {
        name,
        number: Number::Mount(which),
        idempotent: true,
        asks: Asks::NOTHING,
    }
}

const MNT: Procedure = procedure("MNT", P::Mount);
const EXPORT: Procedure = procedure("EXPORT", P::Export);
const GETPORT: Procedure = Procedure {
    name: "GETPORT",
    number: Number::PortMap(portmap::Procedure::GetPort),
    idempotent: true,
    asks: Asks::NOTHING,
};
const PORTMAPPER: u16 = 111;

/// A mounted export.
#[derive(Debug)]
pub struct Mounted {
    /// The name of the export, under which sessions are opened.
    pub export: Vec<u8>,
    /// The handle of its root.
    pub root: FileHandle,
}

/// Mounts the export that contains the URL's path, the one with the longest name if there are several. If MOUNT is not on
/// the port of the files, it is called over TCP: on the port that the URL names, or on the one that the server's port
/// mapper knows.
pub fn mount(calls: &Calls, url: &Url, options: &Options) -> Result<Mounted, ConnectError> {
    let path = &url.path;
    let exports = match url.mount_port {
        Some(port) => {
            let calls = elsewhere(url, port, "the URL's mountport", options)?;
            return mount_at(&calls, path);
        }
        None => list(calls),
    };
    match exports {
        Ok(exports) => mount_one_of(calls, path, &exports),
        // The server's MOUNT has another port, which the portmapper knows (RFC 1833 section 3).
        Err(CallError::Unavailable { .. }) => {
            let mapper = elsewhere(
                url,
                PORTMAPPER,
                "its port mapper (with ?mountport=N in the URL, none is needed)",
                options,
            )?;
            let wanted = Mapping {
                program: mount3::PROGRAM,
                version: mount3::VERSION,
                protocol: portmap::TCP,
                port: 0,
            };
            let port = mapper.call(&GETPORT, &wanted, &Trusting, |r| r.u32())?;
            let port = u16::try_from(port).ok().filter(|port| *port > 0);
            let port = port.ok_or(CallError::Unavailable {
                call: MNT.name,
                what: "its port mapper knows no port for MOUNT; name it with ?mountport=N in the URL",
            })?;
            let calls = elsewhere(url, port, "the port of MOUNT by its port mapper", options)?;
            mount_at(&calls, path)
        }
        Err(error) => Err(error.into()),
    }
}

/// Connects to another port of the server. `what` describes the port in the error if nobody listens there.
fn elsewhere(url: &Url, port: u16, what: &str, options: &Options) -> Result<Calls, ConnectError> {
    let Some(host) = url.server.host() else {
        return Err(CallError::Unavailable {
            call: MNT.name,
            what: "no MOUNT program",
        }
        .into());
    };
    let link = Link::NfsTcp(Host {
        name: host.name.clone(),
        port,
    });
    let calls = Calls::new(
        link,
        1,
        &options.credential,
        options.deadline.into(),
        options.wait,
    );
    match calls.reach() {
        Ok(_) => Ok(calls),
        Err(ConnectError::Unreachable { server, source }) => Err(ConnectError::Unreachable {
            server: format!("{server}, {what}"),
            source,
        }),
        Err(error) => Err(error),
    }
}

fn mount_at(calls: &Calls, path: &[u8]) -> Result<Mounted, ConnectError> {
    let exports = list(calls).map_err(|error| match error {
        CallError::Silent { call, server, .. } => CallError::Silent {
            call,
            server,
            remedy: "it may not be the port of MOUNT: check ?mountport=N in the URL, or the port mapper",
        },
        error => error,
    })?;
    mount_one_of(calls, path, &exports)
}

fn list(calls: &Calls) -> Result<Vec<Vec<u8>>, CallError> {
    calls.call(&EXPORT, &(), &Trusting, |r| {
        let exports = Exports::decode(r)?;
        Ok(exports
            .0
            .iter()
            .map(|export| export.directory.0.to_vec())
            .collect())
    })
}

fn mount_one_of(calls: &Calls, path: &[u8], exports: &[Vec<u8>]) -> Result<Mounted, ConnectError> {
    let refused = |why: String| ConnectError::NoExport {
        server: calls.link().address(),
        path: String::from_utf8_lossy(path).into_owned(),
        exports: why,
    };
    let Some(export) = longest(path, exports) else {
        let names: Vec<_> = exports
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        return Err(refused(if names.is_empty() {
            "nothing".into()
        } else {
            names.join(", ")
        }));
    };
    let mounted = calls.call(&MNT, &DirPath(export), &Trusting, |r| {
        Ok(MountResult::decode(r)?.map(|mounted| FileHandle::from(mounted.file)))
    })?;
    match mounted {
        Ok(root) => Ok(Mounted {
            export: export.to_vec(),
            root,
        }),
        Err(Status::Access) => Err(CallError::Refused {
            call: MNT.name,
            reason: "it does not admit this address, or it requires a source port below 1024"
                .into(),
        }
        .into()),
        Err(status) => {
            let export = String::from_utf8_lossy(export);
            Err(refused(format!("{export}, but MNT says {status:?}")))
        }
    }
}

/// The longest export whose name is the path or a directory above it.
fn longest<'a>(path: &[u8], exports: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let holds = |export: &&Vec<u8>| within(path, export).is_some();
    exports
        .iter()
        .filter(holds)
        .max_by_key(|export| export.len())
        .map(Vec::as_slice)
}

/// The names of `path` below `export`, if that contains it. Names are compared one by one.
pub fn within<'a>(path: &'a [u8], export: &[u8]) -> Option<Vec<&'a [u8]>> {
    let mut rest = names(path);
    for name in names(export) {
        if rest.next() != Some(name) {
            return None;
        }
    }
    Some(rest.collect())
}

/// The names of a path. Empty ones and `.` are left out.
pub fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_export_that_holds_the_path() {
        let exports: Vec<Vec<u8>> = [&b"/"[..], b"/data", b"/data/hot"]
            .map(<[u8]>::to_vec)
            .into();
        assert_eq!(longest(b"/data/hot/x", &exports), Some(&b"/data/hot"[..]));
        assert_eq!(longest(b"/data/hotter", &exports), Some(&b"/data"[..]));
        assert_eq!(longest(b"/database", &exports), Some(&b"/"[..]));
        assert_eq!(
            longest(b"//data//./hot/", &exports),
            Some(&b"/data/hot"[..])
        );
        assert_eq!(longest(b"/x", &exports[1..]), None);
        assert_eq!(
            within(b"/data/hot/a//b", b"/data"),
            Some(vec![&b"hot"[..], b"a", b"b"])
        );
    }
}
