//! The network status monitor, version 1 (X/Open XNFS, chapter 11): hosts tell each other that they have restarted.

/// Program number.
pub const PROGRAM: u32 = 100_024;
/// The version spoken here.
pub const VERSION: u32 = 1;
/// The longest name of a host (`SM_MAXSTRLEN`), in bytes.
pub const MAX_NAME: u32 = 1024;

enumeration! {
    /// The procedures.
    pub enum Procedure ("NSM procedure") {
        /// Does nothing.
        Null = 0,
        /// [`HostName`] to [`Monitored`].
        Stat = 1,
        /// [`Monitor`] to [`Monitored`].
        Monitor = 2,
        /// [`MonitorId`] to the state of the server, a `u32`.
        Unmonitor = 3,
        /// [`Caller`] to the state of the server, a `u32`.
        UnmonitorAll = 4,
        /// Nothing to nothing.
        SimulateCrash = 5,
        /// [`Notification`] to nothing.
        Notify = 6,
    }
}

enumeration! {
    /// `res`
    pub enum Outcome ("NSM res") {
        /// The host is monitored.
        Success = 0,
        /// It is not.
        Fail = 1,
    }
}

opaque! {
    /// The name of a host (`sm_name`), any bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HostName<'a>("host name", MAX_NAME);
}

record! {
    /// Whom to tell of a change (`my_id`): a procedure of a program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Caller<'a> {
        /// The host.
        pub name: HostName<'a>,
        /// The program.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// Its procedure.
        pub procedure: u32,
    }
}

record! {
    /// Whom to monitor for whom (`mon_id`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MonitorId<'a> {
        /// The host to monitor.
        pub host: HostName<'a>,
        /// Who is told.
        pub caller: Caller<'a>,
    }
}

record! {
    /// Arguments of MON (`mon`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Monitor<'a> {
        /// Whom, for whom.
        pub id: MonitorId<'a>,
        /// Told with it.
        pub private: [u8; 16],
    }
}

record! {
    /// Results of STAT and MON (`sm_stat_res`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Monitored {
        /// Whether the host is monitored.
        pub outcome: Outcome,
        /// The state of the server: odd while it runs, and greater with each start.
        pub state: u32,
    }
}

record! {
    /// Arguments of NOTIFY (`stat_chge`): a host has restarted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Notification<'a> {
        /// Which.
        pub host: HostName<'a>,
        /// Its state.
        pub state: u32,
    }
}

#[cfg(test)]
mod tests;
