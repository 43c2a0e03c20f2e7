//! What the kernel counts for this process and its threads.

use std::fs;
use std::path::PathBuf;

use crate::BenchError;

/// One thread of this process.
#[derive(Debug)]
pub(crate) struct Task {
    folder: PathBuf,
}

/// What a thread used up so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Nanoseconds on a processor.
    pub(crate) cpu_ns: u64,
    /// Times it went to sleep by itself.
    pub(crate) sleeps: u64,
}

impl Task {
    /// The only thread of this name.
    pub(crate) fn named(name: &str) -> Result<Self, BenchError> {
        let entries = fs::read_dir("/proc/self/task")
            .map_err(|cause| BenchError::failed("reading /proc/self/task", cause))?;
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found = folders.filter(|folder| {
            // A thread that has just ended is not the one.
            fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        });
        match (found.next(), found.next()) {
            (Some(folder), None) => Ok(Self { folder }),
            (None, _) => Err(BenchError::Failed(format!("no thread is called {name}"))),
            (Some(_), Some(_)) => Err(BenchError::Failed(format!("two threads are called {name}"))),
        }
    }

    /// What it used up so far.
    pub(crate) fn usage(&self) -> Result<Usage, BenchError> {
        // The first of three numbers; unlike those in `stat`, not in hundredths of a second.
        let cpu_ns = self.number("schedstat", |text| text.split_whitespace().next())?;
        let sleeps = self.number("status", |text| field(text, "voluntary_ctxt_switches"))?;
        Ok(Usage { cpu_ns, sleeps })
    }

    fn number(
        &self,
        file: &str,
        find: impl for<'a> Fn(&'a str) -> Option<&'a str>,
    ) -> Result<u64, BenchError> {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path)
            .map_err(|cause| BenchError::failed(&format!("reading {}", path.display()), cause))?;
        let number = find(&text).and_then(|word| word.parse().ok());
        number.ok_or_else(|| BenchError::Failed(format!("{} reads {text:?}", path.display())))
    }
}

/// Memory of this process that lies in RAM.
pub(crate) fn resident_bytes() -> Result<u64, BenchError> {
    let text = status()?;
    size(&text, "VmRSS")
        .ok_or_else(|| BenchError::Failed("/proc/self/status has no VmRSS".to_owned()))
}

/// Memory of this process that is locked, or pinned as the kernel counts it; drivers need not count.
pub(crate) fn locked_bytes() -> Result<u64, BenchError> {
    let text = status()?;
    Ok(["VmLck", "VmPin"].iter().filter_map(|name| size(&text, name)).sum())
}

fn status() -> Result<String, BenchError> {
    fs::read_to_string("/proc/self/status")
        .map_err(|cause| BenchError::failed("reading /proc/self/status", cause))
}

/// A field in kibibytes, in bytes.
fn size(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// The first word after `name:` in a file of such lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split_whitespace().next()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_is_found_by_name_and_its_time_grows_with_its_work() {
        let (stop, stopped) = mpsc::channel::<()>();
        let busy = thread::Builder::new().name("bench-busy".into()).spawn(move || {
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let task = loop {
            // A new thread names itself.
            if let Ok(task) = Task::named("bench-busy") {
                break task;
            }
        };
        let before = task.usage().unwrap().cpu_ns;
        let started = Instant::now();
        while task.usage().unwrap().cpu_ns < before + 5_000_000 {
            assert!(started.elapsed() < Duration::from_secs(30));
        }
        drop(stop);
        busy.unwrap().join().unwrap();
        // A thread that was joined stays in /proc for a moment.
        while Task::named("bench-busy").is_ok() {
            assert!(started.elapsed() < Duration::from_secs(30), "it is still there");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmRSSx:\t1 kB\nVmRSS:\t  4711 kB\n";
        assert_eq!(field(text, "VmRSS"), Some("4711"));
        assert_eq!(field(text, "Vm"), None);
        assert!(resident_bytes().unwrap() > 1 << 20);
    }
}
