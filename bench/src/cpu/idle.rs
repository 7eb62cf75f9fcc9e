//! The scheduler's policy for what may run only where nothing else would. rustix has no call that sets it.
#![allow(unsafe_code)]

use std::io;

/// From now on the calling thread runs only while its processor has nothing else to do (SCHED_IDLE), and whatever is woken
/// there takes the processor from it. A thread at nice 19 keeps the processor until its slice ends.
///
/// # Errors
/// What `sched_setscheduler` says.
pub fn only_when_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live until the call has returned. 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_alone_runs_when_idle() {
        // The policy is field 41 of stat; the name, in parentheses, is field 2.
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, rest) = stat.rsplit_once(')').unwrap();
            rest.split_whitespace().nth(38).unwrap().to_owned()
        };
        let idle = std::thread::spawn(move || {
            only_when_idle().unwrap();
            policy()
        });
        assert_eq!(idle.join().unwrap(), libc::SCHED_IDLE.to_string());
        assert_ne!(policy(), libc::SCHED_IDLE.to_string());
    }
}
