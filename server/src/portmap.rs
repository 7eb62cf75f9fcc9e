//! The portmapper's answer (RFC 1833, section 3): everything that is served over TCP has one port, this one. So has what is
//! served by datagrams.

use odafs_common::wire::portmap::{Mapping, Mappings, PROGRAM, Procedure, TCP, UDP, VERSION};
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
    /// What is served by datagrams, and where.
    by_datagrams: Vec<(u32, u32)>,
    datagram_port: Port,
}

impl Portmap {
    /// Answers for itself and for `programs` (number and version), which are served on `port`.
    pub fn new(programs: impl IntoIterator<Item = (u32, u32)>, port: Port) -> Self {
        let served = [(PROGRAM, VERSION)].into_iter().chain(programs).collect();
        Self {
            port,
            served,
            by_datagrams: Vec::new(),
            datagram_port: Port::default(),
        }
    }

    /// And for itself and `programs` by datagrams (UDP), which are served on `port`.
    #[must_use]
    pub fn with_datagrams(
        self,
        programs: impl IntoIterator<Item = (u32, u32)>,
        port: Port,
    ) -> Self {
        let served = [(PROGRAM, VERSION)].into_iter().chain(programs);
        Self {
            by_datagrams: served.collect(),
            datagram_port: port,
            ..self
        }
    }

    fn port_of(&self, wanted: &Mapping) -> u32 {
        let (served, port) = match wanted.protocol {
            TCP => (&self.served, &self.port),
            UDP => (&self.by_datagrams, &self.datagram_port),
            _ => return 0,
        };
        if served.contains(&(wanted.program, wanted.version)) {
            port.number()
        } else {
            0
        }
    }

    fn mappings(&self) -> Mappings {
        let list = |served: &[(u32, u32)], protocol, port: u32| {
            let mapping = move |(program, version): &(u32, u32)| Mapping {
                program: *program,
                version: *version,
                protocol,
                port,
            };
            Vec::from_iter(served.iter().map(mapping))
        };
        let mut mappings = list(&self.served, TCP, self.port.number());
        if self.datagram_port.number() != 0 {
            mappings.extend(list(&self.by_datagrams, UDP, self.datagram_port.number()));
        }
        Mappings(mappings)
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
