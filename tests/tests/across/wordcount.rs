//! The example program `wordcount`, run as its user runs it.

use super::example::Example;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const WORDCOUNT: Example = Example { name: "wordcount" };

fn wordcount(arguments: &[&str], paths: &[&Path]) -> Output {
    WORDCOUNT.command(arguments).args(paths).output().unwrap()
}

/// Makes a fresh folder in the folder that cargo gives to integration tests.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("wordcount").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn file(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

fn printed(output: &Output) -> (String, String) {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let [out, error] = texts.map(std::borrow::Cow::into_owned);
    assert!(output.status.success(), "{out}{error}");
    (out, error)
}

/// Returns a text with few frequent and many rare words, the same each time.
pub(crate) fn long_text(lines: u64) -> String {
    let mut text = String::new();
    let mut state: u64 = 1;
    for _ in 0..lines {
        for _ in 0..9 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = state >> 48;
            text += &format!("Wort{} ", number % (1 + number % 997));
        }
        text += "Ende.\n";
    }
    text
}

#[test]
fn words_are_counted_on_any_number_of_nodes() {
    let folder = folder("many");
    file(&folder, "long.txt", long_text(20_000));
    file(&folder, "below/small", "Zum Ende: zum guten ENDE\n\nohne Zeilenende");
    file(&folder, "empty", "");
    file(&folder, ".hidden", "hidden");
    for nodes in ["1", "2", "4"] {
        let arguments = ["--nodes", nodes, "--top", "1"];
        let (out, error) = printed(&wordcount(&arguments, &[&folder]));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0].trim(), "20002  ende", "{out}");
        assert!(lines[1].starts_with("20003 lines, 200007 words, "), "{out}");
        let counting = if nodes == "4" { 3 } else { 1 };
        assert!(lines[2].contains(&format!("counted on {counting} nodes; ")), "{out}");
        assert_eq!(lines[3], "a sequential program counts the same");
        assert_eq!(error, "");
        // Lines are gathered, so there are far fewer packets than lines.
        let packets = lines[2].split("; ").nth(1).unwrap().split(' ').next().unwrap();
        assert!((1..5000).contains(&packets.parse::<u64>().unwrap()), "{out}");
    }
}

#[test]
fn several_paths_are_one_text_and_an_empty_one_has_no_words() {
    let folder = folder("several");
    let one = file(&folder, "one", "a b\n");
    let two = file(&folder, "two", "b");
    let (out, _) = printed(&wordcount(&["--nodes", "3"], &[&one, &two]));
    assert!(out.starts_with("       2  b\n       1  a\n2 lines, 3 words, 2 different\n"), "{out}");
    let empty = file(&folder, "empty", "");
    let (out, _) = printed(&wordcount(&["--nodes", "2"], &[&empty]));
    assert!(out.starts_with("0 lines, 0 words, 0 different\n"), "{out}");
}

#[test]
fn lines_that_are_not_utf_8_are_named_and_counted() {
    let folder = folder("wrong");
    let path = file(&folder, "latin", b"fine\ngr\xfc\xdfe here\nfine\n\xff\n");
    let (out, error) = printed(&wordcount(&["--nodes", "2", "--top", "9"], &[&path]));
    let told = format!(
        "wordcount: {}: line 2 is not UTF-8, nor are 1 more; what is wrong there separates words\n",
        path.display()
    );
    assert_eq!(error, told);
    let words: Vec<_> = out.lines().take(4).map(str::trim).collect();
    assert_eq!(words, ["2  fine", "1  e", "1  gr", "1  here"]);
}

#[test]
fn what_is_no_text_is_named() {
    let folder = folder("bad");
    let empty = folder.join("nothing");
    std::fs::create_dir(&empty).unwrap();
    let missing = folder.join("missing");
    let endless =
        file(&folder, "endless", ["short\n".as_bytes(), &vec![b'a'; (1 << 20) + 1]].concat());
    for (path, told) in [
        (&missing, "missing cannot be read: No such file"),
        (&empty, "there is no file in "),
        (&endless, "endless: line 2 has more than 1048576 bytes"),
    ] {
        let output = wordcount(&["--nodes", "2"], &[path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(told), "{told:?} is not in {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
    let output = wordcount(&["--nodes", "2"], &[]);
    assert_eq!(output.status.code(), Some(2));
}

/// The node dies while rank 0 waits for the next line and sends nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_counting_node_that_dies_is_named() {
    use chunkcomm_testkit::proc;
    use std::io::Read as _;

    let folder = folder("killed");
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut command = WORDCOUNT.command(&[]);
    command.args(["--nodes", "3"]).arg(&pipe).stderr(std::process::Stdio::piped());
    let mut program = proc::Program(command.spawn().unwrap());
    // The pipe opens when the other side reads, after the counting processes have begun.
    let writes = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let copies = proc::children(program.0.id(), 2);
    proc::signal(proc::placed(&copies, 0), rustix::process::Signal::KILL);
    let mut told = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(program.0.wait().unwrap().code(), Some(1), "{told}");
    assert!(told.contains("rank-1") || told.contains("rank 1"), "{told}");
    proc::wait_until_gone(&copies);
    drop(writes);
}
