//! `pinpool doctor`: whether this machine can run a pinned pool well, on one screen.

mod config;
mod devices;
mod driver;
mod facts;
mod kernel;
mod limits;
mod link;
mod memory;
mod numa;
mod report;
mod request;
mod root;
mod surroundings;
mod trial;

#[cfg(test)]
mod tests;

use pinpool::BackendKind;
use serde_json::json;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::out;

use driver::Driver;
use facts::Facts;
use report::{Group, Report, Status, VERSION, WIDTH};
use request::Request;
use root::Root;
use surroundings::Surroundings;
use trial::Trial;

pub(crate) fn run(arguments: &DoctorArgs) -> Result<(), Failure> {
    let request = Request::read(arguments)?;
    let root = Root::new("/");
    let driver = Driver::probe();
    let facts = Facts::read(&root);
    let on_host = stands_on_host(&driver, &request, None);
    let binding = facts.binding(&request, on_host);
    let trial = Trial::run(&request.config, binding.map(|binding| binding.room()));
    let report = examine(&root, &facts, &driver, &request, Some(&trial));
    if arguments.json {
        out::print(&format!("{:#}\n", to_json(&report, &request)))?;
    } else {
        let verdict = report::wrapped(&verdict(&report, &request), WIDTH).join("\n");
        out::print(&format!("{}\n{verdict}\n", report.to_text()))?;
    }
    match problems(&report) {
        None => Ok(()),
        Some(problems) => Err(Failure::Run(problems)),
    }
}

/// Every check that needs no more than what was read, and the lines of a trial, if there was one.
fn examine(
    root: &Root,
    facts: &Facts,
    driver: &Driver,
    request: &Request,
    trial: Option<&Trial>,
) -> Report {
    let around = Surroundings::read(root);
    let on_host = stands_on_host(driver, request, trial);
    let copied = trial.is_some_and(Trial::has_copied);
    let mut report = Report::default();
    report.add(Group::Driver, driver::lines(root, driver, &around, request));
    report.add(Group::Devices, devices::lines(driver, request));
    for gpu in driver.gpus.iter().filter(|gpu| gpu.fault.is_none()) {
        let busy = copied && gpu.ordinal == request.device();
        report.add(Group::Link, [link::line(root, gpu, busy), numa::line(root, gpu)]);
    }
    report.add(Group::Memory, memory::lines(root, facts, &around, request));
    report.add(Group::Limits, limits::lines(facts, request, on_host));
    report.add(Group::Kernel, kernel::lines(root, &around, driver));
    if let Some(trial) = trial {
        let address = driver.gpu(request.device()).and_then(|gpu| gpu.pci_address.as_ref());
        let link = address.and_then(|address| link::Link::read(root, address).ok());
        report.add(Group::Test, trial.lines(link.map(|link| link.reachable().gigabytes())));
    }
    report.add(Group::Config, config::lines(root, facts, driver, request, on_host));
    report
}

/// Whether the pool's memory is locked by the system rather than registered by the driver.
fn stands_on_host(driver: &Driver, request: &Request, trial: Option<&Trial>) -> bool {
    if let Some(backend) = trial.and_then(Trial::backend) {
        return backend != BackendKind::Cuda;
    }
    let answers = driver.gpu(request.device()).is_some_and(|gpu| gpu.fault.is_none());
    let works = answers && request.devices().all(|device| driver.gpu(device).is_some());
    let on_device = request.needs_cuda() || (request.may_use_cuda() && works);
    !on_device
}

/// All in one sentence.
fn verdict(report: &Report, request: &Request) -> String {
    let pool = match &request.file {
        Some(file) => format!("the pool of {}", file.display()),
        None => "a pool of the default kind".to_owned(),
    };
    let warned = match report.names(Status::Warning).len() {
        0 => "no warning".to_owned(),
        count => report::counted(count, "warning", "warnings"),
    };
    match problems(report) {
        None => format!("{pool} can open here: no problem, {warned}"),
        Some(problems) => format!("{pool} cannot open here: {problems}, {warned}"),
    }
}

/// How many problems there are, and of what; `None` without one.
fn problems(report: &Report) -> Option<String> {
    let names = report.names(Status::Problem);
    let count = report::counted(names.len(), "problem", "problems");
    (!names.is_empty()).then(|| format!("{count} ({})", names.join(", ")))
}

fn to_json(report: &Report, request: &Request) -> serde_json::Value {
    let worst = [Status::Problem, Status::Warning];
    let worst = worst.into_iter().find(|status| !report.names(*status).is_empty());
    json!({
        "version": VERSION,
        "pinpool": env!("CARGO_PKG_VERSION"),
        "config": request.file.as_ref().map(|file| file.display().to_string()),
        "verdict": worst.unwrap_or(Status::Ok).key(),
        "lines": report.to_json(),
    })
}
