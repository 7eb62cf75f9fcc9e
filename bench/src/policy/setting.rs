//! The file, its server, and other clients of that.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use odafs::{Cache, Client, File, Granted, Options, Route};

use super::load;
use super::plan::{Case, Mode, Over, Plan, Shift};
use crate::cpu::{self, Placement};
use crate::floors::local::{self, LocalFile};
use crate::process::{self, Fabric, ServerPlan, ServerProcess};
use crate::scratch::Scratch;

/// The file's name below the served directory.
const FILE: &str = "file";
/// Another of the same size, which nobody has mapped.
const OTHER: &str = "other";

/// What all cases share.
pub struct Setting {
    program: PathBuf,
    cache_bytes: u64,
    file_bytes: u64,
    clock_ns: u64,
    everywhere: Vec<usize>,
    placement: Option<Placement>,
    local: LocalFile,
    directory: Scratch,
    server: Option<Running>,
}

/// The server of some cases, and who else reads from it.
struct Running {
    process: ServerProcess,
    /// The first that it is for.
    case: Case,
    others: Option<Others>,
}

/// Other clients, in a process of their own that ends with this value.
struct Others {
    child: Child,
    fabric: Over,
    load: u32,
    shift: Option<Shift>,
    working_set_bytes: u64,
}

impl Setting {
    /// Makes the file.
    ///
    /// # Errors
    /// It could not be made.
    pub fn new(plan: &Plan, program: PathBuf) -> Result<Self> {
        let file_bytes = plan.file_mib << 20;
        let directory = Scratch::for_bytes(2 * file_bytes).context("cannot make a directory")?;
        let path = directory.path().join(FILE);
        local::write_random(&path, file_bytes, |_| {})
            .with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::copy(&path, directory.path().join(OTHER)).context("cannot copy a file")?;
        Ok(Self {
            program,
            cache_bytes: plan.cache_mib << 20,
            file_bytes,
            clock_ns: crate::clock::overhead_ns(),
            everywhere: cpu::allowed(),
            placement: Placement::apart(),
            local: LocalFile::open(&path, true)?,
            directory,
            server: None,
        })
    }

    /// The file without a server.
    pub fn local(&self) -> &LocalFile {
        &self.local
    }

    /// What reading the clock costs.
    pub fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Where client and server run, as a sentence.
    pub fn placement(&self) -> String {
        match &self.placement {
            Some(p) => format!(
                "client bound to processor {}, server and other clients to processor {}, neither where it is asked \
                 what sharing processors costs",
                p.client[0], p.server[0]
            ),
            None => "not bound: there is one processor".to_owned(),
        }
    }

    /// Starts what a case needs: the server with the file in its memory, and others who load it. What runs and fits
    /// stays.
    ///
    /// # Errors
    /// The server could not be started or read.
    pub fn prepare(&mut self, case: &Case) -> Result<()> {
        let fits = |running: &Running| running.case.shares_server(case);
        if !self.server.as_ref().is_some_and(fits) {
            self.server = None;
            self.server = Some(self.start(case)?);
        }
        let bound = self.placement.as_ref().filter(|_| case.is_bound());
        let cpus = bound.map_or(&self.everywhere, |p| &p.client);
        cpu::bind(cpus).context("cannot bind to a processor")?;
        let running = self.server.as_mut().context("there is no server")?;
        let stays = |others: &Others| {
            (others.fabric, others.load, others.shift) == (case.fabric, case.load, case.shift)
                && others.working_set_bytes == case.working_set_bytes
        };
        if !running.others.as_ref().is_some_and(stays) {
            running.others = None;
            if case.load > 0 {
                let server = self.placement.as_ref().map(|p| p.server.as_slice());
                running.others = Some(Others::start(
                    &self.program,
                    &running.process,
                    case,
                    server,
                )?);
            }
        }
        Ok(())
    }

