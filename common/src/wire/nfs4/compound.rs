//! COMPOUND: reads operations one by one, and writes results one by one (RFC 7530, section 15.2; RFC 8881, section 16.2).

use super::{
    Bitmap, FileType, Name, OpCode, Opaque, Operation, OperationResult, RawAttributes, Status,
};
use crate::wire::rpcrdma::{Few, READ_CHUNKS_MAX};
use crate::wire::xdr::{Decode, Encode, ReadMark, Reader, Writer, XdrError};

record! {
    /// The header of a COMPOUND, before its operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompoundHeader<'a> {
        /// Any bytes. The reply returns them.
        pub tag: Opaque<'a>,
        /// The minor version.
        pub minor_version: u32,
        /// The number of operations that the client says follow. They need not be there, and nothing is allocated for them.
        pub operations: u32,
    }
}

/// Why an operation cannot be executed. Its result, the last one of the compound, is [`code`](Self::code) and
/// [`status`](Self::status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOperation {
    /// The minor version has no operation of this number.
    Illegal(u32),
    /// The operation is refused without a look at its arguments: one of layouts, SET_SSV, or one of minor version 0 only.
    Refused(OpCode),
    /// The arguments cannot be decoded.
    Arguments(OpCode, XdrError),
    /// The number of the operation is missing.
    Missing(XdrError),
}

impl BadOperation {
    /// The operation's number in the result.
    pub const fn code(&self) -> OpCode {
        match self {
            Self::Illegal(_) | Self::Missing(_) => OpCode::Illegal,
            Self::Refused(code) | Self::Arguments(code, _) => *code,
        }
    }

    /// The status of the result and of the compound.
    pub const fn status(&self) -> Status {
        match self {
            Self::Illegal(_) => Status::OpIllegal,
            Self::Refused(_) => Status::NotSupp,
            Self::Arguments(..) | Self::Missing(_) => Status::BadXdr,
        }
    }
}

/// Reads the operations of a COMPOUND one by one, so that each can be executed before the next is read.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    r: Reader<'a>,
    header: CompoundHeader<'a>,
    left: u32,
}

/// How far a COMPOUND has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationsMark {
    at: ReadMark,
    left: u32,
}

impl<'a> Operations<'a> {
    /// Reads the header. The caller checks the minor version and the number of operations.
    ///
    /// # Errors
    /// The bytes are no COMPOUND: the call gets GARBAGE_ARGS.
    pub fn begin(mut r: Reader<'a>) -> Result<Self, XdrError> {
        let header = CompoundHeader::decode(&mut r)?;
        Ok(Self {
            r,
            header,
            left: header.operations,
        })
    }

    /// The place before the next operation, for [`Operations::resume`].
    pub fn mark(&self) -> OperationsMark {
        OperationsMark {
            at: self.r.mark(),
            left: self.left,
        }
    }

    /// Goes on at `mark`, which was taken in the same COMPOUND. `r` is at the beginning of the COMPOUND.
    ///
    /// # Errors
    /// It is another COMPOUND, or none.
    pub fn resume(r: Reader<'a>, mark: OperationsMark) -> Result<Self, XdrError> {
        let Self { r, header, .. } = Self::begin(r)?;
        Ok(Self {
            r: r.resume(mark.at)?,
            header,
            left: mark.left,
        })
    }

    /// The header.
    pub fn header(&self) -> &CompoundHeader<'a> {
        &self.header
    }

    /// The number of operations that have not been read.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The number of payloads that came apart from the arguments and have not been read.
    pub fn apart_left(&self) -> usize {
        self.r.apart_left()
    }

    fn read(&mut self) -> Result<Operation<'a>, BadOperation> {
        let number = self.r.u32().map_err(BadOperation::Missing)?;
        let minor = self.header.minor_version;
        let code = OpCode::from_code(number)
            .filter(|code| *code != OpCode::Illegal && code.minor_version() <= minor)
            .ok_or(BadOperation::Illegal(number))?;
        if minor > 0 && code.is_of_minor_version_0_alone() {
            return Err(BadOperation::Refused(code));
        }
        Operation::arguments(code, &mut self.r)
            .map_err(|error| BadOperation::Arguments(code, error))?
            .ok_or(BadOperation::Refused(code))
    }

    /// Checks that nothing follows the last operation.
    ///
    /// # Errors
    /// [`XdrError::Trailing`] otherwise.
    pub fn finish(&self) -> Result<(), XdrError> {
        self.r.finish()
    }
}

