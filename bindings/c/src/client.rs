//! Connecting.

use crate::error::{Error, at_border, handle, text};
use odafs::{Cache, Client, Options, Route, Url, Wait};
use std::{ffi::c_char, mem::offset_of, time::Duration};

/// A connection to one export of a server. Any number of threads may use it at the same time. They share its caches.
pub struct odafs_client {
    pub(crate) client: Client,
}

/// The route of reads: the cheapest one (the default).
pub const ODAFS_ROUTE_POLICY: u32 = 0;
/// Calls only.
pub const ODAFS_ROUTE_RPC: u32 = 1;
/// Guarded direct reads wherever there is a reference, calls otherwise.
pub const ODAFS_ROUTE_GUARDED: u32 = 2;
/// One-sided direct reads wherever there is a reference, calls otherwise. Connecting fails if the server does not grant
/// them.
pub const ODAFS_ROUTE_ONE_SIDED: u32 = 3;

/// This process may keep pages, which are checked when a file is opened, as NFS clients do (the default).
pub const ODAFS_CACHE_CLOSE_TO_OPEN: u32 = 0;
/// Every read sees the server.
pub const ODAFS_CACHE_OFF: u32 = 1;

/// A thread polls for 50 us, then sleeps (the default).
pub const ODAFS_WAIT_ADAPTIVE: u32 = 0;
/// A thread polls until the answer is there. This has the shortest latency and takes a whole processor.
pub const ODAFS_WAIT_SPIN: u32 = 1;
/// A thread sleeps at once.
pub const ODAFS_WAIT_SLEEP: u32 = 2;

/// Options of a connection. Call odafs_options_init() first, then change what you need. 0 and NULL mean the default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct odafs_options {
    /// Size of this structure in bytes when the program was compiled. odafs_options_init() sets it.
    pub size: usize,
    /// How long any one call may take in milliseconds, including reconnecting. 0: 30,000.
    pub deadline_ms: u64,
    /// Memory in bytes that the data cache and the directory of references share. 0: 64 MiB.
    pub memory_bytes: u64,
    /// ODAFS_ROUTE_...
    pub route: u32,
    /// ODAFS_CACHE_...
    pub cache: u32,
    /// ODAFS_WAIT_...
    pub wait: u32,
    /// The most connections of each kind. 0: 8.
    pub lanes: u32,
    /// 32 bytes, or NULL: this client's X25519 secret key, for servers that admit clients by key.
    pub identity: *const u8,
    /// 32 bytes, or NULL: the server's X25519 public key. A server with another key is refused.
    pub server_key: *const u8,
}

impl odafs_options {
    const DEFAULT: Self = Self {
        size: size_of::<Self>(),
        deadline_ms: 0,
        memory_bytes: 0,
        route: ODAFS_ROUTE_POLICY,
        cache: ODAFS_CACHE_CLOSE_TO_OPEN,
        wait: ODAFS_WAIT_ADAPTIVE,
        lanes: 0,
        identity: std::ptr::null(),
        server_key: std::ptr::null(),
    };

