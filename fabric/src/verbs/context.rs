//! Open devices.

#![allow(unsafe_code)]

use super::VerbsError;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, Weak};
use ibverbs_sys::{
    _compat_ibv_port_attr, IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2B,
    IBV_TRANSPORT_IWARP, ibv_context, ibv_device, ibv_device_attr, ibv_gid, ibv_port_attr,
};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Vendor and part of Linux's soft devices.
const RXE_VENDOR: u32 = 0xff_ffff;
const SIW_VENDOR: u32 = 0x62_6d74;

/// An open device.
pub struct Context {
    context: NonNull<ibv_context>,
    attributes: ibv_device_attr,
    iwarp: bool,
    /// Whether the device has gone. One that comes back under its name is another device.
    lost: AtomicBool,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Each device is opened once.
static OPEN: Mutex<Option<HashMap<String, Weak<Context>>>> = Mutex::new(None);

/// The devices of this host by name.
struct List {
    devices: NonNull<*mut ibv_device>,
    length: usize,
}

impl List {
    fn new() -> Result<List, VerbsError> {
        let mut length = 0;
        // SAFETY: it only fills in the number.
        let devices = unsafe { ibverbs_sys::ibv_get_device_list(&mut length) };
        match NonNull::new(devices) {
            Some(devices) => Ok(List {
                devices,
                length: usize::try_from(length).unwrap_or(0),
            }),
            None => Err(match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOSYS) => VerbsError::NoModule,
                error => VerbsError::Failed {
                    what: "ibv_get_device_list",
                    error,
                },
            }),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (String, *mut ibv_device)> {
        // SAFETY: so many devices are in the list, which lives as long as `self`.
        let devices = unsafe { std::slice::from_raw_parts(self.devices.as_ptr(), self.length) };
        devices.iter().map(|device| {
            // SAFETY: a device's name is a C string inside of it.
            let name = unsafe { CStr::from_ptr((**device).name.as_ptr()) };
            (name.to_string_lossy().into_owned(), *device)
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `ibv_get_device_list` and nothing of it is used any more.
        unsafe { ibverbs_sys::ibv_free_device_list(self.devices.as_ptr()) };
    }
}

/// Names of the devices of this host.
pub fn names() -> Result<Vec<String>, VerbsError> {
    Ok(List::new()?.iter().map(|(name, _)| name).collect())
}

/// Whether the error of a query means that the device no longer exists, which is how the kernel answers after it has
/// removed it. Other errors mean that the query itself failed, for example for lack of memory.
fn tells_of_loss(errno: i32) -> bool {
    [libc::EIO, libc::ENODEV, libc::ENXIO].contains(&errno)
}

impl Context {
    /// Opens a device, or returns the open one.
    pub fn open(name: &str) -> Result<Arc<Context>, VerbsError> {
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        let known = open.get(name).and_then(Weak::upgrade);
        if let Some(context) = known.filter(|context| !context.has_gone()) {
            return Ok(context);
        }
        // A child of a fork must not take pages away from a device; where the kernel sees to it this does nothing.
        // SAFETY: it may be called at any time before memory is registered, and again.
        unsafe { ibverbs_sys::ibv_fork_init() };
        let list = List::new()?;
        let (_, device) = list
            .iter()
            .find(|(known, _)| known == name)
            .ok_or(VerbsError::NoDevice)?;
        // SAFETY: the device is in a list that lives.
        let context = NonNull::new(unsafe { ibverbs_sys::ibv_open_device(device) });
        let context = context.ok_or_else(|| match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::PermissionDenied => VerbsError::NoPermission {
                device: name.into(),
                error,
            },
            error => VerbsError::Failed {
                what: "ibv_open_device",
                error,
            },
        })?;
        let mut opened = Context {
            context,
            attributes: ibv_device_attr::default(),
            // SAFETY: as above.
            iwarp: unsafe { (*device).transport_type } == IBV_TRANSPORT_IWARP,
            lost: AtomicBool::new(false),
        };
        // SAFETY: the context is open, and the attributes are filled in.
        let result =
            unsafe { ibverbs_sys::ibv_query_device(context.as_ptr(), &mut opened.attributes) };
        if result != 0 {
            return Err(VerbsError::Failed {
                what: "ibv_query_device",
                error: io::Error::from_raw_os_error(result.abs()),
            });
        }
        let opened = Arc::new(opened);
        open.retain(|_, context| context.strong_count() > 0);
        open.insert(name.into(), Arc::downgrade(&opened));
        Ok(opened)
    }

    /// For calls of libibverbs while `self` lives.
    pub fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The device has gone.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether the device has gone. Asks the kernel, which may remove the device before RDMA-CM reports it.
    pub fn has_gone(&self) -> bool {
        if self.lost.load(Ordering::Relaxed) {
            return true;
        }
        let mut attributes = ibv_device_attr::default();
        // SAFETY: the context is open, and the attributes are filled in.
        let result = unsafe { ibverbs_sys::ibv_query_device(self.raw(), &mut attributes) };
        let gone = result != 0 && tells_of_loss(result.abs());
        if gone {
            self.lose();
        }
        gone
    }

    /// The capabilities of the device.
    pub fn attributes(&self) -> &ibv_device_attr {
        &self.attributes
    }

    /// Its firmware's version.
    pub fn firmware(&self) -> String {
        text(&self.attributes.fw_ver)
    }

    /// Whether it speaks iWARP.
    pub fn is_iwarp(&self) -> bool {
        self.iwarp
    }

    /// Whether it is Linux's soft RoCE.
    pub fn is_rxe(&self) -> bool {
        self.attributes.vendor_id == RXE_VENDOR && !self.iwarp
    }

    /// Whether it is Linux's soft iWARP.
    pub fn is_siw(&self) -> bool {
        self.attributes.vendor_id == SIW_VENDOR && self.iwarp
    }

    /// Whether it has memory windows of type 2.
    pub fn has_windows(&self) -> bool {
        let type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        self.attributes.max_mw > 0 && self.attributes.device_cap_flags & type_2 != 0
    }

    /// State of a port.
    pub fn port(&self, number: u8) -> Option<ibv_port_attr> {
        let mut attributes = ibv_port_attr::default();
        let place = (&raw mut attributes).cast::<_compat_ibv_port_attr>();
        // SAFETY: the call fills in the older, shorter structure that the newer one begins with.
        let result = unsafe { ibverbs_sys::ibv_query_port(self.raw(), number, place) };
        (result == 0).then_some(attributes)
    }

    /// An address of a port.
    pub fn gid(&self, port: u8, index: i32) -> Option<[u8; 16]> {
        let mut gid = ibv_gid::default();
        // SAFETY: the context is open, and the address is filled in.
        let result = unsafe { ibverbs_sys::ibv_query_gid(self.raw(), port, index, &mut gid) };
        // SAFETY: each member of the union is 16 bytes of plain data.
        (result == 0).then_some(unsafe { gid.raw })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all that was made of the context holds it.
        unsafe { ibverbs_sys::ibv_close_device(self.context.as_ptr()) };
    }
}

fn text(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|&char| char as u8);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Addresses of the host's network interfaces.
pub fn interface_addresses() -> Vec<(String, std::net::IpAddr)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: it fills in the head of a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), list);
    // SAFETY: the list's entries live until it is freed, and their names and addresses with them.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: as above; an address is as long as its family says, and only that much is read.
        let address = unsafe { address_of(entry.ifa_addr) };
        if let Some(address) = address {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: the list came from `getifaddrs`.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// `raw` is null or an address as long as its family requires.
unsafe fn address_of(raw: *const libc::sockaddr) -> Option<std::net::IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from(raw.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = &*raw.cast::<libc::sockaddr_in>();
                Some(u32::from_be(address.sin_addr.s_addr).to_be_bytes().into())
            }
            libc::AF_INET6 => {
                let address = &*raw.cast::<libc::sockaddr_in6>();
                Some(address.sin6_addr.s6_addr.into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tells_of_loss;

    #[test]
    fn a_query_that_fails_condemns_no_device_that_is_there() {
        for errno in [libc::EIO, libc::ENODEV, libc::ENXIO] {
            assert!(tells_of_loss(errno), "{errno}");
        }
        for errno in [
            libc::ENOMEM,
            libc::EINTR,
            libc::EAGAIN,
            libc::EPERM,
            libc::EMFILE,
        ] {
            assert!(!tells_of_loss(errno), "{errno}");
        }
    }
}