/// There is no operation after one that cannot be executed.
impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, BadOperation>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let operation = self.read();
        if operation.is_err() {
            self.left = 0;
        }
        Some(operation)
    }
}

/// The lengths in bytes of those DDP-eligible arguments of a COMPOUND that came apart from it, in their order (RFC 8267, section
/// 6.1: the data of a WRITE, or the target of a symbolic link). `r` is at the beginning of the COMPOUND. If it ends, or has an
/// operation that cannot be read, before the last of them, they are fewer.
pub fn payloads_apart(mut r: Reader<'_>) -> Few<u32, READ_CHUNKS_MAX> {
    let mut lengths = Few::default();
    let _ = find_payloads_apart(&mut r, &mut lengths);
    lengths
}

fn find_payloads_apart(r: &mut Reader<'_>, lengths: &mut Few<u32, READ_CHUNKS_MAX>) -> Option<()> {
    let header = CompoundHeader::decode(r).ok()?;
    for _ in 0..header.operations {
        if r.apart_left() == 0 {
            break;
        }
        let code = OpCode::decode(r).ok()?;
        let before = r.clone();
        match code {
            OpCode::Write => {
                // Stateid, offset, stability.
                r.opaque_fixed::<28>().ok()?;
            }
            OpCode::Create if FileType::decode(r) == Ok(FileType::Symlink) => {}
            code => {
                *r = before;
                Operation::arguments(code, r).ok()??;
                continue;
            }
        }
        let length = r.skip_payload("data").ok()?;
        if !length.is_none_or(|length| lengths.push(length)) {
            return None;
        }
        if code == OpCode::Create {
            Name::decode(r).ok()?;
            RawAttributes::decode(r).ok()?;
        }
    }
    Some(())
}

/// Writes a COMPOUND or CB_COMPOUND reply, result by result.
#[derive(Debug)]
pub struct ResultWriter<'w, 'v> {
    w: &'w mut Writer<'v>,
    so_far: ResultsMark,
}

/// How far a COMPOUND reply has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultsMark {
    start: usize,
    count_at: usize,
    count: u32,
    last: usize,
}

impl ResultsMark {
    /// The position of the reply's first byte, where the compound's status is: see [`Writer::position`].
    pub fn start(&self) -> usize {
        self.start
    }
}

impl<'w, 'v> ResultWriter<'w, 'v> {
    /// Writes the header.
    pub fn begin(w: &'w mut Writer<'v>, tag: Opaque<'_>) -> Self {
        let start = w.position();
        Status::Ok.encode(w);
        tag.encode(w);
        let count_at = w.position();
        w.u32(0);
        let last = w.position();
        let so_far = ResultsMark {
            start,
            count_at,
            count: 0,
            last,
        };
        Self { w, so_far }
    }

    /// Goes on after what another writer has written, up to its `mark`.
    pub fn resume(w: &'w mut Writer<'v>, mark: ResultsMark) -> Self {
        Self { w, so_far: mark }
    }

    /// How far the reply has been written, for [`ResultWriter::resume`].
    pub fn mark(&self) -> ResultsMark {
        self.so_far
    }

