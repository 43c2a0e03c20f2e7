//! Everything that needs a CUDA device, on a real one and on the software driver of this repository.
//!
//! Where there is no device each GPU test is listed as ignored with the words `not run: no CUDA
//! device`. The same tests then run in child processes on the software driver, one test a child.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::cast_possible_truncation, reason = "patterns wrap on purpose")]
#![allow(clippy::print_stdout, reason = "this is its own test harness")]

#[path = "gpu/checks.rs"]
mod checks;
#[path = "gpu/faults.rs"]
mod faults;

use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// Set in a child that runs on the software driver.
const ON_SOFTWARE: &str = "GPU_TESTS_ON_SOFTWARE_DRIVER";

/// One test: its name, the software driver's settings it needs, and itself. A test with settings
/// plants driver faults, which a real device cannot be told to have.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) run: fn(),
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let checks = || checks::ALL.iter().chain(faults::ALL);
    if std::env::var_os(ON_SOFTWARE).is_some() {
        let trials = checks().map(|check| trial(check.name, check.run)).collect();
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    let device = pinpool::cuda::probe();
    let mut trials = Vec::new();
    for check in checks().filter(|check| check.settings.is_empty()) {
        trials.push(match &device {
            Ok(_) => trial(check.name, check.run).with_kind("GPU"),
            Err(_) => trial(check.name, check.run)
                .with_kind("not run: no CUDA device")
                .with_ignored_flag(true),
        });
    }
    if let Err(reason) = &device {
        println!("not run: no CUDA device ({reason}): {} tests", trials.len());
    }
    // Outlives the run: the children find the software driver in it.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let installed = fakecuda::install(folder.path());
    if let Err(reason) = &installed {
        println!("not run: no software driver ({reason})");
    }
    trials.extend(checks().map(|check| software_trial(check, installed.as_ref().ok())));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The same test in a child with the software driver in the library path.
fn software_trial(check: &'static Check, folder: Option<&PathBuf>) -> Trial {
    let name = format!("software::{}", check.name);
    let Some(folder) = folder.cloned() else {
        return Trial::test(name, || Ok(()))
            .with_kind("not run: no software driver")
            .with_ignored_flag(true);
    };
    Trial::test(name, move || {
        let output = fakecuda::child(&folder)?
            .args(["--exact", check.name, "--nocapture"])
            .env(ON_SOFTWARE, "1")
            .envs(check.settings.iter().copied())
            .output()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() && said.contains("1 passed") {
            return Ok(());
        }
        Err(Failed::from(format!("in the child: {}\n{said}", output.status)))
    })
}

fn trial(name: &'static str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}
