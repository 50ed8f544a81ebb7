//! `chunkcomm-instructions NAME`: runs one program, for `chunkperf instructions --program`.

use chunkcomm_instructions::{Outcome, PROGRAMS, Program};

fn main() -> Outcome<()> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let names = || PROGRAMS.iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
    let program = Program::named(&name);
    program.ok_or_else(|| format!("there is no program '{name}'; allowed are {}", names()))?.run()
}