    /// Writes an operation's number. The caller writes its result, from the status on, as [`super::ReadReply`] and
    /// [`super::EntryWriter`] do in place.
    pub fn start(&mut self, code: impl Encode) -> &mut Writer<'v> {
        self.so_far.last = self.w.position();
        self.so_far.count += 1;
        code.encode(self.w);
        self.w
    }

    /// Writes an operation's number and result.
    pub fn push(&mut self, code: impl Encode, result: &impl Encode) {
        result.encode(self.start(code));
    }

    /// Writes the result of a failed operation that is only its status. Others have types of their own, such as that of LOCK with
    /// [`Status::Denied`].
    pub fn fail(&mut self, code: OpCode, status: Status) {
        let w = self.start(code);
        status.encode(w);
        if code == OpCode::SetAttributes {
            Bitmap::EMPTY.encode(w);
        }
    }

    /// Takes back the last operation's number and result, so that another can be written. A second call in a row does nothing.
    pub fn take_back(&mut self) {
        if self.w.position() > self.so_far.last {
            self.w.truncate(self.so_far.last);
            self.so_far.count -= 1;
        }
    }

    /// The last result, from its status on.
    pub fn result(&mut self) -> &[u8] {
        let result = self.w.written(self.so_far.last);
        &result[4.min(result.len())..]
    }

    /// The length of the reply so far in bytes, from the compound's status on.
    pub fn bytes(&self) -> usize {
        self.w.position() - self.so_far.start
    }

    /// The number of results so far.
    pub fn count(&self) -> u32 {
        self.so_far.count
    }

    /// Ends the reply; `status` is that of the last operation.
    pub fn finish(self, status: Status) {
        self.w.patch_u32(self.so_far.start, status.code());
        self.w.patch_u32(self.so_far.count_at, self.so_far.count);
    }
}

record! {
    /// The header of a reply to a COMPOUND or CB_COMPOUND, before its results.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ResultsHeader<'a> {
        /// The status of the last result.
        pub status: Status,
        /// The tag of the call.
        pub tag: Opaque<'a>,
        /// The number of results that follow.
        pub results: u32,
    }
}

/// Reads the reply of a COMPOUND (or, with a [`super::CallbackResult`], of a CB_COMPOUND), result by result.
#[derive(Clone, Debug)]
pub struct Results<'a> {
    r: Reader<'a>,
    header: ResultsHeader<'a>,
    left: u32,
}

impl<'a> Results<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub fn begin(mut r: Reader<'a>) -> Result<Self, XdrError> {
        let header = ResultsHeader::decode(&mut r)?;
        Ok(Self {
            r,
            header,
            left: header.results,
        })
    }

    /// The header.
    pub fn header(&self) -> &ResultsHeader<'a> {
        &self.header
    }

    /// The next result of either kind, or `None` after the last one.
    ///
    /// # Errors
    /// The bytes are no result. There is none after that.
    pub fn next_as<T: Decode<'a>>(&mut self) -> Option<Result<T, XdrError>> {
        self.left = self.left.checked_sub(1)?;
        let result = T::decode(&mut self.r);
        if result.is_err() {
            self.left = 0;
        }
        Some(result)
    }

    /// The bytes behind the results read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.r.rest()
    }

    /// Checks that nothing follows the last result.
    ///
    /// # Errors
    /// [`XdrError::Trailing`] otherwise.
    pub fn finish(&self) -> Result<(), XdrError> {
        self.r.finish()
    }
}

/// The results of a COMPOUND. There is none after an error.
impl<'a> Iterator for Results<'a> {
    type Item = Result<OperationResult<'a>, XdrError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_as()
    }
}

/// Writes the arguments of a COMPOUND or CB_COMPOUND, operation by operation.
#[derive(Debug)]
pub struct CallWriter<'w, 'v> {
    w: &'w mut Writer<'v>,
    count_at: usize,
    count: u32,
}

impl<'w, 'v> CallWriter<'w, 'v> {
    /// Starts a COMPOUND.
    pub fn compound(w: &'w mut Writer<'v>, tag: Opaque<'_>, minor_version: u32) -> Self {
        tag.encode(w);
        w.u32(minor_version);
        Self::counted(w)
    }

    /// Starts a CB_COMPOUND. `ident` is the `callback_ident` of SETCLIENTID (4.0), or 0.
    pub fn callback(
        w: &'w mut Writer<'v>,
        tag: Opaque<'_>,
        minor_version: u32,
        ident: u32,
    ) -> Self {
        tag.encode(w);
        w.words([minor_version, ident]);
        Self::counted(w)
    }

    fn counted(w: &'w mut Writer<'v>) -> Self {
        let count_at = w.position();
        w.u32(0);
        Self {
            w,
            count_at,
            count: 0,
        }
    }

    /// Adds an [`Operation`] or a [`super::CallbackOperation`].
    #[must_use]
    pub fn push(mut self, operation: &impl Encode) -> Self {
        operation.encode(self.w);
        self.count += 1;
        self
    }

    /// Ends the call.
    pub fn finish(self) {
        self.w.patch_u32(self.count_at, self.count);
    }
}
