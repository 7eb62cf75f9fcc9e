//! What `odafs_pread` costs beside `File::read_at`: both read the same pages of the same file at random, in turns, each
//! through a client of its own. The C function is that of a shared library, as programs have it.
//!
//!     cargo run --release -p odafs-c --example against_rust -- URL FILE target/c/libodafs.so

use std::{
    ffi::{CString, c_char, c_int, c_void},
    hint::black_box,
    os::unix::ffi::OsStrExt as _,
    time::Instant,
};

const SIZE: usize = 4096;
const READS: usize = 20_000;
const TURNS: usize = 15;

type Connect = unsafe extern "C" fn(*const c_char) -> *const c_void;
type Open = unsafe extern "C" fn(*const c_void, *const c_char, c_int, u32) -> *const c_void;
type Read = unsafe extern "C" fn(*const c_void, *mut c_void, usize, u64) -> isize;

/// A function of a library that is never unloaded.
///
/// # Safety
/// The type is that of the function.
unsafe fn function<F: Copy>(library: *mut c_void, name: &std::ffi::CStr) -> F {
    // SAFETY: a library and a name; a pointer to a function is as long as one to data.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?} is not in the library");
        std::mem::transmute_copy(&found)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [url, path, library] = &arguments[..] else {
        return Err("against_rust URL FILE LIBRARY".into());
    };
    let c_text = |text: &std::ffi::OsString| CString::new(text.as_bytes());
    // SAFETY: a library of ours, whose functions have these types; handles stay open.
    let (read, c_file) = unsafe {
        let library = libc::dlopen(c_text(library)?.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "no library there: `make` in bindings/c");
        let connect: Connect = function(library, c"odafs_connect");
        let open: Open = function(library, c"odafs_open");
        let read: Read = function(library, c"odafs_pread");
        let client = connect(c_text(url)?.as_ptr());
        assert!(!client.is_null(), "connect");
        let file = open(client, c_text(path)?.as_ptr(), libc::O_RDONLY, 0);
        assert!(!file.is_null(), "open");
        (read, file)
    };
    let url = url.to_str().ok_or("a URL is UTF-8")?;
    let file = odafs::Client::connect(url)?.open(path)?;
    let pages = file.metadata()?.size / SIZE as u64;
    assert!(pages > 0, "a file of {SIZE} bytes at least");

    let mut buffer = vec![0u8; SIZE];
    let mut by_rust = |page: u64| file.read_at(&mut buffer, page * SIZE as u64).unwrap_or(0);
    let mut other = vec![0u8; SIZE];
    // SAFETY: an open file, and room for as many bytes.
    let mut by_c =
        |page: u64| unsafe { read(c_file, other.as_mut_ptr().cast(), SIZE, page * SIZE as u64) }
            as usize;
    (0..pages).for_each(|page| {
        black_box((by_rust(page), by_c(page)));
    });
    let mut state = 1u64;
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let order: Vec<u64> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % pages
        })
        .take(READS)
        .collect();
        let timed = |read: &mut dyn FnMut(u64) -> usize| {
            let began = Instant::now();
            let bytes: usize = order.iter().map(|page| black_box(read(*page))).sum();
            assert_eq!(bytes, READS * SIZE);
            began.elapsed().as_nanos() as f64 / READS as f64
        };
        times.0.push(timed(&mut by_rust));
        times.1.push(timed(&mut by_c));
    }
    let (rust, c) = (median(times.0), median(times.1));
    println!(
        "{SIZE} bytes at random: read_at {rust:.0} ns, odafs_pread {c:.0} ns, ratio {:.3}",
        c / rust
    );
    Ok(())
}
