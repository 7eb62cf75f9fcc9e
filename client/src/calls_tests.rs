use super::*;
use crate::{
    nfs::procedure::{Asks, Number},
    url::Host,
    waiting::Awaited,
};
use odafs_common::{
    rpcrdma::CallShape,
    wire::{nfs3, odafs},
};
use odafs_fabric::{QueuePair, sync::Mutex};

/// A server that closes connections of other threads does not hide why this one could make none.
#[test]
fn what_failed_here_is_told_whatever_the_server_does() {
    let host = Host {
        name: "server".into(),
        port: 2049,
    };
    let credential = Credential::of_process();
    let second = Nanos::from_secs(1);
    let calls = Calls::new(Link::NfsTcp(host), 1, &credential, second, Wait::default());
    calls.silence.goes_on(0);
    let full = io::Error::from_raw_os_error(24);
    let pause = &mut Pause::default();
    let procedure = &crate::nfs::WRITE;
    let why = NoLine::NotMade(full);
    let given_up = calls.without_line(procedure, why, None, pause, clock::now());
    let told = given_up.unwrap_err().to_string();
    assert!(told.contains("open files"), "{told}");
    let given_up = calls.without_line(procedure, NoLine::Silence, None, pause, clock::now());
    assert!(matches!(given_up, Err(CallError::Silent { .. })));
}

/// A transport that notes which answers are expected.
struct Noting(Arc<Mutex<Vec<Awaited>>>);

impl RpcTransport for Noting {
    fn send(
        &mut self,
        _: &[u8],
        _: &CallShape,
        _: Option<&ReplyBuffer>,
        _: Nanos,
    ) -> Result<(), Broken> {
        Ok(())
    }

    fn expect(&mut self, awaited: Awaited) {
        self.0.lock().push(awaited);
    }

    fn flush(&mut self, _: Nanos) -> Result<(), Broken> {
        Ok(())
    }

    fn receive(&mut self, _: Nanos) -> Result<bool, Broken> {
        Ok(false)
    }

    fn message(&self) -> &[u8] {
        &[]
    }

    fn message_max(&self) -> usize {
        1 << 20
    }

    fn queue_pair(&mut self) -> Option<&mut dyn QueuePair> {
        None
    }

    fn is_over(&mut self) -> bool {
        false
    }
}

/// A client polls for answers as long as answers of that kind come in time.
#[test]
fn a_call_tells_its_transport_how_it_will_be_answered() {
    let host = Host {
        name: "server".into(),
        port: 2049,
    };
    let credential = Credential::of_process();
    let second = Nanos::from_secs(1);
    let calls = Calls::new(Link::NfsTcp(host), 1, &credential, second, Wait::default());
    let noted = Arc::new(Mutex::new(Vec::new()));
    let mut line = Line {
        transport: Box::new(Noting(noted.clone())),
        out: Vec::new(),
        sink: None,
        made_at: 0,
        answered: false,
        round: 0,
    };
    let kinds = [
        (Number::Nfs(nfs3::Procedure::Lookup), Awaited::AtOnce),
        (Number::Nfs(nfs3::Procedure::Create), Awaited::HandedOn),
        (Number::Nfs(nfs3::Procedure::Read), Awaited::AtOnce),
        (Number::Nfs(nfs3::Procedure::Write), Awaited::HandedOn),
        (Number::Odafs(odafs::Procedure::Read), Awaited::AtOnce),
        (Number::Odafs(odafs::Procedure::GetRefs), Awaited::HandedOn),
    ];
    for (number, _) in kinds {
        let procedure = &Procedure {
            name: "CALLED",
            number,
            idempotent: true,
            asks: Asks::NOTHING,
        };
        let sent = calls.send(&mut line, 1, procedure, &(), None, clock::now());
        sent.expect("sent");
    }
    assert_eq!(*noted.lock(), kinds.map(|(_, awaited)| awaited));
}
