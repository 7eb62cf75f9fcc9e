//! Copies and writes in any order, beside plain bytes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// What clients do, between files by number.
#[derive(Clone, Debug)]
enum Step {
    Copy(usize, usize, u16, u16, u16),
    Write(usize, u16, u8),
    Piece,
    Cancel(usize),
    Hear,
}

fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let at = || 0..30_000u16;
    prop_oneof![
        2 => (0..3usize, 0..3usize, at(), at(), at()).prop_map(|(a, b, c, d, e)| S::Copy(a, b, c, d, e)),
        2 => (0..3usize, at(), any::<u8>()).prop_map(|(a, b, c)| S::Write(a, b, c)),
        4 => Just(S::Piece),
        1 => any::<usize>().prop_map(S::Cancel),
        1 => Just(S::Hear),
    ]
}

/// A copy under way in the model.
#[derive(Debug)]
struct Going {
    state: StateId,
    from: (usize, usize),
    to: (usize, usize),
    left: usize,
    copied: u64,
    cancelled: bool,
}

/// Puts bytes into a file, which grows if need be.
fn place(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = at + bytes.len();
    file.resize(file.len().max(end), 0);
    file[at..end].copy_from_slice(bytes);
}

/// Copies a piece of the copy whose turn it is.
fn piece(files: &mut [Vec<u8>], going: &mut VecDeque<Going>) -> Option<(StateId, u64)> {
    let mut copy = going.pop_front().filter(|copy| !copy.cancelled)?;
    let (source, at) = copy.from;
    let count = copy.left.min(P).min(files[source].len().saturating_sub(at));
    let bytes = files[source][at..at + count].to_vec();
    place(&mut files[copy.to.0], copy.to.1, &bytes);
    copy.from.1 += count;
    copy.to.1 += count;
    copy.left -= count;
    copy.copied += count as u64;
    if count > 0 && copy.left > 0 {
        going.push_back(copy);
        return None;
    }
    Some((copy.state, copy.copied))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn files_hold_what_was_written_and_copied_in_turn(steps in prop::collection::vec(step(), 1..60)) {
        let room = room();
        let (client, mailbox) = hearing(&room, b"client", 1);
        let mut files: Vec<Vec<u8>> = (0..3u8).map(|file| vec![file + 1; 20_000]).collect();
        let mut known = Vec::new();
        for (file, content) in files.iter().enumerate() {
            let name = [b'f', b'0' + file as u8];
            room.file(&name, content);
            known.push(opened(&client, &name, BOTH));
        }
        let mut going: VecDeque<Going> = VecDeque::new();
        let mut over: Vec<(StateId, u64)> = Vec::new();
        let hear = |over: &mut Vec<(StateId, u64)>| {
            while !mailbox.is_empty() {
                let heard = told(&client, &mailbox.only());
                let at = over.iter().position(|(state, _)| *state == heard.state);
                let (_, count) = over.remove(at.expect("a copy that is over"));
                assert_eq!(done(&heard).0, count);
                answers(&client, &heard, Status::Ok);
            }
        };
        for step in steps {
            match step {
                Step::Copy(from, to, source_offset, destination_offset, count) if from != to => {
                    let (at, there) = (usize::from(source_offset), usize::from(destination_offset));
                    let arguments = CopyArgs {
                        source_offset: source_offset.into(),
                        destination_offset: destination_offset.into(),
                        count: count.into(),
                        ..copy_all(known[from].0, known[to].0)
                    };
                    let copy = Operation::Copy(arguments);
                    let reply = client.between(&known[from].1, &known[to].1, copy);
                    let behind = files[from].len().checked_sub(at);
                    let count = match usize::from(count) {
                        0 => behind,
                        some => behind.and_then(|behind| (some <= behind).then_some(some)),
                    };
                    let Some(count) = count else {
                        prop_assert_eq!(reply.status(), Status::Inval);
                        continue;
                    };
                    let ok = last!(reply, Copy);
                    match ok.response.callback.0 {
                        Some(state) => going.push_back(Going {
                            state,
                            from: (from, at),
                            to: (to, there),
                            left: count,
                            copied: 0,
                            cancelled: false,
                        }),
                        None => {
                            let wanted = going.iter().filter(|copy| !copy.cancelled);
                            prop_assert!(count <= 2 * P || wanted.count() + over.len() >= 8);
                            let bytes = files[from][at..at + count].to_vec();
                            place(&mut files[to], there, &bytes);
                        }
                    }
                }
                Step::Write(file, offset, value) => {
                    let data = [value; 100];
                    let write = write(known[file].0, offset.into(), Stable::Unstable, &data);
                    prop_assert_eq!(client.on(&known[file].1, write).status(), Status::Ok);
                    place(&mut files[file], offset.into(), &data);
                }
                Step::Piece => {
                    prop_assert_eq!(room.nfs.copier.copy_piece(), !going.is_empty());
                    over.extend(piece(&mut files, &mut going));
                }
                Step::Cancel(index) if going.iter().any(|copy| !copy.cancelled) => {
                    let mut all = going.iter_mut().filter(|copy| !copy.cancelled);
                    let copy = all.nth(index % 3).or_else(|| all.next());
                    let Some(copy) = copy else { continue };
                    copy.cancelled = true;
                    let (copy, target) = (&*copy, &known[copy.to.0].1);
                    let so_far = Ok((copy.copied, None));
                    prop_assert_eq!(status(&client, target, copy.state), so_far);
                    prop_assert_eq!(cancel(&client, target, copy.state), Status::Ok);
                }
                Step::Hear => hear(&mut over),
                Step::Copy(..) | Step::Cancel(_) => {}
            }
        }
        while room.nfs.copier.copy_piece() {
            over.extend(piece(&mut files, &mut going));
        }
        prop_assert!(going.is_empty());
        hear(&mut over);
        prop_assert!(over.is_empty());
        for ((_, handle), content) in known.iter().zip(&files) {
            prop_assert!(client.content(handle) == *content);
        }
    }
}
