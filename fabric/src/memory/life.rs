use super::mapping::Mapping;
use crate::sync::Arc;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The value of a life word after the server's end.
#[cfg(not(shuttle))]
const POISON: u64 = 0;

/// Size in bytes of the control page.
pub(crate) const CONTROL_BYTES: usize = 4096;

/// A client's view of a life word.
#[derive(Clone)]
pub struct LifeView(Arc<View>);

struct View {
    /// Other views of the process may share it.
    control: Arc<Mapping>,
    life: u64,
    /// Whether the instance has ended as far as this view is concerned.
    ended: AtomicBool,
}

impl LifeView {
    pub(crate) fn new(control: Arc<Mapping>, life: u64) -> Self {
        Self(Arc::new(View {
            control,
            life,
            ended: AtomicBool::new(false),
        }))
    }

    /// Whether that boot instance of the server still lives.
    #[inline]
    pub fn is_alive(&self) -> bool {
        let View {
            control,
            life,
            ended,
        } = &*self.0;
        control.word(0).load(Ordering::Acquire) == *life && !ended.load(Ordering::Acquire)
    }

    /// Ends the instance for this view, for a server that died and has no successor.
    #[cfg(not(shuttle))]
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

#[cfg(not(shuttle))]
mod in_file {
    use super::{Arc, CONTROL_BYTES, LifeView, Mapping, POISON, io};
    use crate::memory::mapping::Protection;
    use crate::memory::memfd;
    use rustix::fs::{Mode, OFlags, fstat, open};
    use std::fs::{self, File};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    /// The control word of one boot instance of a server. While it holds the instance's number, clients may trust what
    /// they read in the arena. It is in a file of the state directory, so that a successor can poison it if a killed
    /// server could not.
    ///
    /// The server writes to the file rather than to a mapping of it, which could fault if something has happened to the
    /// file.
    #[derive(Debug)]
    pub struct LifeWord {
        file: File,
        shared: OwnedFd,
        life: u64,
    }

    impl LifeWord {
        /// Starts the instance `life` (not 0) with a new file at `path`, after poisoning the old one.
        pub fn create(path: &Path, life: u64) -> io::Result<LifeWord> {
            Self::poison_predecessor(path)?;
            let fresh = path.with_extension("new");
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let flags =
                OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = File::from(open(&fresh, flags, Mode::RUSR | Mode::WUSR)?);
            let word = Self::start(file, life)?;
            fs::rename(&fresh, path)?;
            Ok(word)
        }

        /// A life word without a file, for servers without a state directory. After a kill nobody can poison it.
        pub fn in_memory(life: u64) -> io::Result<LifeWord> {
            Self::start(
                File::from(memfd::create("odafs-life", CONTROL_BYTES as u64)?),
                life,
            )
        }

        fn start(file: File, life: u64) -> io::Result<LifeWord> {
            if life == POISON {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "life 0 is the dead one",
                ));
            }
            let mut control = [0; CONTROL_BYTES];
            control[..8].copy_from_slice(&life.to_ne_bytes());
            file.write_all_at(&control, 0)?;
            let file = OwnedFd::from(file);
            let shared = memfd::reopen_read_only(&file)?;
            Ok(LifeWord {
                file: file.into(),
                shared,
                life,
            })
        }

        /// Invalidates everything that an earlier instance of the server handed out. Does nothing if there is no file.
        pub fn poison_predecessor(path: &Path) -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match open(path, flags, Mode::empty()) {
                Ok(fd) => File::from(fd).write_all_at(&POISON.to_ne_bytes(), 0),
                Err(rustix::io::Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        /// Invalidates everything that this server handed out.
        pub fn poison(&self) {
            if let Err(error) = self.file.write_all_at(&POISON.to_ne_bytes(), 0) {
                tracing::error!(%error, "the life word could not be poisoned: clients may go on reading the old arena");
            }
        }

        /// The number of this instance.
        pub fn life(&self) -> u64 {
            self.life
        }

        /// A read-only descriptor for a client to map.
        pub fn share(&self) -> io::Result<OwnedFd> {
            self.shared.try_clone()
        }

        /// The descriptor itself, to pass on without making more.
        pub(crate) fn shared(&self) -> BorrowedFd<'_> {
            self.shared.as_fd()
        }

        /// A view of this process.
        pub(crate) fn view(&self) -> io::Result<LifeView> {
            LifeView::check(self.shared.as_fd(), self.life)?;
            let control = Arc::new(LifeView::map(self.shared.as_fd())?);
            Ok(LifeView::new(control, self.life))
        }
    }

    impl LifeView {
        /// Refuses what cannot be the life word of `life`.
        ///
        /// # Errors
        /// `InvalidData` if the file has another length, or the life is none.
        pub(crate) fn check(fd: BorrowedFd<'_>, life: u64) -> io::Result<()> {
            if life == POISON || fstat(fd)?.st_size != CONTROL_BYTES as i64 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "not a life word",
                ));
            }
            Ok(())
        }

        /// Maps a descriptor from [`LifeWord::share`], which was [checked](Self::check).
        pub(crate) fn map(fd: BorrowedFd<'_>) -> io::Result<Mapping> {
            Mapping::of(fd, CONTROL_BYTES, Protection::Private)
        }
    }
}

#[cfg(not(shuttle))]
pub use in_file::LifeWord;

#[cfg(shuttle)]
mod in_heap {
    use super::{Arc, CONTROL_BYTES, LifeView, Mapping, Ordering, io};
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};

    static FILES: Mutex<BTreeMap<PathBuf, Arc<Mapping>>> = Mutex::new(BTreeMap::new());

    /// The control word of one server life; the "file" is an entry of a table.
    pub struct LifeWord {
        control: Arc<Mapping>,
        life: u64,
    }

    impl LifeWord {
        /// Starts the instance `life` under `path`, after poisoning the old one.
        pub fn create(path: &Path, life: u64) -> io::Result<LifeWord> {
            Self::poison_predecessor(path)?;
            let word = Self::in_memory(life)?;
            let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(path.to_owned(), Arc::clone(&word.control));
            Ok(word)
        }

        /// A life word that no successor can poison.
        pub fn in_memory(life: u64) -> io::Result<LifeWord> {
            let control = Arc::new(Mapping::new(CONTROL_BYTES)?);
            control.word(0).store(life, Ordering::Release);
            Ok(LifeWord { control, life })
        }

        /// Invalidates everything that an earlier instance of the server handed out.
        pub fn poison_predecessor(path: &Path) -> io::Result<()> {
            let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(control) = files.remove(path) {
                control.word(0).store(0, Ordering::Release);
            }
            Ok(())
        }

        /// Invalidates everything that this server handed out.
        pub fn poison(&self) {
            self.control.word(0).store(0, Ordering::Release);
        }

        /// The number of this instance.
        pub fn life(&self) -> u64 {
            self.life
        }

        /// A view of this process.
        pub(crate) fn view(&self) -> io::Result<LifeView> {
            Ok(LifeView::new(Arc::clone(&self.control), self.life))
        }
    }
}

#[cfg(shuttle)]
pub use in_heap::LifeWord;
