//! Faults that are not ours, each in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use chunkcomm_testkit::itself;

use super::*;
use crate::tracked::{
    Arrivals, Awaiting, RecvEngine, SendEngine, TrackedInput, TrackedOutput, Tracking,
};

const CHILD: &str = "CHUNKCOMM_TRACKED_FAULT";

fn child(test: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut program = itself(&format!("tracked::sys::tests::{test}"));
    Some(program.arg("--nocapture").env(CHILD, "").output().expect("it runs"))
}

/// Faults outside all regions, while one is protected by the handler.
fn fault_elsewhere() {
    let settings = Tracking::default().with_engine(SendEngine::Mprotect);
    let mut output = TrackedOutput::<u8>::new(100, settings).expect("works on every Linux");
    let foreign = Face::<u8>::new(100, Backing::File).expect("memory");
    foreign.region().protect(0..page_bytes(), Access::None).expect("ours");
    // No region of an engine: nobody will open it.
    let _ = output.track(|bytes| bytes[0] = foreign.elements()[0], |_| Ok(()));
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
