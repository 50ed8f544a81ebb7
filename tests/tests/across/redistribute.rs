//! The example programs `redistribute` and `redistribute-store`, run as their user runs them: one command, or both
//! side by side as a launcher starts them.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use chunkcomm_testkit::Scratch;

use super::example::Example;

pub(crate) const REDISTRIBUTE: Example = Example { name: "redistribute" };
const STORE: Example = Example { name: "redistribute-store" };

/// Returns a file as NumPy writes it, of this type and shape.
fn npy(descr: &str, fortran_order: bool, shape: &[usize], elements: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let extents = if shape.len() > 1 { extents.trim_end_matches(", ") } else { extents.trim_end() };
    let grows = if fortran_order { shape[shape.len() - 1] } else { shape[0] };
    let room = " ".repeat(21 - grows.to_string().len());
    let text =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({extents}), }}{room}");
    let end = (10 + text.len() + 1).next_multiple_of(64);
    let length = ((end - 10) as u16).to_le_bytes();
    let spaces = " ".repeat(end - 10 - text.len() - 1) + "\n";
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), spaces.as_bytes(), elements].concat()
}

/// Returns bytes that repeat late.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u8).collect()
}

/// Writes a file; returns its path.
fn written(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn two_programs_move_an_array_from_any_layout_to_any_other() {
    let folder = Scratch::folder("redistribute");
    for (descr, size, shape, from, to) in [
        ("<f8", 8, &[40, 31][..], "(block,*)@2x1", "(*,block)@1x2"),
        ("<f4", 4, &[40, 31], "(*,block)@1x3", "(cyclic,*)@2x1"),
        // As many bytes as a task works at a time: the receiver has all before its task has said so.
        ("<f8", 8, &[1024, 256], "(block,*)@1x1", "(*,*)@1x1"),
        ("<i2", 2, &[7, 9, 11], "(cyclic(2),block,*)@2x2x1", "(*,*,cyclic(3))@1x1x2"),
        ("<c16", 16, &[5, 6], "(blocks(1,4),*)@2x1", "(*,*)@1x2"),
        ("|u1", 1, &[1000], "(block)@1", "(cyclic(7))@3"),
        (
            "<u8",
            8,
            &[3, 2, 2, 5, 1, 2],
            "(*,*,*,block,*,*)@1x1x1x2x1x1",
            "(block,*,*,*,*,*)@5x1x1x1x1x1",
        ),
        ("<i4", 4, &[12, 12], "(block,block)@2x2 margin 1", "(block,*)@2x1 margin 2x0"),
    ] {
        let elements = bytes(shape.iter().product::<usize>() * size);
        let file = npy(descr, false, shape, &elements);
        let (input, output) = (written(&folder, "in.npy", &file), folder.join("out.npy"));
        let output = output.to_str().unwrap();
        let told = REDISTRIBUTE.prints(&["--from", from, "--to", to, "--check", &input, output]);
        assert!(told.contains("check           all elements equal"), "{told}");
        assert!(fs::read(output).unwrap() == file, "{from} to {to} of {descr}: {told}");
    }
}

#[test]
fn a_file_in_fortrans_order_becomes_one_in_cs() {
    let folder = Scratch::folder("redistribute-fortran");
    let (rows, columns) = (23_usize, 17_usize);
    let number = |row: usize, column: usize| (row * columns + column) as u16;
    let by_rows = (0..rows).flat_map(|row| (0..columns).map(move |column| number(row, column)));
    let by_columns = (0..columns).flat_map(|column| (0..rows).map(move |row| number(row, column)));
    let [by_rows, by_columns]: [Vec<u8>; 2] = [
        by_rows.flat_map(u16::to_le_bytes).collect(),
        by_columns.flat_map(u16::to_le_bytes).collect(),
    ];
    let input = written(&folder, "in.npy", &npy("<u2", true, &[rows, columns], &by_columns));
    let output = folder.join("out.npy");
    let output = output.to_str().unwrap();
    REDISTRIBUTE.prints(&["--to", "(cyclic,cyclic)@2x1", "--check", &input, output]);
    assert!(fs::read(output).unwrap() == npy("<u2", false, &[rows, columns], &by_rows));
}

#[test]
fn without_a_file_an_array_is_made() {
    let folder = Scratch::folder("redistribute-made");
    let output = folder.join("made.npy");
    let output = output.to_str().unwrap();
    let told = REDISTRIBUTE.prints(&["--shape", "4,6", "--picture", "--check", output]);
    for line in ["0:  0 0 0 0 0 0", "2:  1 1 1 1 1 1", "3:  0 0 0 1 1 1"] {
        assert!(told.contains(&format!("{:16}{line}\n", "")), "{line:?} is not in\n{told}");
    }
    let elements: Vec<u8> = (0..24).flat_map(|it| f64::from(it).to_le_bytes()).collect();
    assert!(fs::read(output).unwrap() == npy("<f8", false, &[4, 6], &elements));
}

/// Starts both programs as a launcher does, side by side: three senders and two receivers, but for their arguments.
fn beside_each_other(senders: &[&str], receivers: &[&str]) -> Vec<Output> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = |rank: usize| {
        let (program, arguments) =
            if rank < 3 { (REDISTRIBUTE, senders) } else { (STORE, receivers) };
        let mut command = program.command(arguments);
        command.env("CHUNKCOMM_RANK", rank.to_string());
        command.env("CHUNKCOMM_SIZE", "5").env("CHUNKCOMM_MANAGER", port.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..5).map(start).collect();
    started.into_iter().map(|it| it.wait_with_output().unwrap()).collect()
}

#[test]
fn a_launcher_starts_both_programs() {
    let folder = Scratch::folder("redistribute-launched");
    let file = npy("<f4", false, &[30, 20], &bytes(2400));
    let (input, output) = (written(&folder, "in.npy", &file), folder.join("out.npy"));
    let output = output.to_str().unwrap();
    let senders = ["--from", "(block,*)@3x1", "--check", &input, output];
    for (rank, ended) in beside_each_other(&senders, &[output]).iter().enumerate() {
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && told.is_empty(), "rank {rank}: {told}");
        assert_eq!(ended.stdout.is_empty(), rank > 0);
    }
    assert!(fs::read(output).unwrap() == file);

    let senders = ["--from", "(block,*)@3x1", "--to", "(*,block)@1x1", &input, output];
    let ended = beside_each_other(&senders, &[output]);
    let told = String::from_utf8_lossy(&ended[0].stderr);
    let expected =
        "redistribute: redistribute-store has 2 processes, but --to (*,block)@1x1 has 1 ranks\n";
    assert_eq!((told.as_ref(), ended[0].status.code()), (expected, Some(1)));
    assert!(ended[1..].iter().all(|it| it.stderr.is_empty()), "{ended:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_process_of_either_program_is_named() {
    use crate::nodes_faults::{end_of, seed};
    use chunkcomm_testkit::{proc, random::seeded};
    use rustix::process::Signal;
    use std::time::Duration;

    let folder = Scratch::folder("redistribute-killed");
    let file = npy("|u1", false, &[8000, 8000], &bytes(64_000_000));
    let (input, output) = (written(&folder, "in.npy", &file), folder.join("out.npy"));
    let seed = seed();
    let mut random = seeded(seed);
    for victim in [1, 2, 3] {
        let options = ["--to", "(cyclic,cyclic(3))@2x1", &input, output.to_str().unwrap()];
        let mut command = REDISTRIBUTE.command(&options);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = proc::Program(command.spawn().unwrap());
        let others = proc::children(program.0.id(), 3);
        let pid = proc::placed(&others, victim - 1);
        proc::wait_until_placed(pid);
        let delay = Duration::from_millis(random.below(150));
        println!("seed {seed}: rank {victim} is killed after {delay:?}");
        std::thread::sleep(delay);
        proc::signal(pid, Signal::KILL);
        let (status, told) = end_of(&mut program);
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("redistribute: rank {victim} ")), "{told}");
        proc::wait_until_gone(&others);
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    REDISTRIBUTE.refuses(&[
        (["--from", "(block,*)@2"], "--from \"(block,*)@2\": "),
        (["--to", "(blocky,*)@2x1"], "found \"blocky\""),
        (
            ["--from", "(block,*)@2x1 region 0..5x0..5"],
            "allowed is a layout of all of an array of [1000, 800]",
        ),
        (["--shape", "0,3"], "whole numbers from 1 to"),
        (["--shape", "3,3,3"], "--from \"(block,*)@2x1\": "),
        (["one.npy", "--check"], "allowed is one file with --shape, and two without"),
        (["--lan", "virtual:lan-1g"], "allowed is --lan real"),
    ]);
    let folder = Scratch::folder("redistribute-wrong");
    let file = npy("<f4", false, &[5, 4], &bytes(80));
    let input = written(&folder, "in.npy", &file);
    REDISTRIBUTE.refuses(&[([&input, &input], "is to be read and written: allowed are two files")]);
    let turned = npy(">f4", false, &[5, 4], &bytes(80));
    let no_npy = written(&folder, "text.npy", b"1 2 3\n4 5 6\n");
    let short = written(&folder, "short.npy", &file[..file.len() - 1]);
    let turned = written(&folder, "turned.npy", &turned);
    let cube = written(&folder, "cube.npy", &npy("|u1", false, &[2, 2, 2], &bytes(8)));
    let output = folder.join("out.npy").to_str().unwrap().to_owned();
    let folder_missing = folder.join("missing/out.npy").to_str().unwrap().to_owned();
    for (words, told) in [
        (&[&no_npy, &output][..], "it is no .npy file"),
        (&[&short, &output], "has 207 bytes, but its header promises 208"),
        (&[&turned, &output], "in another order than this machine's <f4"),
        (&[&cube, &output], "--from \"(block,*)@2x1\": "),
        (&[&input, &folder_missing], "allowed is a file in a folder that exists"),
        (&[&input, &output, &"--nodes=7".to_owned()], "--nodes 7: allowed are 4"),
    ] {
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let ended = REDISTRIBUTE.command(&words).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{words:?}: {error}");
        assert!(ended.stdout.is_empty() && !Path::new(&output).exists());
    }
    let alone = STORE.command(&[]).output().unwrap();
    let error = String::from_utf8(alone.stderr).unwrap();
    assert!(error.contains("redistribute starts this program, or a launcher both"), "{error}");
    REDISTRIBUTE.needs_standard_output(&["--shape", "3,3", &output]);
}