    /// # Safety
    /// Keys are NULL or point to 32 bytes.
    unsafe fn options(&self) -> Result<Options, Error> {
        let mut options = Options::default();
        let wrong = |field: &str, value: u32| {
            Error::invalid(format!(
                "odafs_options: {value} is no {field} (begin with odafs_options_init)"
            ))
        };
        options.route = match self.route {
            ODAFS_ROUTE_POLICY => Route::Policy,
            ODAFS_ROUTE_RPC => Route::Rpc,
            ODAFS_ROUTE_GUARDED => Route::Guarded,
            ODAFS_ROUTE_ONE_SIDED => Route::OneSided,
            other => return Err(wrong("route", other)),
        };
        options.cache = match self.cache {
            ODAFS_CACHE_CLOSE_TO_OPEN => Cache::CloseToOpen,
            ODAFS_CACHE_OFF => Cache::Off,
            other => return Err(wrong("cache", other)),
        };
        options.wait = match self.wait {
            ODAFS_WAIT_ADAPTIVE => Wait::Adaptive,
            ODAFS_WAIT_SPIN => Wait::Spin,
            ODAFS_WAIT_SLEEP => Wait::Block {
                spin: Duration::ZERO,
            },
            other => return Err(wrong("wait", other)),
        };
        if self.deadline_ms > 0 {
            options.deadline = Duration::from_millis(self.deadline_ms);
        }
        if self.memory_bytes > 0 {
            options.memory_bytes = self.memory_bytes;
        }
        if self.lanes > 0 {
            options.lanes = self.lanes;
        }
        // SAFETY: NULL or 32 bytes, is the caller's word; bytes may lie anywhere.
        (options.identity, options.server_key) = unsafe {
            (
                self.identity.cast::<[u8; 32]>().as_ref().copied(),
                self.server_key.cast::<[u8; 32]>().as_ref().copied(),
            )
        };
        Ok(options)
    }
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn odafs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Sets all of `options` to the defaults.
///
/// # Safety
/// `options` is NULL, or points to an odafs_options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_options_init(options: *mut odafs_options) {
    if !options.is_null() {
        // SAFETY: it is not NULL, and what it points to is plain data.
        unsafe { options.write(odafs_options::DEFAULT) };
    }
}

/// Connects with the default options. Returns NULL on failure. EINVAL: the URL is malformed. ENOENT or ECONNREFUSED:
/// nothing answers there, or no export contains the path. EACCES: the server does not admit this client.
///
/// # Safety
/// `url` is NULL or a text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_connect(url: *const c_char) -> *mut odafs_client {
    // SAFETY: the caller's word.
    unsafe { odafs_connect_with(url, std::ptr::null()) }
}

/// Connects. `options` may be NULL.
///
/// # Safety
/// `url` is NULL or a text that ends with a NUL; `options` is NULL or was set by odafs_options_init(), and its keys are
/// NULL or point to 32 bytes each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_connect_with(
    url: *const c_char,
    options: *const odafs_options,
) -> *mut odafs_client {
    at_border(|| {
        // SAFETY: the caller's word.
        let url = unsafe { text(url, "the URL")? };
        let url = url
            .to_str()
            .map_err(|_| Error::invalid("the URL is not UTF-8 (percent-encode its other bytes)"))?;
        let url: Url = url.parse()?;
        let options = if options.is_null() {
            Options::default()
        } else {
            // SAFETY: not NULL, and of the length that it says.
            unsafe { given(options)?.options()? }
        };
        let client = Client::connect_with(&url, options)?;
        Ok(Box::into_raw(Box::new(odafs_client { client })))
    })
}

/// Options from a program that may have been compiled with a shorter structure.
///
/// # Safety
/// It points to as many bytes as its `size` says.
unsafe fn given(options: *const odafs_options) -> Result<odafs_options, Error> {
    // The fields of the first release.
    const LEAST: usize = offset_of!(odafs_options, server_key) + size_of::<*const u8>();
    let mut whole = odafs_options::DEFAULT;
    // SAFETY: `size` is the first field of every version.
    let size = unsafe { (&raw const (*options).size).read() };
    if !(LEAST..=4096).contains(&size) {
        return Err(Error::invalid(format!(
            "odafs_options: a size of {size} (begin with odafs_options_init)"
        )));
    }
    // SAFETY: so many bytes are there on both sides, and all of them are plain data.
    unsafe {
        std::ptr::copy_nonoverlapping(
            options.cast::<u8>(),
            (&raw mut whole).cast::<u8>(),
            size.min(size_of::<odafs_options>()),
        );
    }
    Ok(whole)
}

/// Closes a connection. Its files and directories stay usable until they are closed. If `client` is NULL, does nothing.
///
/// # Safety
/// `client` is NULL, or came from odafs_connect() or odafs_connect_with() and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_disconnect(client: *mut odafs_client) {
    // SAFETY: the caller's word.
    unsafe { crate::file::free(client) };
}

/// Makes one call that does nothing. Returns 0 if the server answers.
///
/// # Safety
/// `client` is NULL or connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_ping(client: *const odafs_client) -> std::ffi::c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe { handle(client, "client")? }.client.ping()?;
        Ok(0)
    })
}
