//! Opens a small pool as the configuration says, pins, copies, and checks every byte.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use pinpool::{BackendKind, ClassConfig, Lease, LockMode, PageTier, Pool, PoolConfig};
use pinpool_bench::cuda_rig::{CudaRig, DeviceMemory};
use pinpool_bench::text;

use super::limits::PAGE_BYTES;
use super::report::Line;

/// What the trial found.
#[derive(Debug)]
pub(super) struct Trial {
    opened: Result<Opened, String>,
    copies: Copies,
}

#[derive(Debug)]
struct Opened {
    backend: BackendKind,
    pinned: bool,
    lock: LockMode,
    pages: PageTier,
    node: Option<u32>,
    bytes: usize,
    populate: Duration,
    pin: Duration,
}

#[derive(Debug)]
enum Copies {
    NotRun(String),
    Failed(String),
    /// 10^9 bytes a second.
    Ran(Rates),
}

#[derive(Debug, Clone, Copy)]
struct Rates {
    to_device: [f64; 2],
    from_device: [f64; 2],
}

impl Trial {
    /// Runs it on a pool that is otherwise as configured. `room` is what the limits leave, if known.
    pub(super) fn run(config: &PoolConfig, room: Option<u64>) -> Self {
        let bytes = small_bytes(config, room);
        let mut config = config.clone();
        config.classes = vec![ClassConfig::new("doctor", bytes, 1)];
        // They are about the pool's own bytes.
        (config.min_bytes, config.open_timeout) = (None, None);
        Self::within(PATIENCE, move || attempt(config, bytes))
    }

    /// Runs `work` in a thread of its own, which is left behind if it does not end: a driver may hang.
    fn within(patience: Duration, work: impl FnOnce() -> Self + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        let send = move || {
            // Nobody listens any more once patience is over.
            let _ = sender.send(work());
        };
        let named = std::thread::Builder::new().name("pinpool-doctor".into());
        if let Err(cause) = named.spawn(send) {
            return Self::failed(format!("no thread could be started: {cause}"));
        }
        receiver.recv_timeout(patience).unwrap_or_else(|_| {
            Self::failed(format!("opening and copying did not end within {patience:?}"))
        })
    }

    /// No pool was opened.
    fn failed(reason: String) -> Self {
        Self { opened: Err(reason), copies: Copies::NotRun("no pool was opened".into()) }
    }

    /// Copies ran to their end: the device is not idle.
    pub(super) fn has_copied(&self) -> bool {
        matches!(self.copies, Copies::Ran(_))
    }

    /// The pool opened on host memory, or would have.
    pub(super) fn backend(&self) -> Option<BackendKind> {
        Some(self.opened.as_ref().ok()?.backend)
    }

    /// `link` is what the device's link can carry, in 10^9 bytes a second.
    pub(super) fn lines(&self, link: Option<f64>) -> Vec<Line> {
        let mut lines = vec![self.opening()];
        lines.extend(self.copying(link));
        lines
    }

    fn opening(&self) -> Line {
        let name = "open and pin";
        let opened = match &self.opened {
            Ok(opened) => opened,
            Err(reason) => {
                let remedy = "as the error says; the lines above may tell the cause";
                return Line::problem(
                    name,
                    format!("a small pool does not open: {reason}"),
                    remedy,
                );
            }
        };
        let (backend, bytes) = (opened.backend, text::bytes(opened.bytes as u64));
        let pages = match opened.pages {
            PageTier::Base => "ordinary pages",
            PageTier::Transparent => "transparent huge pages",
            PageTier::Huge => "reserved huge pages",
            _ => "pages of another kind",
        };
        let node = opened.node.map_or_else(String::new, |node| format!(" of node {node}"));
        let touched = milliseconds(opened.populate);
        let rate = gigabytes(opened.bytes, opened.populate);
        let place = format!(
            "{bytes} on the {backend} backend, {pages}{node}: touched in {touched} ({rate:.1} GB/s)"
        );
        if opened.pinned {
            return Line::ok(name, format!("{place}, pinned in {}", milliseconds(opened.pin)));
        }
        if opened.lock == LockMode::Off {
            return Line::ok(name, format!("{place}, not pinned, as lock is 'off'"));
        }
        Line::warning(name, format!("{place}, not pinned"), "see the line on locked memory")
    }

