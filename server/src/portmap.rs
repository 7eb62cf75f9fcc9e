//! The answers of the portmapper and of rpcbind (RFC 1833, sections 3 and 2). Everything that the server offers over TCP
//! has one port, and so has everything over UDP.

use odafs_common::wire::portmap::{
    Address, Binding, GET_ADDRESS, Mapping, Mappings, PROGRAM, Procedure, RPCBIND_VERSIONS, TCP,
    UDP, VERSION,
};
use odafs_common::wire::xdr::{Decode as _, Writer};
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU32, Ordering};

use crate::rpc::{Admission, Answer, Call, Program, reply};

/// The port of a listener. 0 before the listener is bound, and where there is none.
#[derive(Clone, Debug, Default)]
pub struct Port(Arc<AtomicU32>);

impl Port {
    /// Sets the port to which the listener is bound.
    pub fn set(&self, port: u16) {
        self.0.store(port.into(), Ordering::Relaxed);
    }

    fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The programs, and where they are served.
#[derive(Clone, Debug)]
struct Served {
    port: Port,
    over_tcp: Vec<(u32, u32)>,
    datagram_port: Port,
    by_datagrams: Vec<(u32, u32)>,
}

impl Served {
    /// The port of a program over this protocol, or 0 if it is not served.
    fn port_of(&self, program: (u32, u32), protocol: u32) -> u32 {
        let (served, port) = match protocol {
            TCP => (&self.over_tcp, &self.port),
            UDP => (&self.by_datagrams, &self.datagram_port),
            _ => return 0,
        };
        if served.contains(&program) {
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
        let mut mappings = list(&self.over_tcp, TCP, self.port.number());
        let datagrams = self.datagram_port.number();
        if datagrams != 0 {
            mappings.extend(list(&self.by_datagrams, UDP, datagrams));
        }
        Mappings(mappings)
    }
}

/// The portmapper (version 2).
#[derive(Debug)]
pub struct Portmap(Served);

impl Portmap {
    /// Reports itself and `programs` (number and version), which are served over TCP on `port`.
    pub fn new(programs: impl IntoIterator<Item = (u32, u32)>, port: Port) -> Self {
        let served = [(PROGRAM, VERSION)].into_iter().chain(programs);
        Self(Served {
            port,
            over_tcp: served.collect(),
            datagram_port: Port::default(),
            by_datagrams: Vec::new(),
        })
    }

    /// Also reports itself and `programs` over UDP on `port`.
    #[must_use]
    pub fn with_datagrams(
        mut self,
        programs: impl IntoIterator<Item = (u32, u32)>,
        port: Port,
    ) -> Self {
        let served = [(PROGRAM, VERSION)].into_iter().chain(programs);
        self.0.by_datagrams = served.collect();
        self.0.datagram_port = port;
        self
    }

    /// The same answers in versions 3 and 4, which are those of rpcbind.
    pub fn rpcbind(&self) -> [Rpcbind; 2] {
        RPCBIND_VERSIONS.map(|version| Rpcbind {
            version,
            served: self.0.clone(),
        })
    }
}

/// A version of rpcbind, which clients ask over IPv6.
#[derive(Debug)]
pub struct Rpcbind {
    version: u32,
    served: Served,
}

impl Rpcbind {
    /// The address of a program. It is the wildcard address, because the caller knows best which address of this host it
    /// can reach.
    fn address_of(&self, wanted: &Binding<'_>) -> String {
        let (protocol, any) = match wanted.transport {
            b"tcp" => (TCP, "0.0.0.0"),
            b"tcp6" => (TCP, "::"),
            b"udp" => (UDP, "0.0.0.0"),
            b"udp6" => (UDP, "::"),
            _ => return String::new(),
        };
        let program = (wanted.program, wanted.version);
        match self.served.port_of(program, protocol) {
            0 => String::new(),
            port => format!("{any}.{}.{}", port >> 8, port & 0xff),
        }
    }
}

impl Program for Rpcbind {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn name(&self) -> &'static str {
        match self.version {
            3 => "rpcbind3",
            _ => "rpcbind4",
        }
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "SET", "UNSET", "GETADDR"]
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Anyone
    }

    fn call(&self, mut call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match call.procedure {
            GET_ADDRESS => match Binding::decode(&mut call.arguments) {
                Ok(wanted) => reply(results, &Address(self.address_of(&wanted).as_bytes())),
                Err(error) => error.into(),
            },
            _ => Answer::NoProcedure,
        }
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
                Ok(wanted) => {
                    let program = (wanted.program, wanted.version);
                    reply(results, &self.0.port_of(program, wanted.protocol))
                }
                Err(error) => error.into(),
            },
            Some(Procedure::Dump) => reply(results, &self.0.mappings()),
            Some(Procedure::Null) | None => Answer::NoProcedure,
        }
    }
}
