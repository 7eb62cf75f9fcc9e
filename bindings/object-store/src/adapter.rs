//! The interface of a version of `object_store`. This file is compiled once for each version.

use super::api::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, UploadPart, path::Path,
};
use crate::{
    block::block,
    fault::{Fault, Kind},
    objects::{self, Got, Listed, Mode, Objects, PIECE},
    open::{Open, Version},
    upload::Parts,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use odafs::{Client, Options, Url};
use std::{collections::VecDeque, fmt, ops::Range, sync::Arc};

const STORE: &str = "odafs";
/// The most objects that are deleted at a time.
const DELETES: usize = 8;
/// The largest page of a server, in bytes. A read across pages is not done without waiting.
const PAGE_MAX: u64 = 64 << 10;

/// The objects below the path of a URL. Cheap to clone; see the [crate](crate).
#[derive(Clone)]
pub struct OdafsStore {
    objects: Arc<Objects>,
}

impl OdafsStore {
    /// Connects to a server: `odafs+shm:///PATH` on the same machine, `odafs://HOST/PATH` by RDMA, `nfs://HOST/PATH` to any
    /// NFS server. Locations start at the URL's path.
    ///
    /// # Errors
    /// The URL is malformed, nothing answers, or no export contains the path. The message says what to do.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Options::default()).await
    }

    /// Connects with [`Options`] of the client.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when the server does not grant a route that the options insist on.
    pub async fn connect_with(url: &str, options: Options) -> Result<Self> {
        let url = url.to_owned();
        block(move || {
            let failed = |error| Fault::connect(&url, error);
            let parsed: Url = url.parse().map_err(|e: odafs::UrlError| failed(e.into()))?;
            Ok(Self::new(
                Client::connect_with(&parsed, options).map_err(failed)?,
            ))
        })
        .await
    }

    /// The objects below the path of the URL that a client is connected with.
    pub fn new(client: Client) -> Self {
        Self {
            objects: Arc::new(Objects::new(client)),
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.objects.client
    }

    async fn block<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Objects) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let objects = Arc::clone(&self.objects);
        Ok(block(move || job(&objects)).await?)
    }

    /// A get that needs no waiting: of an open object whose change counter and page are in shared memory.
    fn get_at_once(&self, location: &Path, options: &GetOptions) -> Option<Result<GetResult>> {
        let open = self.objects.open.get(location.as_ref())?;
        if open.file.try_is_still(&open.snapshot) != Some(true) {
            return None;
        }
        let range = match planned(location, options, &open.version) {
            Ok(range) => range,
            Err(error) => return Some(Err(error)),
        };
        if range.end - range.start > PAGE_MAX {
            return None;
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if !bytes.is_empty() {
            let read = open.file.try_read_at(&mut bytes, range.start)?;
            if read < bytes.len() || open.file.try_is_still(&open.snapshot) != Some(true) {
                return None;
            }
        }
        let first = bytes.into();
        Some(Ok(got(location, Got { open, range, first })))
    }
}

/// The range of a version to read, if the conditions hold.
fn planned(location: &Path, options: &GetOptions, version: &Version) -> Result<Range<u64>> {
    let meta = meta(location.clone(), version);
    options.check_preconditions(&meta)?;
    if options.head {
        return Ok(0..0);
    }
    match &options.range {
        None => Ok(0..version.size),
        Some(range) => range
            .as_range(version.size)
            .map_err(|error| Error::Generic {
                store: STORE,
                source: error.into(),
            }),
    }
}

fn meta(location: Path, version: &Version) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: version.modified.into(),
        size: version.size,
        e_tag: Some(version.e_tag.clone()),
        version: None,
    }
}

fn got(location: &Path, got: Got) -> GetResult {
    let Got { open, range, first } = got;
    let meta = meta(location.clone(), &open.version);
    let at = range.start + first.len() as u64;
    let rest = rest(location.to_string(), open, at..range.end);
    let payload = match at == range.end {
        true => stream::once(async { Ok(first) }).boxed(),
        false => stream::once(async { Ok(first) }).chain(rest).boxed(),
    };
    super::get_result(GetResultPayload::Stream(payload), meta, range)
}

/// The further parts of a get. They are of the version of the first one, or an error ends them.
fn rest(
    location: String,
    open: Arc<Open>,
    range: Range<u64>,
) -> impl futures_util::Stream<Item = Result<Bytes>> + Send {
    stream::try_unfold(range.start, move |at| {
        let (location, open, end) = (location.clone(), Arc::clone(&open), range.end);
        async move {
            if at >= end {
                return Ok(None);
            }
            let piece = block(move || {
                let piece = objects::read_piece(&open.file, &location, at..end.min(at + PIECE))?;
                match open.is_still(&location)? {
                    true => Ok(piece),
                    false => Err(Fault::changed(&location)),
                }
            });
            let piece = piece.await?;
            let next = at + piece.len() as u64;
            Ok(Some((piece, next)))
        }
    })
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let Fault {
            kind,
            location: path,
            cause: source,
        } = fault;
        match kind {
            Kind::NotFound => Self::NotFound { path, source },
            Kind::Exists => Self::AlreadyExists { path, source },
            Kind::Changed => Self::Precondition { path, source },
            Kind::Denied => Self::PermissionDenied { path, source },
            Kind::NotSupported => Self::NotSupported { source },
            Kind::Other => Self::Generic {
                store: STORE,
                source,
            },
        }
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: STORE.to_owned(),
    }
}

