//! `pinpool bench all`: every scenario in turn, each in a process of its own, so that neither a
//! crash nor locked memory nor a driver's state of one reaches the next.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pinpool_bench::startup::process::end_with_this_thread;

use super::page::{self, Folder, Found};
use crate::cli::AllArgs;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(arguments: &AllArgs) -> Result<(), Failure> {
    let page = arguments.report.as_deref().map(Folder::check).transpose()?;
    let results = Results::check(arguments)?;
    let program = std::env::current_exe()
        .map_err(|cause| Failure::Run(format!("looking for this program: {cause}")))?;
    let is_chosen = |entry: &&Entry| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == entry.name)
    };
    let chosen: Vec<&Entry> = ENTRIES.iter().filter(is_chosen).collect();
    let size = Size::of(arguments);
    let mut found = Vec::new();
    for (at, entry) in chosen.iter().enumerate() {
        out::print_to_stderr(&format!("[{}/{}] {}\n", at + 1, chosen.len(), entry.name));
        let started = Instant::now();
        let json = results.file(entry.name);
        let ran = run_one(&program, entry, &size, &json);
        let ran = ran.and_then(|()| page::read(&json).map_err(|failure| failure.to_string()));
        let took = started.elapsed().as_secs_f64();
        found.push(match ran {
            Ok(report) => {
                out::print_to_stderr(&format!("{} took {took:.1} s\n", entry.name));
                match &page {
                    Some(folder) => folder.found(report, &json),
                    None => Found::Ran(report, entry.name.to_owned()),
                }
            }
            Err(reason) => {
                let line = format!("{} FAILED after {took:.1} s: {reason}\n", entry.name);
                out::print_to_stderr(&line);
                Found::Failed(entry.name, reason)
            }
        });
    }
    let verdict = verdict(&found);
    page.map_or(Ok(()), |folder| folder.write(found)).and(verdict)
}

/// The names that `--only` takes.
pub(crate) fn names() -> Vec<&'static str> {
    ENTRIES.iter().map(|entry| entry.name).collect()
}

/// A scenario as a command of this program.
struct Entry {
    name: &'static str,
    /// The scenario, and what it is told at any size.
    command: &'static [&'static str],
    /// What makes it as large as it gets.
    full: &'static [&'static str],
    /// Whether it pins so much that `--max-pinned` matters to it.
    is_bounded: bool,
}

impl Entry {
    /// A scenario that pins much.
    const fn bounded(command: &'static [&'static str; 1]) -> Self {
        Self { name: command[0], command, full: &[], is_bounded: true }
    }

    /// A scenario that pins little.
    const fn small(command: &'static [&'static str; 1]) -> Self {
        Self { name: command[0], command, full: &[], is_bounded: false }
    }
}

/// How large all of them are to be.
struct Size {
    arguments: fn(&Entry) -> &'static [&'static str],
    max_pinned: Option<u64>,
    /// What one of them may take.
    limit: Duration,
}

impl Size {
    fn of(arguments: &AllArgs) -> Self {
        let (of, seconds): (fn(&Entry) -> &'static [&'static str], u64) =
            match (arguments.quick, arguments.full) {
                (true, _) => (|_| &["--quick"], QUICK_LIMIT_S),
                (false, true) => (|entry| entry.full, FULL_LIMIT_S),
                (false, false) => (|_| &[], LIMIT_S),
            };
        let limit = Duration::from_secs(seconds);
        Self { arguments: of, max_pinned: arguments.pinned.max_pinned, limit }
    }

    /// What a scenario is told.
    fn arguments(&self, entry: &Entry) -> Vec<String> {
        let mut words: Vec<String> =
            (self.arguments)(entry).iter().map(|&word| word.to_owned()).collect();
        if let Some(bytes) = self.max_pinned.filter(|_| entry.is_bounded) {
            words.extend(["--max-pinned".to_owned(), bytes.to_string()]);
        }
        words
    }
}

/// The folder of the results; where none was named, one that is removed in the end.
struct Results {
    folder: PathBuf,
    is_temporary: bool,
}