    fn copying(&self, link: Option<f64>) -> [Line; 2] {
        let names = ["copy to device", "copy from device"];
        match &self.copies {
            Copies::NotRun(reason) => {
                names.map(|name| Line::none(name, format!("not run: {reason}")))
            }
            Copies::Failed(reason) => names.map(|name| {
                let remedy = "look at the device in `nvidia-smi` and the kernel's log (Xid)";
                Line::problem(name, reason.as_str(), remedy)
            }),
            Copies::Ran(rates) => [
                rate_line(names[0], rates.to_device, link),
                rate_line(names[1], rates.from_device, link),
            ],
        }
    }
}

fn rate_line(name: &str, [pinned, pageable]: [f64; 2], link: Option<f64>) -> Line {
    let value = format!(
        "{pinned:.1} GB/s from a lease's memory, {pageable:.1} GB/s pageable; every byte arrived"
    );
    match link {
        Some(link) if pinned < link / 2.0 => {
            let value = format!("{value}; the link carries {link:.1} GB/s");
            let remedy = "see the lines on the link and its NUMA node; other copies at the same time \
                          and virtual machines slow it down too";
            Line::warning(name, value, remedy)
        }
        _ => Line::ok(name, value),
    }
}

/// At most half of what there is room for, in whole pages; one at least, so that a lack of room shows as
/// the pool's own error.
fn small_bytes(config: &PoolConfig, room: Option<u64>) -> usize {
    let cap = config.max_pinned.unwrap_or(u64::MAX);
    let bytes = TRIAL_BYTES.min(cap).min(room.unwrap_or(u64::MAX) / 2);
    let bytes = (bytes / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn attempt(config: PoolConfig, bytes: usize) -> Trial {
    let (device, lock) = (config.device, config.lock);
    let deadline = Instant::now() + TRIAL_TIME;
    let pool = match Pool::from_config(config) {
        Ok(pool) => pool,
        Err(cause) => return Trial::failed(cause.to_string()),
    };
    let startup = pool.startup();
    let opened = Opened {
        backend: startup.backend,
        pinned: startup.pinned,
        lock,
        pages: startup.slabs.first().map_or(PageTier::Base, |slab| slab.pages),
        node: startup.slabs.first().and_then(|slab| slab.node),
        bytes,
        populate: startup.times.populate,
        pin: startup.times.pin,
    };
    let copies = match startup.backend {
        BackendKind::Cuda => {
            copy(&pool, device, bytes, deadline).map_or_else(Copies::Failed, Copies::Ran)
        }
        _ => Copies::NotRun("no CUDA device is in use".into()),
    };
    Trial { opened: Ok(opened), copies }
}

fn copy(pool: &Pool, device: u32, bytes: usize, deadline: Instant) -> Result<Rates, String> {
    let mut lease = pool.try_lease(bytes).map_err(|cause| cause.to_string())?;
    let rig = CudaRig::open_on(device).map_err(|cause| cause.to_string())?;
    rig.bind().map_err(|cause| cause.to_string())?;
    let mut memory = rig.device_memory(bytes).map_err(|cause| cause.to_string())?;
    lease = own_copies(lease, &rig, &mut memory)?;
    let pinned = measured(&mut memory, lease.as_mut_slice(), deadline)?;
    let mut pageable = vec![0; bytes];
    let pageable = measured(&mut memory, &mut pageable, deadline)?;
    Ok(Rates { to_device: [pinned[0], pageable[0]], from_device: [pinned[1], pageable[1]] })
}

/// Through the pool's own calls, there and back.
fn own_copies(mut lease: Lease, rig: &CudaRig, memory: &mut DeviceMemory) -> Result<Lease, String> {
    let failed = |cause: pinpool::Error| cause.to_string();
    pattern(lease.as_mut_slice(), 7);
    let sent = lease.upload(&rig.stream, &mut memory.slice).map_err(|error| error.to_string())?;
    let mut lease = sent.wait().map_err(failed)?;
    lease.as_mut_slice().fill(0);
    let back = lease.download(&memory.slice, &rig.stream).map_err(|error| error.to_string())?;
    let lease = back.wait().map_err(failed)?;
    check(lease.as_slice(), 7)?;
    Ok(lease)
}

/// Copies there and back with the driver's plain call; the median rate of each direction.
fn measured(
    memory: &mut DeviceMemory,
    buffer: &mut [u8],
    deadline: Instant,
) -> Result<[f64; 2], String> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        pattern(buffer, round);
        let started = Instant::now();
        memory.copy_in(buffer).map_err(|cause| cause.to_string())?;
        times[0].push(started.elapsed());
        buffer.fill(0);
        let started = Instant::now();
        memory.copy_out(buffer).map_err(|cause| cause.to_string())?;
        times[1].push(started.elapsed());
        check(buffer, round)?;
        if Instant::now() > deadline {
            break;
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        gigabytes(buffer.len(), times[times.len() / 2])
    }))
}