    fn start(&self, case: &Case) -> Result<Running> {
        let placement = self.placement.as_ref().filter(|_| case.is_bound());
        let cpus = placement.map_or(&self.everywhere, |p| &p.server);
        let process = ServerProcess::start(&ServerPlan {
            program: self.program.clone(),
            directory: self.directory.path().to_owned(),
            read_only: false,
            cache_bytes: case.server_memory().unwrap_or(self.cache_bytes),
            fabrics: vec![Fabric::Shm, Fabric::Iwarp],
            direct: match case.served {
                Mode::OneSided => Some("one-sided"),
                Mode::Guarded => Some("guarded"),
                Mode::Default => None,
            },
            spin: None,
            nfs: true,
            cpus: Some(cpus.clone()),
            arguments: Vec::new(),
        })?;
        let options = Options {
            route: Route::Rpc,
            cache: Cache::Off,
            ..Options::default()
        };
        let file = Client::connect_with(&process.url(Fabric::Shm)?, options)?.open(FILE)?;
        let (mut piece, mut offset) = (vec![0; 1 << 20], 0);
        while offset < self.file_bytes {
            offset += match file.read_at(&mut piece, offset)? {
                0 => bail!("the server's file is shorter than what was written"),
                n => n as u64,
            };
        }
        Ok(Running {
            process,
            case: case.clone(),
            others: None,
        })
    }

    /// Connects as these options say, and opens the file.
    ///
    /// # Errors
    /// The server refused it.
    pub fn open(&self, case: &Case, options: Options) -> Result<File> {
        let running = self.server.as_ref().context("there is no server")?;
        let url = running.process.url(fabric_of(case.fabric))?;
        let path = match case.shift {
            Some(Shift::Writes) => OTHER,
            _ => FILE,
        };
        Ok(Client::connect_with(&url, options)?.open(path)?)
    }

    /// Others who come for a while come, or go.
    ///
    /// # Errors
    /// They have ended.
    pub fn let_others(&self, come: bool) -> Result<()> {
        let others = self.server.as_ref().and_then(|s| s.others.as_ref());
        others.map_or(Ok(()), |others| others.run(come))
    }

    /// What a client with default options is granted.
    ///
    /// # Errors
    /// The server refused the connection.
    pub fn granted(&self, case: &Case) -> Result<Option<Granted>> {
        let file = self.open(case, Options::default())?;
        Ok(file.client().server().granted)
    }

    /// CPU time of the server.
    pub fn server_cpu_ns(&self) -> u64 {
        self.server.as_ref().map_or(0, |s| s.process.cpu_ns())
    }

    /// Percent of a processor that the server takes while nothing is measured.
    pub fn load_percent(&self) -> f64 {
        const TIME: Duration = Duration::from_millis(100);
        let before = self.server_cpu_ns();
        std::thread::sleep(TIME);
        let took = self.server_cpu_ns().saturating_sub(before);
        took as f64 * 100.0 / TIME.as_nanos() as f64
    }
}

impl Others {
    fn start(
        program: &std::path::Path,
        server: &ServerProcess,
        case: &Case,
        cpus: Option<&[usize]>,
    ) -> Result<Self> {
        let url = odafs::Url {
            path: format!(
                "/{}",
                if case.shift.is_some_and(|s| s != Shift::Reads) {
                    OTHER
                } else {
                    FILE
                }
            )
            .into_bytes(),
            ..server.url(fabric_of(case.fabric))?
        };
        let mut command = Command::new(program);
        command
            .args(["bench", "policy", "--load-server"])
            .arg(server.id().to_string())
            .arg("--load-percent")
            .arg(case.load.to_string())
            .arg("--load-url")
            .arg(url.to_string())
            .args(
                (case.shift == Some(Shift::Writes))
                    .then(|| format!("--load-writes={}", case.working_set_bytes)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = process::spawn_on(&mut command, cpus).context("cannot start clients")?;
        let line = process::first_line(&mut child);
        let others = Self {
            child,
            fabric: case.fabric,
            load: case.load,
            shift: case.shift,
            working_set_bytes: case.working_set_bytes,
        };
        match line?.trim() {
            "ready" => {
                others.run(case.shift.is_none())?;
                Ok(others)
            }
            _ => bail!("the clients that load the server have ended, for the reason above"),
        }
    }
}

impl Others {
    fn run(&self, run: bool) -> Result<()> {
        let mut stdin = self.child.stdin.as_ref().context("they have no stdin")?;
        let word = if run { load::RUN } else { load::PAUSE };
        writeln!(stdin, "{word}").context("clients that load the server have ended")
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // It has nothing to lose; neither call can fail in a way that leaves more to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fabric_of(over: Over) -> Fabric {
    match over {
        Over::Shm => Fabric::Shm,
        Over::Iwarp => Fabric::Iwarp,
    }
}
