//! The scheduler's policy for a thread that is to run before all others, or only where nothing else would. rustix has no call
//! that sets it.
#![allow(unsafe_code)]

use std::io;

/// From now on the calling thread runs only while its processor has nothing else to do (SCHED_IDLE), and whatever is woken
/// there takes the processor from it. A thread at nice 19 keeps the processor until its slice ends.
///
/// # Errors
/// What `sched_setscheduler` says.
pub fn only_when_idle() -> io::Result<()> {
    set(libc::SCHED_IDLE, 0)
}

/// From now on the calling thread runs as soon as it is woken, whatever else its processor has to do (SCHED_FIFO). It must sleep
/// often. The threads and processes that it starts are as others are.
///
/// # Errors
/// The user may not do that; or what else `sched_setscheduler` says.
pub fn before_others() -> io::Result<()> {
    set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
}

fn set(policy: libc::c_int, sched_priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the kernel reads the parameters, which live until the call has returned. 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the calling thread: field 41 of stat. The name, in parentheses, is field 2.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[test]
    fn the_thread_alone_runs_when_idle() {
        let idle = std::thread::spawn(|| {
            only_when_idle().unwrap();
            policy()
        });
        assert_eq!(idle.join().unwrap(), libc::SCHED_IDLE.to_string());
        assert_ne!(policy(), libc::SCHED_IDLE.to_string());
    }

    #[test]
    fn what_a_thread_before_others_starts_is_as_others_are() {
        let policies = std::thread::spawn(|| match before_others() {
            Ok(()) => [policy(), std::thread::spawn(policy).join().unwrap()],
            Err(refused) => {
                assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
                [libc::SCHED_FIFO, libc::SCHED_OTHER].map(|policy| policy.to_string())
            }
        });
        let [first, started] = policies.join().unwrap();
        assert_eq!(first, libc::SCHED_FIFO.to_string());
        assert_eq!(started, libc::SCHED_OTHER.to_string());
    }
}
