//! References and direct reads: what a guarded read gets past the server is what READ would have got, and an unchanged
//! change counter means an unchanged file.

use odafs_common::connect::Nonce;
use odafs_common::direct::{Attach, Attached, Completion, Request, VERSION as DIRECT};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::reference::Reference;
use odafs_common::session::{Control, Initiator, Pattern, SessionKey};
use odafs_common::wire::odafs::{
    Accepted, GetRefsArgs, GetRefsResult, Mode, OpenSessionArgs, OpenSessionResult,
    PROGRAM as ODAFS, PageReference, Parameters, Procedure as P, Range, ReadArgs as OdafsRead,
    ReadResult as OdafsReadResult, RekeyArgs, RekeyResult, VERSION as ODAFS_VERSION,
};
use odafs_fabric::clock;
use odafs_nic::connection::Connection;
use odafs_nic::nic::{DataTarget, Verdict};

use super::*;

const SERVER_NONCE: Nonce = [5; 16];
const CLIENT_NONCE: Nonce = [6; 16];
const REFERENCES_MAX: usize = 200;
const COPIES_MAX: usize = 16;

/// A client with a session, a direct connection, and what it has learnt.
pub(super) struct Client {
    key: SessionKey,
    mac: MacAlgorithm,
    session: u32,
    generation: u32,
    connection: Connection,
    sequence: u64,
    references: Vec<(Vec<u8>, PageReference)>,
    copies: Vec<Copy>,
}

/// A file as it once was, and how to tell whether it still is.
struct Copy {
    handle: Vec<u8>,
    attributes: Attributes,
    content: Vec<u8>,
    change: u64,
    counter: Reference,
}

impl World {
    fn odafs(&mut self, procedure: P, args: &impl Encode) -> Vec<u8> {
        let message = self.message_to(
            0,
            [ODAFS, ODAFS_VERSION, procedure.code()],
            &args.to_bytes(),
        );
        let reply = self.serve(&message);
        let body = parse_reply(&reply).expect("a reply").body;
        let results = body.expect("an accepted call").rest().to_vec();
        self.count(format!("Odafs{procedure:?}"), results.starts_with(&[0; 4]));
        results
    }