impl fmt::Display for OdafsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OdafsStore({})", self.client().url())
    }
}

impl fmt::Debug for OdafsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for OdafsStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if !options.attributes.is_empty() {
            return Err(not_implemented("`put_opts` with attributes"));
        }
        let mode = match options.mode {
            PutMode::Overwrite => Mode::Overwrite,
            PutMode::Create => Mode::Create,
            PutMode::Update(version) => match version.e_tag {
                Some(e_tag) => Mode::Update(e_tag),
                None => {
                    let why = "an update needs the ETag of the version that it replaces";
                    return Err(Fault::new(Kind::NotSupported, location.as_ref(), why).into());
                }
            },
        };
        let location = location.to_string();
        let parts: Vec<Bytes> = payload.into_iter().collect();
        let put = self.block(move |objects| objects.put(&location, &parts, &mode));
        Ok(super::put_result(put.await?))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return Err(not_implemented("`put_multipart_opts` with attributes"));
        }
        let (objects, location) = (Arc::clone(&self.objects), location.to_string());
        let parts = block(move || Parts::begin(objects, &location)).await?;
        Ok(Box::new(OdafsUpload {
            parts: Arc::new(parts),
            bytes: 0,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            let why = "there are no versions of objects here, but for the present one";
            return Err(Fault::new(Kind::NotSupported, location.as_ref(), why).into());
        }
        if let Some(result) = self.get_at_once(location, &options) {
            return result;
        }
        let (objects, place) = (Arc::clone(&self.objects), location.clone());
        let found = block(move || -> Result<Got> {
            objects.get(place.as_ref(), |version| planned(&place, &options, version))
        });
        Ok(got(location, found.await?))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (location, ranges) = (location.to_string(), ranges.to_vec());
        self.block(move |objects| objects.get_ranges(&location, &ranges))
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .map(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let place = location.to_string();
                    store.block(move |objects| objects.delete(&place)).await?;
                    Ok(location)
                }
            })
            .buffered(DELETES)
            .boxed()
    }

    /// Lists one directory after the other, as the consumer asks, in no particular order.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let first = prefix.map_or_else(String::new, Path::to_string);
        let objects = Arc::clone(&self.objects);
        stream::try_unfold(VecDeque::from([first]), move |mut ahead| {
            let objects = Arc::clone(&objects);
            async move {
                let Some(directory) = ahead.pop_front() else {
                    return Ok::<_, Error>(None);
                };
                let listed = block(move || objects.list(&directory)).await?;
                let mut here = Vec::new();
                for entry in listed {
                    match entry {
                        Listed::Directory(location) => ahead.push_back(location),
                        Listed::Object(location, version) => {
                            here.extend(named(&location, &version))
                        }
                    }
                }
                Ok(Some((stream::iter(here.into_iter().map(Ok)), ahead)))
            }
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let directory = prefix.map_or_else(String::new, Path::to_string);
        let listed = self.block(move |objects| objects.list(&directory)).await?;
        let (mut prefixes, mut here) = (Vec::new(), Vec::new());
        for entry in listed {
            match entry {
                Listed::Directory(location) => prefixes.extend(Path::parse(location)),
                Listed::Object(location, version) => here.extend(named(&location, &version)),
            }
        }
        prefixes.sort_unstable();
        here.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(super::list_result(prefixes, here))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => Mode::Overwrite,
            CopyMode::Create => Mode::Create,
        };
        let (from, to) = (from.to_string(), to.to_string());
        self.block(move |objects| objects.copy(&from, &to, &mode))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let create = match options.target_mode {
            RenameTargetMode::Overwrite => false,
            RenameTargetMode::Create => true,
        };
        let (from, to) = (from.to_string(), to.to_string());
        self.block(move |objects| objects.rename(&from, &to, create))
            .await
    }
}

/// A name that no location can have belongs to no object.
fn named(location: &str, version: &Version) -> Option<ObjectMeta> {
    Some(meta(Path::parse(location).ok()?, version))
}

/// An upload in parts; see [`MultipartUpload`]. An upload that is neither completed nor aborted is removed when it is
/// dropped.
pub struct OdafsUpload {
    parts: Arc<Parts>,
    bytes: u64,
}

impl fmt::Debug for OdafsUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OdafsUpload({} bytes)", self.bytes)
    }
}

#[async_trait]
impl MultipartUpload for OdafsUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.bytes;
        self.bytes += data.content_length() as u64;
        let parts = Arc::clone(&self.parts);
        let data: Vec<Bytes> = data.into_iter().collect();
        async move { Ok(block(move || parts.write(&data, offset)).await?) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (parts, bytes) = (Arc::clone(&self.parts), self.bytes);
        let done = block(move || parts.complete(bytes)).await?;
        Ok(super::put_result(done))
    }

    async fn abort(&mut self) -> Result<()> {
        let parts = Arc::clone(&self.parts);
        block(move || parts.abort()).await;
        Ok(())
    }
}
