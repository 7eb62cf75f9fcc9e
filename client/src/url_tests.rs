use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Url {
    text.parse().unwrap()
}

fn host(name: &str, port: u16) -> Host {
    Host {
        name: name.into(),
        port,
    }
}

#[test]
fn each_scheme() {
    let url = parse("odafs://server/a/b");
    assert_eq!(url.server, ServerAddress::Iwarp(host("server", 20049)));
    assert_eq!(url.path, b"/a/b");
    let url = parse("odafs+verbs://10.0.0.1:7");
    assert_eq!(url.server, ServerAddress::Verbs(host("10.0.0.1", 7)));
    assert_eq!(url.path, b"/");
    let url = parse("odafs+verbs://storage/x?mountport=20048");
    assert_eq!(url.server, ServerAddress::Verbs(host("storage", 20049)));
    assert_eq!(url.mount_port, Some(20048));
    let url = parse("nfs://[::1]:12049/x?mountport=635");
    assert_eq!(url.server, ServerAddress::NfsTcp(host("::1", 12049)));
    assert_eq!(url.mount_port, Some(635));
    let url = parse("odafs://[fe80::1]/x?mountport=635&crc=1");
    assert_eq!(url.server, ServerAddress::Iwarp(host("fe80::1", 20049)));
    assert_eq!((url.mount_port, url.crc), (Some(635), true));
    assert!(!parse("odafs://h/x?crc=0").crc);
    let url = parse("odafs+shm:///tmp/a%3Fb.sock?/export/c?d");
    assert_eq!(url.server, ServerAddress::Shm("/tmp/a?b.sock".into()));
    assert_eq!(url.path, b"/export/c?d", "split at the first question mark");
    assert_eq!(parse("odafs+shm:///s?").path, b"/");
    assert_eq!(
        parse("nfs://h").server,
        ServerAddress::NfsTcp(host("h", 2049))
    );
}

#[test]
fn shared_memory_without_a_question_mark() {
    let url = parse("odafs+shm://%2Frun%2Fa%20b.sock/export/c%3Fd");
    assert_eq!(url.server, ServerAddress::Shm("/run/a b.sock".into()));
    assert_eq!(url.path, b"/export/c?d");
    assert_eq!(parse("odafs+shm://%2fs").path, b"/");
    assert_eq!(parse("odafs+shm://%2Fs/a"), parse("odafs+shm:///s?/a"));
    for (text, path) in [
        ("odafs+shm:///", "/"),
        ("odafs+shm:///run/a%3Fb", "/run/a?b"),
    ] {
        let url = parse(text);
        assert_eq!(url.server, ServerAddress::DefaultShm);
        assert_eq!(url.path, path.as_bytes());
        assert_eq!(url.to_string(), text);
    }
}

#[test]
fn each_refusal_says_what_would_be_right() {
    for (text, word) in [
        ("http://h/", "odafs+shm://"),
        ("h:/export", "odafs://"),
        ("odafs+shm://relative?/", "absolute"),
        ("odafs+shm:///s?relative", "absolute"),
        ("odafs+shm://relative/path", "%2F"),
        ("odafs+shm://", "absolute"),
        ("odafs+shm://%2Fs/a?b", "%3F"),
        ("odafs+shm://%2Fs?/b", "%3F"),
        ("odafs:///path", "host"),
        ("odafs://h:0/", "65535"),
        ("odafs://h:65536/", "65535"),
        ("odafs://h:+1/", "65535"),
        ("odafs://h::1/", "65535"),
        ("odafs://[::1/", "brackets"),
        ("odafs://::1/", "brackets"),
        ("nfs://fe80::1/x", "brackets"),
        ("odafs://[::1]x/", "brackets"),
        ("odafs://me@h/", "user"),
        ("odafs://h/%zz", "%25"),
        ("odafs://h/%4", "%25"),
        ("odafs://h/%00", "NUL"),
        (&format!("odafs://h/a/{}", "%61".repeat(256)), "255"),
        (&format!("odafs+shm:///s?/{}/b", "a".repeat(256)), "255"),
        ("odafs+verbs://h/?crc=1", "odafs://"),
        ("nfs://h/?crc=1", "odafs://"),
        ("odafs://h/?crc=2", "crc=1"),
        ("odafs://h/?crc=1&", "crc=1"),
        ("nfs://h/?version=3", "mountport"),
        ("nfs://h/?mountport=0", "mountport"),
    ] {
        let error = text.parse::<Url>().unwrap_err();
        assert!(error.why.contains(word), "{text}: {error}");
    }
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1u8..=255, 0..40).prop_map(|mut path| {
        path.insert(0, b'/');
        path
    })
}

fn server() -> impl Strategy<Value = ServerAddress> {
    use std::os::unix::ffi::OsStringExt as _;
    let name = prop_oneof![
        "[a-z0-9.-]{1,20}",
        any::<std::net::Ipv6Addr>().prop_map(|a| a.to_string()),
        any::<std::net::Ipv4Addr>().prop_map(|a| a.to_string()),
    ];
    let host = (name, 1u16..).prop_map(|(name, port)| Host { name, port });
    (host, path(), 0..5).prop_map(|(host, path, scheme)| match scheme {
        0 => ServerAddress::Iwarp(host),
        1 => ServerAddress::Verbs(host),
        2 => ServerAddress::NfsTcp(host),
        3 => ServerAddress::DefaultShm,
        _ => ServerAddress::Shm(std::ffi::OsString::from_vec(path).into()),
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(server in server(), path in path(), port in proptest::option::of(1u16..), crc: bool) {
        use ServerAddress::{DefaultShm, Shm, Iwarp};
        let mount_port = port.filter(|_| !matches!(server, Shm(_) | DefaultShm));
        let crc = crc && matches!(server, Iwarp(_));
        let url = Url { server, path, mount_port, crc };
        prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
    }

    #[test]
    fn any_text_is_taken_or_refused(text in "(odafs|nfs|odafs[+]shm)://\\PC{0,40}") {
        if let Ok(url) = text.parse::<Url>() {
            prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
        }
    }
}

/// What the fuzzer found worth keeping.
#[test]
fn the_corpus_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/url");
    let (mut taken, mut refused) = (0, 0);
    for input in std::fs::read_dir(corpus).unwrap() {
        let text = std::fs::read_to_string(input.unwrap().path()).unwrap();
        match text.parse::<Url>() {
            Ok(url) => {
                assert_eq!(url.to_string().parse::<Url>(), Ok(url));
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}