impl Results {
    fn check(arguments: &AllArgs) -> Result<Self, Failure> {
        let named = arguments.json.as_ref().or(arguments.report.as_ref());
        let folder = named.cloned().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("pinpool-bench-{}", std::process::id()))
        });
        fs::create_dir_all(&folder).map_err(|cause| Failure::cannot_write(&folder, &cause))?;
        let results = Self { folder, is_temporary: named.is_none() };
        for entry in ENTRIES {
            let path = results.file(entry.name);
            pinpool_bench::output::check_writable(&path)
                .map_err(|cause| Failure::cannot_write(&path, &cause))?;
        }
        Ok(results)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        if self.is_temporary {
            // What stays behind in the folder for temporary files is no failure of a benchmark.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Runs one scenario to its end or its limit; the error says what people need to know.
fn run_one(program: &Path, entry: &Entry, size: &Size, json: &Path) -> Result<(), String> {
    // As one word: a name that begins with a dash is no option.
    let mut json_option = OsString::from("--json=");
    json_option.push(json);
    let mut command = Command::new(program);
    command
        .arg("bench")
        .args(entry.command)
        .args(size.arguments(entry))
        .arg(json_option)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    end_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(|cause| format!("starting it: {cause}"))?;
    let errors = child.stderr.take().map(|stderr| thread::spawn(move || relay(stderr)));
    match wait(&mut child, size.limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let error = errors.and_then(|relay| relay.join().ok()).flatten();
            Err(error.unwrap_or_else(|| format!("it ended with {status}")))
        }
        // What it started itself may hold its standard error open a little longer.
        None => Err(format!("stopped at its limit of {} s", size.limit.as_secs())),
    }
}

/// Waits for the end; kills what takes longer, which is `None`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let started = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|cause| format!("waiting for it: {cause}"))?;
        if ended.is_some() {
            return Ok(ended);
        }
        if started.elapsed() > limit {
            // It may have ended this moment; either way it is reaped next.
            let _ = child.kill();
            child.wait().map_err(|cause| format!("waiting for it: {cause}"))?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Passes on what a scenario says on standard error; the last error is kept.
fn relay(stderr: ChildStderr) -> Option<String> {
    let mut last = None;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // Where standard error is closed there is nobody to tell.
        let _ = writeln!(io::stderr().lock(), "{line}");
        if let Some(error) = line.strip_prefix("error: ") {
            last = Some(error.to_owned());
        }
    }
    last
}

fn verdict(found: &[Found]) -> Result<(), Failure> {
    let failed = found.iter().filter_map(|found| match found {
        Found::Failed(name, _) => Some(*name),
        Found::Ran(..) | Found::There(..) => None,
    });
    let failed: Vec<&str> = failed.collect();
    if failed.is_empty() {
        return Ok(());
    }
    let (count, all) = (failed.len(), found.len());
    Err(Failure::Run(format!("{count} of {all} scenarios failed: {}", failed.join(", "))))
}

/// In the order in which they are run and shown.
const ENTRIES: &[Entry] = &[
    Entry { full: &["--full"], ..Entry::bounded(&["copy"]) },
    Entry::bounded(&["gigabyte"]),
    Entry::bounded(&["alloc"]),
    Entry::bounded(&["break-even"]),
    Entry { full: FRAMES_FULL, ..Entry::bounded(&["frames"]) },
    Entry {
        name: "frames-4k",
        command: &["frames", "--frame", "4k-rgb"],
        full: FRAMES_FULL,
        is_bounded: true,
    },
    Entry::bounded(&["neighbours"]),
    Entry::bounded(&["overlap"]),
    Entry::bounded(&["startup"]),
    Entry::small(&["lease"]),
    Entry::small(&["in-flight"]),
    Entry { full: &["--seconds", "30"], ..Entry::small(&["waiting"]) },
    Entry::bounded(&["staged"]),
    Entry::bounded(&["pressure"]),
];
const FRAMES_FULL: &[&str] = &["--frames", "3000"];
const QUICK_LIMIT_S: u64 = 60;
const LIMIT_S: u64 = 900;
const FULL_LIMIT_S: u64 = 3600;
const POLL: Duration = Duration::from_millis(20);
