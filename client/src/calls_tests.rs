use super::*;
use crate::url::Host;

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
