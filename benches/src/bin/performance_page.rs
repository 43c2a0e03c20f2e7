//! `performance-page`: writes `docs/performance.md` and the README's table from `results/`, or
//! with `--check` says whether they are stale.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pinpool_bench::page;

const USAGE: &str = "\
Usage: performance-page [--check] [--root DIR]

Writes docs/performance.md and the table in README.md from results/*/*.json.

  --check     write nothing; exit 1 if what is committed is stale
  --root DIR  the root of the repository (default: the current folder)
";

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            say(&mut io::stdout(), USAGE);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            say(&mut io::stderr(), &format!("error: {message}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(&arguments.root, arguments.check) {
        Ok(message) => {
            say(&mut io::stdout(), &message);
            ExitCode::SUCCESS
        }
        Err(message) => {
            say(&mut io::stderr(), &format!("error: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    check: bool,
    root: PathBuf,
}

/// The arguments, or `None` where help was asked for.
fn parse(words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments { check: false, root: PathBuf::from(".") };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => arguments.check = true,
            "--root" => match words.next() {
                Some(root) => arguments.root = PathBuf::from(root),
                None => return Err("--root needs a folder".to_owned()),
            },
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(Some(arguments))
}

fn run(root: &Path, check: bool) -> Result<String, String> {
    let pages = page::pages(root)?;
    let stale: Vec<_> = pages.iter().filter(|page| page.is_stale()).collect();
    let names = stale.iter().map(|page| page.path).collect::<Vec<_>>().join(" and ");
    if stale.is_empty() {
        return Ok("up to date\n".to_owned());
    }
    if check {
        return Err(format!("stale: {names}; run `{}` and commit", page::COMMAND));
    }
    for page in stale {
        page.write(root)?;
    }
    Ok(format!("wrote {names}\n"))
}

/// Prints; a reader that has gone away is no reason to fail.
fn say(stream: &mut dyn Write, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}
