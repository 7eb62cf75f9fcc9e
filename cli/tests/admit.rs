//! Clients that a server admits by their keys.

mod common;

use std::path::Path;

use common::{Server, odafs, run, text};
use serde_json::Value;

/// The route of the second read of the file `f`, if the server grants direct reads, else what the command says.
fn route(server: &Server, keys: &[(&str, &Path)]) -> Result<String, String> {
    let mut cat = odafs();
    cat.args(["cat", "--why", "--json", "--route", "guarded"]);
    for (option, file) in keys {
        cat.arg(option).arg(file);
    }
    let url = format!("odafs://{}/f", server.word("rdma="));
    let output = cat.arg(url).output().unwrap();
    if !output.status.success() {
        return Err(text(&output.stderr));
    }
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = rows.as_array().unwrap().last().unwrap();
    Ok(last["route"].as_str().unwrap().to_owned())
}

#[test]
fn a_command_shows_the_key_by_which_a_server_admits_it() {
    let (served, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(served.path().join("f"), [7; 4096]).unwrap();
    let place = |name: &str| keys.path().join(name);
    let (ours, others, list) = (place("ours"), place("others"), place("admitted"));
    let public = |of: &Path| run(&["identity", of.to_str().unwrap()]).stdout;
    let admitted = public(&ours);
    assert_eq!(public(&ours), admitted, "it is made once");
    std::fs::write(&list, admitted).unwrap();
    let unlisted = place("unlisted.pub");
    std::fs::write(&unlisted, public(&others)).unwrap();

    let list = list.to_str().unwrap();
    let server = Server::start(served.path(), &["--rdma", "127.0.0.1:0", "--admit", list]);
    let of_server = server.shm.with_file_name("state").join("identity.pub");
    let server_key = ("--server-key", &*of_server);
    let known = [("--identity", &*ours), server_key];
    assert_eq!(route(&server, &known).as_deref(), Ok("guarded"));
    let refused: [&[(&str, &Path)]; 4] = [
        &[],
        &[server_key],
        &[("--identity", &others), server_key],
        // Not the server that we know.
        &[("--identity", &ours), ("--server-key", &unlisted)],
    ];
    for keys in refused {
        let said = route(&server, keys).unwrap_err();
        assert!(said.contains("does not grant guarded reads"), "{said}");
    }
}
