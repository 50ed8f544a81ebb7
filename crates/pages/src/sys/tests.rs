//! Faults that are not ours, each in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use chunkcomm_testkit::itself;

use super::*;
use crate::{
    AccessError, Arrivals, Awaiting, RecvEngine, SendEngine, TrackedInput, TrackedOutput, Tracking,
};

const CHILD: &str = "CHUNKCOMM_TRACKED_FAULT";

fn child(test: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut program = itself(&format!("sys::tests::{test}"));
    Some(program.arg("--nocapture").env(CHILD, "").output().expect("it runs"))
}

/// Faults outside all regions, while one is protected by the handler.
fn fault_elsewhere() {
    let settings = Tracking::default().with_engine(SendEngine::Mprotect);
    let mut output = TrackedOutput::<u8>::new(100, settings).expect("works on every Linux");
    let foreign = Face::<u8>::new(100, Backing::File).expect("memory");
    foreign.region().protect(0..page_bytes(), Access::None).expect("ours");
    // No region of an engine: nobody will open it.
    let _ = output.track(|bytes| bytes[0] = foreign.elements()[0], |_| Ok::<_, AccessError>(()));
}

#[test]
fn a_fault_of_others_goes_to_their_handler() {
    extern "C" fn theirs(_: libc::c_int) {
        let words = "their handler\n";
        // SAFETY: writes the bytes of `words` and ends the process, both safe in a handler.
        unsafe {
            libc::write(libc::STDOUT_FILENO, words.as_ptr().cast(), words.len());
            libc::_exit(7);
        }
    }
    let Some(output) = child("a_fault_of_others_goes_to_their_handler") else {
        let handler: extern "C" fn(libc::c_int) = theirs;
        // SAFETY: the handler only calls what is safe in one.
        unsafe { libc::signal(libc::SIGSEGV, handler as libc::sighandler_t) };
        return fault_elsewhere();
    };
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("their handler"));
}

#[test]
fn a_fault_of_others_without_a_handler_ends_the_process() {
    let Some(output) = child("a_fault_of_others_without_a_handler_ends_the_process") else {
        return fault_elsewhere();
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

#[test]
fn a_read_of_a_region_gives_the_bytes_written_at_its_face() {
    let mut face = Face::<u16>::new(5_000, Backing::File).expect("memory");
    face.elements_mut()[4_999] = 0x0102;
    let mut bytes = [0; 2];
    face.region().read_at(9_998, &mut bytes).expect("within the file");
    assert_eq!(u16::from_ne_bytes(bytes), 0x0102);
    assert!(face.region().read_at(3 * page_bytes(), &mut bytes).is_err(), "behind the end");
}

#[test]
fn bytes_put_at_the_second_address_are_read_at_the_face() {
    let face = Face::<u16>::new(5_000, Backing::Twice).expect("memory");
    face.region().protect(0..3 * page_bytes(), Access::None).expect("ours");
    let bytes = 0x0102_u16.to_ne_bytes();
    face.region().write_at(9_998, &bytes);
    face.region().protect(0..3 * page_bytes(), Access::Read).expect("ours");
    assert_eq!((face.elements()[4_998], face.elements()[4_999]), (0, 0x0102));
    let behind = std::panic::catch_unwind(|| face.region().write_at(3 * page_bytes() - 1, &bytes));
    assert!(behind.is_err(), "behind the end");
}

#[test]
fn a_page_that_came_can_be_read_again_when_the_kernel_has_dropped_its_entry() {
    for engine in [RecvEngine::Minor, RecvEngine::Mprotect] {
        let Ok(mut input) =
            TrackedInput::<u64>::new(5_000, Awaiting::default().with_engine(engine))
        else {
            eprintln!("skipped {engine}");
            continue;
        };
        let read = |elements: &[u64], arrivals: &Arrivals<'_>| {
            arrivals.wait(0..5_000).expect("all comes");
            let (first, bytes) = (elements.as_ptr(), size_of_val(elements));
            // SAFETY: the first is an element. Its memory is a file's, which keeps the bytes, so no value
            // changes when the mapping's entries go.
            let before = unsafe { ptr::read_volatile(first) };
            let result =
                unsafe { libc::madvise(first.cast_mut().cast(), bytes, libc::MADV_DONTNEED) };
            checked(result).expect("ours");
            // SAFETY: as above.
            before + unsafe { ptr::read_volatile(first) }
        };
        let (sum, _) = input.track(read, |filler| filler.put(0, &[3; 5_000])).expect("all came");
        assert_eq!(sum, 6, "{engine}");
    }
}

/// A write of it would be noticed by nobody.
#[test]
fn a_forked_process_has_no_part_in_the_buffer() {
    let touch = |first: *mut u8| {
        // SAFETY: between `fork` and its end the child reads and writes one byte and calls `_exit`, all safe
        // in the child of a process with threads. The parent waits for its own child.
        unsafe {
            let child = checked(libc::fork()).expect("a child");
            if child == 0 {
                ptr::write_volatile(first, 1 + ptr::read_volatile(first));
                libc::_exit(0);
            }
            let mut status = 0;
            checked(libc::waitpid(child, &raw mut status, 0)).expect("a child");
            (libc::WIFSIGNALED(status)).then(|| libc::WTERMSIG(status))
        }
    };
    for engine in SendEngine::ALL {
        let settings = Tracking::default().with_engine(*engine);
        let Ok(mut output) = TrackedOutput::<u8>::new(10_000, settings) else {
            eprintln!("skipped {engine}");
            continue;
        };
        let write = |bytes: &mut [u8]| {
            bytes.fill(5);
            touch(bytes.as_mut_ptr())
        };
        let (ended, _) = output.track(write, |_| Ok::<_, AccessError>(())).expect("written once");
        assert_eq!(ended, Some(libc::SIGSEGV), "{engine}");
        assert_eq!(output.elements()[0], 5, "{engine}");
    }
}

#[test]
fn a_program_may_lock_its_memory() {
    let Some(output) = child("a_program_may_lock_its_memory") else {
        // SAFETY: takes a number; what is mapped from now on is locked.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } < 0 {
            println!("skipped: no right to lock memory");
            return;
        }
        for engine in RecvEngine::ALL {
            let settings = Awaiting::default().with_engine(*engine);
            let Ok(mut input) = TrackedInput::<u64>::new(5_000, settings) else {
                println!("skipped {engine}");
                continue;
            };
            for round in 1..3 {
                let read = |elements: &[u64], _: &Arrivals<'_>| elements.iter().sum::<u64>();
                let run = input.track(read, |filler| {
                    // It waits for its elements, and does not read those of the round before.
                    while filler.stalls() == 0 {
                        std::thread::yield_now();
                    }
                    filler.put(0, &[round; 5_000])
                });
                assert_eq!(run.expect("it works").0, 5_000 * round, "{engine}");
            }
        }
        return;
    };
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words} {}", String::from_utf8_lossy(&output.stderr));
    words.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{line}"));
}
