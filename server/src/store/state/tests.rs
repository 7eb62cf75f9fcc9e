//! What a state directory keeps, and what it refuses.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn open(directory: &Path) -> Result<StateDir, StateError> {
    StateDir::open(Some(&directory.join("state")), directory)
}

#[test]
fn what_is_kept_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    assert_eq!(first.life(), 1);
    let (key, identity) = (first.handle_key().clone(), first.identity().clone());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(first.path()), 0o700);
    for name in ["handle-key", "identity", "life-number", "lock"] {
        assert_eq!(mode(&first.path().join(name)), 0o600, "{name}");
    }
    drop(first);
    let second = open(directory.path()).unwrap();
    assert_eq!(second.life(), 2);
    assert_eq!(second.identity(), &identity);
    assert_eq!(second.handle_key(), &key);
    assert_ne!(&second.identity()[..], &[0; 32]);
    assert!(!format!("{second:?} {key:?}").contains(&hex(&identity[..4])));
}

#[test]
fn the_number_of_a_start_grows_while_the_clock_is_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let start = |seconds| open(directory.path()).unwrap().next_boot(seconds).unwrap();
    // Without the number of an earlier server, that of the life is added.
    assert_eq!(start(1000), 1001);
    for (seconds, number) in [
        (1000, 1002),
        (7, 1003),
        (0, 1004),
        (2000, 2000),
        (1999, 2001),
    ] {
        assert_eq!(start(seconds), number, "{seconds}");
    }
    std::fs::remove_dir_all(directory.path().join("state")).unwrap();
    assert_eq!(start(3000), 3001);
}

#[test]
fn a_second_server_is_told_about_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    let error = open(directory.path()).unwrap_err().to_string();
    let (pid, path) = (
        std::process::id().to_string(),
        first.path().display().to_string(),
    );
    for part in [pid.as_str(), path.as_str(), "--state"] {
        assert!(error.contains(part), "{error}");
    }
    drop(first);
    assert_eq!(open(directory.path()).unwrap().life(), 2);
}

#[test]
fn damage_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path()).unwrap();
    let path = state.path().to_owned();
    drop(state);
    for name in ["handle-key", "identity", "life-number"] {
        let file = path.join(name);
        let good = std::fs::read(&file).unwrap();
        let mut flipped = good.clone();
        flipped[20] ^= 1;
        let other = std::fs::read(path.join(if name == "identity" {
            "handle-key"
        } else {
            "identity"
        }));
        for bad in [
            flipped,
            good[..good.len() / 2].to_vec(),
            Vec::new(),
            vec![b'x'; 4096],
            vec![0xff; 90],
            other.unwrap(),
        ] {
            std::fs::write(&file, &bad).unwrap();
            let error = open(directory.path()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(name), "{text}");
            assert!(matches!(error, StateError::Damaged { .. }), "{text}");
        }
        std::fs::write(&file, good).unwrap();
    }
    // What a crash leaves of a replacement is ignored.
    std::fs::write(path.join("identity.new"), b"half a li").unwrap();
    open(directory.path()).unwrap();
}

#[test]
fn a_place_that_others_may_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(error, StateError::Unsafe { mode: 0o777, .. }),
        "{error}"
    );
}

#[test]
fn only_digits_stand_for_bytes() {
    assert_eq!(unhex("0fF0"), Some([0x0f, 0xf0]));
    for other in ["+f", "-f", " f", "f", "fg", "fff", "ä"] {
        assert_eq!(unhex::<1>(other), None, "{other}");
    }
}

#[test]
fn files_are_replaced_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let state = open(directory.path()).unwrap();
    for content in [b"first and long".as_slice(), b"second"] {
        state.replace("file", content).unwrap();
        assert_eq!(std::fs::read(state.path().join("file")).unwrap(), content);
    }
    assert!(!state.path().join("file.new").exists());
}

#[test]
fn the_default_place_depends_on_the_directory() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |served: &Path| StateDir::default_path(served).unwrap();
    assert_ne!(path(one.path()), path(two.path()));
    assert_eq!(path(one.path()), path(&one.path().join(".")));
    assert!(StateDir::default_path(&one.path().join("missing")).is_err());
}
