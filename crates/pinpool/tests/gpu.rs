//! Everything that needs a CUDA device, on a real one and on the software driver of this repository.
//!
//! Where there is no device each GPU test is listed as ignored with the words `not run: no CUDA
//! device`. The same tests then run in child processes on the software driver, one test a child.
//!
//! On a real device, tests that hold streams, capture in the strictest mode, measure the process or
//! lose the device run in a child of their own as well, so that they disturb no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::cast_possible_truncation, reason = "patterns wrap on purpose")]
#![allow(clippy::print_stdout, reason = "this is its own test harness")]
#![allow(clippy::wildcard_imports, reason = "the modules share one small set of names")]

#[path = "gpu/adverse.rs"]
mod adverse;
#[path = "gpu/checks.rs"]
mod checks;
#[path = "gpu/company.rs"]
mod company;
#[path = "gpu/driver_faults.rs"]
mod driver_faults;
#[path = "gpu/exit.rs"]
mod exit;
#[path = "gpu/faults.rs"]
mod faults;
#[path = "gpu/forks.rs"]
mod forks;
#[path = "gpu/graphs.rs"]
mod graphs;
#[cfg(feature = "debug-checks")]
#[path = "gpu/hardened.rs"]
mod hardened;
#[path = "gpu/in_flight.rs"]
mod in_flight;
#[path = "gpu/interop.rs"]
mod interop;
#[path = "gpu/lives.rs"]
mod lives;
#[path = "gpu/lost.rs"]
mod lost;
#[path = "gpu/opening_faults.rs"]
mod opening_faults;
#[path = "gpu/registration.rs"]
mod registration;
#[path = "gpu/staging.rs"]
mod staging;
#[path = "gpu/staging_faults.rs"]
mod staging_faults;
#[path = "gpu/staging_lives.rs"]
mod staging_lives;
#[path = "gpu/staging_storm.rs"]
mod staging_storm;
#[path = "gpu/startup.rs"]
mod startup;
#[path = "gpu/storms.rs"]
mod storms;
#[path = "gpu/streams.rs"]
mod streams;
#[path = "gpu/support.rs"]
mod support;
#[path = "gpu/two_devices.rs"]
mod two_devices;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use pinpool_testkit::child;

/// Set in a child that runs one test, on whatever driver it finds.
const IN_CHILD: &str = "GPU_TESTS_IN_CHILD";
/// A child that runs longer hangs. On a GPU a context takes seconds while a dozen processes have theirs made and
/// others pin gigabytes: what may hang within a test has shorter limits of its own.
const CHILD_LIMIT: Duration = Duration::from_secs(240);

/// One test: its name, the software driver's settings it needs, and itself.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) run: fn(),
}

/// A test that needs no settings.
pub(crate) const fn check(name: &'static str, run: fn()) -> Check {
    check_with(name, &[], run)
}

/// A test that needs these.
pub(crate) const fn check_with(
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    run: fn(),
) -> Check {
    Check { name, settings, run }
}

/// How a list of tests runs on real devices. On the software driver every test has its own child.
#[derive(Clone, Copy)]
enum Real {
    /// All in this process.
    Together,
    /// Each in a child, where there are so many devices.
    Alone(usize),
    /// Not at all: they plant driver faults, which a real device cannot be told to have.
    Never,
}

const LISTS: &[(Real, &[Check])] = &[
    (Real::Together, checks::ALL),
    (Real::Never, faults::ALL),
    (Real::Alone(1), in_flight::ALL),
    (Real::Alone(1), streams::ALL),
    (Real::Never, streams::ON_SOFTWARE),
    (Real::Alone(1), interop::ALL),
    (Real::Never, interop::ON_SOFTWARE),
    (Real::Alone(1), graphs::ALL),
    (Real::Alone(1), company::ALL),
    (Real::Alone(1), adverse::ALL),
    (Real::Never, adverse::ON_SOFTWARE),
    (Real::Alone(1), exit::ALL),
    (Real::Never, exit::ON_SOFTWARE),
    (Real::Alone(1), storms::ALL),
    (Real::Alone(1), lost::ALL),
    (Real::Never, driver_faults::ON_SOFTWARE),
    (Real::Alone(1), registration::ALL),
    (Real::Never, registration::ON_SOFTWARE),
    (Real::Alone(1), startup::ALL),
    (Real::Never, opening_faults::ON_SOFTWARE),
    (Real::Never, lives::ON_SOFTWARE),
    (Real::Alone(1), staging::ALL),
    (Real::Never, staging_lives::ON_SOFTWARE),
    (Real::Alone(1), staging_faults::ALL),
    (Real::Never, staging_faults::ON_SOFTWARE),
    (Real::Alone(1), staging_storm::ALL),
    (Real::Alone(1), forks::ALL),
    (Real::Never, forks::ON_SOFTWARE),
    #[cfg(feature = "debug-checks")]
    (Real::Alone(1), hardened::ALL),
    (Real::Alone(2), two_devices::ALL),
    (Real::Never, two_devices::ON_SOFTWARE),
];

fn main() -> ExitCode {
    if let Some(scene) = std::env::var_os(exit::SCENE) {
        return exit::play(&scene);
    }
    let arguments = Arguments::from_args();
    let checks = || LISTS.iter().flat_map(|(real, list)| list.iter().map(|check| (*real, check)));
    if std::env::var_os(IN_CHILD).is_some() {
        let trials = checks().map(|(_, check)| trial(check)).collect();
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    let device = pinpool::cuda::probe();
    let devices = device.as_ref().map_or(0, |driver| driver.devices.len());
    let mut trials: Vec<Trial> =
        checks().filter_map(|(real, check)| real_trial(real, check, devices)).collect();
    if let Err(reason) = &device {
        println!("not run: no CUDA device ({reason}): {} tests", trials.len());
    }
    // Outlives the run: the children find the software driver in it.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let installed = fakecuda::install(folder.path());
    if let Err(reason) = &installed {
        println!("not run: no software driver ({reason})");
    }
    trials.extend(checks().map(|(_, check)| software_trial(check, installed.as_ref().ok())));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The test on real devices, if it is one for them. Where they are missing it is listed, not run.
fn real_trial(real: Real, check: &'static Check, devices: usize) -> Option<Trial> {
    let missing = |why| Trial::test(check.name, || Ok(())).with_kind(why).with_ignored_flag(true);
    Some(match real {
        Real::Never => return None,
        _ if devices == 0 => missing("not run: no CUDA device"),
        Real::Alone(wanted) if devices < wanted => missing("not run: one CUDA device"),
        Real::Together => trial(check).with_kind("GPU"),
        Real::Alone(_) => {
            let run = || run_in_child(check, Command::new(std::env::current_exe()?));
            Trial::test(check.name, run).with_kind("GPU")
        }
    })
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
        let mut command = fakecuda::child(&folder)?;
        command.envs(check.settings.iter().copied());
        run_in_child(check, command)
    })
}

/// Runs one test alone in a process, which must end well.
fn run_in_child(check: &Check, mut command: Command) -> Result<(), Failed> {
    command.args(["--exact", check.name, "--nocapture"]).env(IN_CHILD, "1");
    // As many hardware queues as there can be: streams that share one hold each other up.
    command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    let output = child::finish(command, CHILD_LIMIT);
    let said = child::describe(&output);
    if output.status.success() && said.contains("1 passed") {
        return Ok(());
    }
    Err(Failed::from(format!("in the child: {said}")))
}

fn trial(check: &'static Check) -> Trial {
    Trial::test(check.name, || {
        (check.run)();
        Ok(())
    })
}