/// Fills with what tells every place and round from the others near it.
fn pattern(bytes: &mut [u8], round: u8) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = expected(at, round);
    }
}

fn check(bytes: &[u8], round: u8) -> Result<(), String> {
    match bytes.iter().enumerate().find(|(at, byte)| **byte != expected(*at, round)) {
        None => Ok(()),
        Some((at, _)) => Err(format!("byte {at} came back from the device as another one")),
    }
}

/// Of each place, page and round another byte.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
fn expected(at: usize, round: u8) -> u8 {
    (at as u8) ^ ((at >> 8) as u8) ^ ((at >> 16) as u8) ^ round.wrapping_mul(31)
}

/// Pages that are there already are pinned in microseconds.
fn milliseconds(took: Duration) -> String {
    format!("{:.2} ms", took.as_secs_f64() * 1e3)
}

/// 10^9 bytes a second.
fn gigabytes(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / 1e9 / took.as_secs_f64().max(1e-9)
}

/// The pool of the trial: long enough to copy at full speed.
const TRIAL_BYTES: u64 = 64 << 20;
/// Copies of each kind and direction, if there is time.
const ROUNDS: u8 = 5;
/// No copies are begun after that.
const TRIAL_TIME: Duration = Duration::from_secs(2);
/// A driver that takes longer for all of it hangs. Contexts take seconds on hosts with many devices.
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::super::report::Status;
    use super::*;

    #[test]
    fn what_does_not_end_is_left_behind_and_is_a_problem() {
        let (release, held) = mpsc::channel::<()>();
        let trial = Trial::within(Duration::from_millis(20), move || {
            let _ = held.recv();
            Trial::failed("another reason".into())
        });
        drop(release);
        let lines = trial.lines(None);
        assert_eq!(lines[0].status, Status::Problem, "{lines:?}");
        assert!(lines[0].value.contains("did not end within 20ms"), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.status == Status::NotApplicable), "{lines:?}");
        let panics = Trial::within(PATIENCE, || std::panic::resume_unwind(Box::new(())));
        assert_eq!(panics.lines(None)[0].status, Status::Problem);
    }

    #[test]
    fn copies_far_below_the_link_are_warned_of() {
        let rates = Rates { to_device: [12.0, 4.0], from_device: [30.0, 6.0] };
        let trial = Trial { copies: Copies::Ran(rates), ..Trial::failed(String::new()) };
        let status = |link| [1, 2].map(|at| trial.lines(link)[at].status);
        assert_eq!(status(Some(31.5)), [Status::Warning, Status::Ok]);
        assert_eq!(status(Some(20.0)), [Status::Ok, Status::Ok]);
        assert_eq!(status(None), [Status::Ok, Status::Ok]);
        assert!(trial.lines(Some(31.5))[1].value.contains("the link carries 31.5 GB/s"));
    }

    /// What the configured classes need at least is no measure for a pool this small.
    #[test]
    fn the_least_size_of_the_classes_does_not_stop_it() {
        let mut config = PoolConfig::default();
        config.backend = pinpool::BackendChoice::Host;
        config.lock = LockMode::Try;
        config.min_bytes = Some(1 << 40);
        let trial = Trial::run(&config, Some(1 << 20));
        assert!(trial.opened.is_ok(), "{:?}", trial.opened);
    }

    #[test]
    fn the_pool_is_small_and_a_wrong_byte_is_found() {
        let config = |max_pinned| {
            let mut config = PoolConfig::default();
            config.max_pinned = max_pinned;
            config
        };
        assert_eq!(small_bytes(&config(None), None), 64 << 20);
        assert_eq!(small_bytes(&config(Some(1 << 20)), None), 1 << 20);
        assert_eq!(small_bytes(&config(None), Some(20_000)), 8192);
        assert_eq!(small_bytes(&config(None), Some(0)), 4096);
        let mut bytes = vec![0; 100_000];
        pattern(&mut bytes, 3);
        assert_eq!(check(&bytes, 3), Ok(()));
        assert!(check(&bytes, 4).is_err());
        bytes[70_000] ^= 1;
        assert!(check(&bytes, 3).is_err_and(|text| text.contains("byte 70000")));
    }
}