    /// Opens a session and attaches a connection to it.
    pub(super) fn open_session(&mut self, mac: MacAlgorithm) -> Client {
        let parameters = Parameters {
            version: DIRECT.into(),
            features: 0,
            macs: mac.bit(),
            mode: Mode::Guarded,
            pattern: Pattern::Nn,
            export: b"/",
            fabric: b"sim",
        };
        let parameters = parameters.to_bytes();
        let (initiator, handshake) =
            Initiator::start(&parameters, [1; 32].into(), None, None).expect("a start");
        let args = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let results = self.odafs(P::OpenSession, &args);
        let answer = OpenSessionResult::from_bytes(&results)
            .expect("a result")
            .expect("a session");
        let (key, accepted) = initiator.finish(answer.0).expect("the server's message");
        let accepted = Accepted::from_bytes(&accepted).expect("what was accepted");
        assert_eq!(
            (accepted.mac, accepted.mode, accepted.page_bytes),
            (mac, Mode::Guarded, 4096)
        );

        let nic = self.export.nic().expect("direct reads");
        let mut connection = Connection::new(9, SERVER_NONCE);
        let attach = Attach {
            session: accepted.session,
            nonce: CLIENT_NONCE,
            one_sided: false,
        };
        let attach = attach.seal(&key.attach_key(), &SERVER_NONCE);
        let Verdict::Attach(request) = nic.receive(&mut connection, &attach, clock::now()) else {
            panic!("not attached");
        };
        let attached = nic.attached(&mut connection, request, None);
        let attached = Attached::open(&attached, &key.attach_key(), &CLIENT_NONCE, &SERVER_NONCE);
        assert_eq!(
            attached
                .expect("an answer")
                .result
                .expect("a grant")
                .connection,
            9
        );
        Client {
            key,
            mac,
            session: accepted.session,
            generation: 0,
            connection,
            sequence: 0,
            references: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// READ of the ODAFS program: the data, and references to try later.
    pub(super) fn read_for_references(&mut self, client: &mut Client, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = OdafsRead {
            file: FileHandle(&handle),
            offset: choices.offset(),
            count: choices.small(),
            session: client.session,
            want_references: true,
            chunk: None,
        };
        let results = self.odafs(P::Read, &args);
        let Ok(read) = OdafsReadResult::from_bytes(&results).expect("a result") else {
            return;
        };
        assert_eq!(read.count as usize, read.data.0.len());
        let content = &self.contents[&handle];
        let rest = content
            .get(usize::try_from(args.offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        assert!(
            rest.starts_with(read.data.0),
            "other bytes than were written"
        );
        assert_eq!(read.eof, read.data.0.len() == rest.len());
        if let (Some(attributes), Some(counter)) = (read.attributes, read.counter) {
            let (handle, content, change) = (handle.clone(), content.clone(), read.change);
            client.copies.truncate(COPIES_MAX - 1);
            client.copies.insert(
                0,
                Copy {
                    handle,
                    attributes,
                    content,
                    change,
                    counter,
                },
            );
        }
        client.learn(&handle, &read.references);
        for _ in 0..choices.byte() % 4 {
            self.read_directly(client, choices);
        }
    }

    /// GET_REFS of a file or two, a few bytes of an answer at a time.
    pub(super) fn ask_for_references(&mut self, client: &mut Client, choices: &mut Choices<'_>) {
        let (one, two) = (self.handle(choices), self.handle(choices));
        let range = |file| Range {
            file: FileHandle(file),
            offset: 0,
            length: u64::MAX,
        };
        let mut args = GetRefsArgs {
            session: client.session,
            ranges: vec![range(&one), range(&two)],
            resume: 0,
        };
        let whole = std::mem::replace(
            &mut self.caller.reply_bytes_max,
            512 + 100 * u32::from(choices.byte()),
        );
        for turn in 0.. {
            let results = self.odafs(P::GetRefs, &args);
            let found = GetRefsResult::from_bytes(&results)
                .expect("a result")
                .expect("a session");
            for file in &found.files {
                client.learn([&one, &two][file.range as usize], &file.references);
            }
            args.resume = found.resume;
            if found.resume == 0 {
                break;
            }
            assert!(turn < 1000, "an answer that gets nowhere");
        }
        self.caller.reply_bytes_max = whole;
    }

    /// A guarded read of a part of a page.
    pub(super) fn read_directly(&mut self, client: &mut Client, choices: &mut Choices<'_>) {
        if client.references.is_empty() {
            return;
        }
        let chosen = choices.small() as usize % client.references.len();
        let (handle, at) = client.references[chosen].clone();
        let from = choices.small() % at.reference.length.max(1);
        let length = (at.reference.length - from).min(choices.small() + 1);
        let part = Reference {
            address: at.reference.address + u64::from(from),
            length,
            ..at.reference
        };
        match self.guarded(client, &part) {
            Ok(bytes) => {
                let start = at.page as usize * 4096 + from as usize;
                let content = &self.contents[&handle];
                assert_eq!(
                    content.get(start..start + bytes.len()),
                    Some(&bytes[..]),
                    "a stale page was read"
                );
            }
            Err(_) => drop(client.references.swap_remove(chosen)),
        }
    }

    /// An unchanged counter: the copy is as good as what a READ would get now.
    pub(super) fn revalidate(&mut self, client: &mut Client, choices: &mut Choices<'_>) {
        if client.copies.is_empty() {
            return;
        }
        let copy = client
            .copies
            .swap_remove(usize::from(choices.byte()) % client.copies.len());
        let Ok(counter) = self.guarded(client, &copy.counter) else {
            return;
        };
        if counter == copy.change.to_le_bytes() {
            assert_eq!(
                self.contents[&copy.handle], copy.content,
                "the file changed, its counter did not"
            );
            let results = self.call(0, Procedure::GetAttributes, &FileHandle(&copy.handle));
            let mut now = GetAttributesResult::from_bytes(&results)
                .expect("a result")
                .expect("a file");
            now.atime = copy.attributes.atime;
            assert_eq!(
                now, copy.attributes,
                "the attributes changed, the counter did not"
            );
        }
    }

    /// What the NIC makes of a request for all that the reference covers.
    fn guarded(
        &mut self,
        client: &mut Client,
        reference: &Reference,
    ) -> Result<Vec<u8>, Exception> {
        client.sequence += 1;
        let request = Request {
            mac: client.mac,
            inline: true,
            marked: false,
            odd_generation: client.generation & 1 == 1,
            session: client.session,
            connection: 9,
            sink_tag: 0,
            sequence: client.sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: 0,
            handle: reference.handle,
            length: reference.length,
        };
        let message = request.seal(&client.key.mac_key(client.mac, client.generation));
        let export = Arc::clone(&self.export);
        let nic = export.nic().expect("direct reads");
        let transfer = match nic.receive(&mut client.connection, &message, clock::now()) {
            Verdict::Read(transfer) => transfer,
            Verdict::Attach(_) | Verdict::NotAttached(_) => panic!("a read is no attach"),
            Verdict::Refused(answer) => {
                let (completion, _) = Completion::parse(&answer).expect("a completion");
                assert_eq!(completion.sequence, client.sequence);
                let exception = completion.result.expect_err("an exception");
                assert!(
                    exception.forgets_reference(),
                    "{exception} for a good request"
                );
                self.count("Direct".to_owned(), false);
                return Err(exception);
            }
        };
        assert_eq!(transfer.answer, DataTarget::Inline);
        let mut bytes = vec![0; transfer.length as usize];
        export
            .arena()
            .copy_out(transfer.frame.frame(), transfer.offset, &mut bytes);
        nic.finish(transfer);
        assert_eq!(bytes.len(), reference.length as usize);
        self.count("Direct".to_owned(), true);
        Ok(bytes)
    }

    /// A new generation of the request key.
    pub(super) fn rekey(&mut self, client: &mut Client) {
        let (session, generation) = (client.session, client.generation + 1);
        let key = client.key.control_key();
        let tag = Control::Rekey {
            session,
            generation,
        }
        .tag(&key);
        let results = self.odafs(
            P::Rekey,
            &RekeyArgs {
                session,
                generation,
                tag,
            },
        );
        let done = RekeyResult::from_bytes(&results)
            .expect("a result")
            .expect("a new key");
        assert_eq!(done.generation, generation);
        assert!(
            Control::Rekeyed {
                session,
                generation
            }
            .verify(&key, &done.tag)
        );
        client.generation = generation;
    }
}

impl Client {
    fn learn(&mut self, handle: &[u8], references: &[PageReference]) {
        let room = REFERENCES_MAX - self.references.len().min(REFERENCES_MAX);
        self.references.extend(
            references
                .iter()
                .take(room)
                .map(|found| (handle.to_vec(), *found)),
        );
    }
}
