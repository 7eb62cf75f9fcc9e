use std::io;
use std::net::IpAddr;

/// Why there is no RDMA, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The program was built without RDMA devices.
    #[error("{}", super::NOT_BUILT_IN)]
    NotBuiltIn,
    /// The kernel has no RDMA at all.
    #[error(
        "the kernel's RDMA modules are not loaded: run `modprobe ib_uverbs rdma_ucm`, and without an adapter also \
         `modprobe rdma_rxe` (soft RoCE) or `modprobe siw` (soft iWARP)"
    )]
    NoModule,
    /// There is no device.
    #[error(
        "there is no RDMA device; without an adapter, `rdma link add rxe0 type rxe netdev eth0` creates one on a network \
         interface"
    )]
    NoDevice,
    /// No device has this address.
    #[error(
        "no RDMA device has the address {0}: name the address of a device's network interface (`rdma link` lists them; the \
         loopback interface has no device)"
    )]
    NoDeviceAt(IpAddr),
    /// This user may not open the device.
    #[error(
        "cannot open RDMA device {device} ({error}): this user must be able to read and write /dev/infiniband/*"
    )]
    NoPermission {
        /// The device.
        device: String,
        /// The system's error.
        error: io::Error,
    },
    /// The system refuses to lock memory.
    #[error(
        "cannot lock {bytes} bytes of memory for RDMA ({error}): raise the limit (`ulimit -l unlimited`, or \
         LimitMEMLOCK=infinity in a systemd unit), or use on-demand paging (`--odp`) if the device has it"
    )]
    LockedMemory {
        /// Number of bytes to register.
        bytes: usize,
        /// The system's error.
        error: io::Error,
    },
    /// Something else failed.
    #[error("{what}: {error}")]
    Failed {
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl From<VerbsError> for io::Error {
    fn from(error: VerbsError) -> Self {
        let kind = match &error {
            VerbsError::NotBuiltIn | VerbsError::NoModule | VerbsError::NoDevice => {
                io::ErrorKind::Unsupported
            }
            VerbsError::NoDeviceAt(_) => io::ErrorKind::AddrNotAvailable,
            VerbsError::NoPermission { .. } => io::ErrorKind::PermissionDenied,
            VerbsError::LockedMemory { .. } => io::ErrorKind::OutOfMemory,
            VerbsError::Failed { error, .. } => error.kind(),
        };
        io::Error::new(kind, error)
    }
}
