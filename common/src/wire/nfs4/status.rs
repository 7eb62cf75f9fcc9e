//! The status of an operation and of a compound (RFC 7530, section 13; RFC 8881, section 15; RFC 7862, section 11;
//! RFC 8276, section 8.5).

use std::fmt;

/// The enumeration, the RFC's names and what people read.
macro_rules! statuses {
    ($($status:ident = $code:literal, $name:literal, $text:literal;)*) => {
        enumeration! {
            /// `nfsstat4`
            pub enum Status ("nfsstat4") {
                $(#[doc = $text] $status = $code,)*
            }
        }

        impl Status {
            /// The RFC's name without its prefix `NFS4ERR_` (`NFS4_` of success).
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$status => $name,)*
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$status => $text,)*
                })
            }
        }
    };
}

statuses! {
    Ok = 0, "OK", "success";
    Perm = 1, "PERM", "not owner";
    NoEnt = 2, "NOENT", "no such file or directory";
    Io = 5, "IO", "input/output error";
    Nxio = 6, "NXIO", "no such device or address";
    Access = 13, "ACCESS", "permission denied";
    Exist = 17, "EXIST", "file exists";
    XDev = 18, "XDEV", "link across file systems";
    NotDir = 20, "NOTDIR", "not a directory";
    IsDir = 21, "ISDIR", "is a directory";
    Inval = 22, "INVAL", "invalid argument";
    FBig = 27, "FBIG", "file too large";
    NoSpc = 28, "NOSPC", "no space left";
    RoFs = 30, "ROFS", "read-only file system";
    MLink = 31, "MLINK", "too many links";
    NameTooLong = 63, "NAMETOOLONG", "name too long";
    NotEmpty = 66, "NOTEMPTY", "directory not empty";
    DQuot = 69, "DQUOT", "quota exceeded";
    Stale = 70, "STALE", "stale file handle";
    BadHandle = 10001, "BADHANDLE", "invalid file handle";
    BadCookie = 10003, "BAD_COOKIE", "stale directory cookie";
    NotSupp = 10004, "NOTSUPP", "operation not supported";
    TooSmall = 10005, "TOOSMALL", "buffer too small";
    ServerFault = 10006, "SERVERFAULT", "server fault";
    BadType = 10007, "BADTYPE", "type not supported";
    Delay = 10008, "DELAY", "server busy, try later";
    Same = 10009, "SAME", "attributes are the same";
    Denied = 10010, "DENIED", "lock is held by another";
    Expired = 10011, "EXPIRED", "lease expired";
    Locked = 10012, "LOCKED", "a lock blocks the data";
    Grace = 10013, "GRACE", "server is in its grace period";
    FhExpired = 10014, "FHEXPIRED", "file handle expired";
    ShareDenied = 10015, "SHARE_DENIED", "open conflicts with another open";
    WrongSec = 10016, "WRONGSEC", "security flavour not accepted here";
    ClidInUse = 10017, "CLID_INUSE", "client id is in use by another";
    Resource = 10018, "RESOURCE", "server is out of resources (4.0)";
    Moved = 10019, "MOVED", "file system has moved";
    NoFileHandle = 10020, "NOFILEHANDLE", "no current file handle";
    MinorVersMismatch = 10021, "MINOR_VERS_MISMATCH", "minor version not supported";
    StaleClientId = 10022, "STALE_CLIENTID", "client id is unknown";
    StaleStateId = 10023, "STALE_STATEID", "stateid is from an earlier instance of the server";
    OldStateId = 10024, "OLD_STATEID", "stateid has been superseded";
    BadStateId = 10025, "BAD_STATEID", "invalid stateid";
    BadSeqId = 10026, "BAD_SEQID", "request is out of sequence";
    NotSame = 10027, "NOT_SAME", "attributes differ";
    LockRange = 10028, "LOCK_RANGE", "lock range overlaps one that is held";
    Symlink = 10029, "SYMLINK", "is a symbolic link";
    RestoreFh = 10030, "RESTOREFH", "no saved file handle";
    LeaseMoved = 10031, "LEASE_MOVED", "a file system of the lease has moved";
    AttrNotSupp = 10032, "ATTRNOTSUPP", "attribute not supported";
    NoGrace = 10033, "NO_GRACE", "reclaim outside of the grace period";
    ReclaimBad = 10034, "RECLAIM_BAD", "state cannot be reclaimed";
    ReclaimConflict = 10035, "RECLAIM_CONFLICT", "reclaim conflicts with other state";
    BadXdr = 10036, "BADXDR", "arguments cannot be decoded";
    LocksHeld = 10037, "LOCKS_HELD", "locks are held";
    OpenMode = 10038, "OPENMODE", "file is not open for this";
    BadOwner = 10039, "BADOWNER", "owner is unknown";
    BadChar = 10040, "BADCHAR", "character not supported";
    BadName = 10041, "BADNAME", "name not supported";
    BadRange = 10042, "BAD_RANGE", "lock range not supported";
    LockNotSupp = 10043, "LOCK_NOTSUPP", "lock cannot be changed at once";
    OpIllegal = 10044, "OP_ILLEGAL", "no such operation";
    Deadlock = 10045, "DEADLOCK", "lock would deadlock";
    FileOpen = 10046, "FILE_OPEN", "file is open";
    AdminRevoked = 10047, "ADMIN_REVOKED", "state was revoked by an administrator";
    CbPathDown = 10048, "CB_PATH_DOWN", "no path for callbacks";
    BadIoMode = 10049, "BADIOMODE", "layout does not fit the access";
    BadLayout = 10050, "BADLAYOUT", "invalid layout";
    BadSessionDigest = 10051, "BAD_SESSION_DIGEST", "wrong digest of the session secret";
    BadSession = 10052, "BADSESSION", "session is unknown";
    BadSlot = 10053, "BADSLOT", "slot is out of range";
    CompleteAlready = 10054, "COMPLETE_ALREADY", "reclaims were completed already";
    ConnNotBoundToSession = 10055, "CONN_NOT_BOUND_TO_SESSION", "connection does not belong to the session";
    DelegAlreadyWanted = 10056, "DELEG_ALREADY_WANTED", "delegation is wanted already";
    BackChanBusy = 10057, "BACK_CHAN_BUSY", "callbacks are outstanding";
    LayoutTryLater = 10058, "LAYOUTTRYLATER", "layout may be available later";
    LayoutUnavailable = 10059, "LAYOUTUNAVAILABLE", "no layouts here";
    NoMatchingLayout = 10060, "NOMATCHING_LAYOUT", "no such layout";
    RecallConflict = 10061, "RECALLCONFLICT", "layout is being recalled";
    UnknownLayoutType = 10062, "UNKNOWN_LAYOUTTYPE", "layout type is unknown";
    SeqMisordered = 10063, "SEQ_MISORDERED", "sequence id is out of order";
    SequencePos = 10064, "SEQUENCE_POS", "SEQUENCE must be the first operation";
    ReqTooBig = 10065, "REQ_TOO_BIG", "request too big";
    RepTooBig = 10066, "REP_TOO_BIG", "reply too big";
    RepTooBigToCache = 10067, "REP_TOO_BIG_TO_CACHE", "reply too big to be cached";
    RetryUncachedRep = 10068, "RETRY_UNCACHED_REP", "reply to the retried request was not cached";
    UnsafeCompound = 10069, "UNSAFE_COMPOUND", "compound cannot be retried safely";
    TooManyOps = 10070, "TOO_MANY_OPS", "too many operations in a compound";
    OpNotInSession = 10071, "OP_NOT_IN_SESSION", "operation needs a SEQUENCE before it";
    HashAlgUnsupp = 10072, "HASH_ALG_UNSUPP", "hash algorithm not supported";
    ClientIdBusy = 10074, "CLIENTID_BUSY", "client id has state";
    PnfsIoHole = 10075, "PNFS_IO_HOLE", "access to a hole of a sparse layout";
    SeqFalseRetry = 10076, "SEQ_FALSE_RETRY", "retry differs from the request";
    BadHighSlot = 10077, "BAD_HIGH_SLOT", "highest slot is out of range";
    DeadSession = 10078, "DEADSESSION", "session is dead";
    EncrAlgUnsupp = 10079, "ENCR_ALG_UNSUPP", "encryption algorithm not supported";
    PnfsNoLayout = 10080, "PNFS_NO_LAYOUT", "access without a layout";
    NotOnlyOp = 10081, "NOT_ONLY_OP", "operation must be alone in its compound";
    WrongCred = 10082, "WRONG_CRED", "wrong credential";
    WrongType = 10083, "WRONG_TYPE", "object has the wrong type";
    DirDelegUnavail = 10084, "DIRDELEG_UNAVAIL", "no directory delegation available";
    RejectDeleg = 10085, "REJECT_DELEG", "delegation was rejected";
    ReturnConflict = 10086, "RETURNCONFLICT", "layout must be returned first";
    DelegRevoked = 10087, "DELEG_REVOKED", "delegation or layout was revoked";
    PartnerNotSupp = 10088, "PARTNER_NOTSUPP", "copies between these servers are not supported";
    PartnerNoAuth = 10089, "PARTNER_NO_AUTH", "copies between these servers are not authorized";
    UnionNotSupp = 10090, "UNION_NOTSUPP", "arm of the union not supported";
    OffloadDenied = 10091, "OFFLOAD_DENIED", "destination does not allow the copy";
    WrongLfs = 10092, "WRONG_LFS", "label format not supported";
    BadLabel = 10093, "BADLABEL", "invalid label";
    OffloadNoReqs = 10094, "OFFLOAD_NO_REQS", "copy cannot be done as required";
    NoXattr = 10095, "NOXATTR", "no such extended attribute";
    Xattr2Big = 10096, "XATTR2BIG", "extended attribute too big";
}

// The `switch (nfsstat4 status)` of most results: a body with success, none with a failure.
status_union!(Status);

/// The result of an operation that returns nothing but its status.
pub type StatusResult = Result<(), Status>;
