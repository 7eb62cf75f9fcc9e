//! The portmapper's answer (RFC 1833, section 3): everything that is served over TCP has one port, this one.

use odafs_common::wire::portmap::{Mapping, Mappings, PROGRAM, Procedure, TCP, VERSION};
use odafs_common::wire::xdr::{Decode as _, Writer};
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU32, Ordering};

use crate::rpc::{Admission, Answer, Call, Program, reply};

/// The port that everything is served on. Known once the listener is bound; 0 before, and without one.
#[derive(Clone, Debug, Default)]
pub struct Port(Arc<AtomicU32>);

impl Port {
    /// The listener is bound to `port`.
    pub fn set(&self, port: u16) {
        self.0.store(port.into(), Ordering::Relaxed);
    }

    fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The portmapper.
#[derive(Debug)]
pub struct Portmap {
    port: Port,
    served: Vec<(u32, u32)>,
}

impl Portmap {
    /// Answers for itself and for `programs` (number and version), which are served on `port`.
    pub fn new(programs: impl IntoIterator<Item = (u32, u32)>, port: Port) -> Self {
        let served = [(PROGRAM, VERSION)].into_iter().chain(programs).collect();
        Self { port, served }
    }

    fn port_of(&self, wanted: &Mapping) -> u32 {
        let served =
            wanted.protocol == TCP && self.served.contains(&(wanted.program, wanted.version));
        if served { self.port.number() } else { 0 }
    }

    fn mappings(&self) -> Mappings {
        let mapping = |&(program, version): &(u32, u32)| Mapping {
            program,
            version,
            protocol: TCP,
            port: self.port.number(),
        };
        Mappings(self.served.iter().map(mapping).collect())
    }
}

impl Program for Portmap {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "portmap"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "SET", "UNSET", "GETPORT", "DUMP"]
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Anyone
    }

    fn call(&self, mut call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(Procedure::GetPort) => match Mapping::decode(&mut call.arguments) {
                Ok(wanted) => reply(results, &self.port_of(&wanted)),
                Err(error) => error.into(),
            },
            Some(Procedure::Dump) => reply(results, &self.mappings()),
            Some(Procedure::Null) | None => Answer::NoProcedure,
        }
    }
}
