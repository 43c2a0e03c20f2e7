//! The end of a process that has pools, leases and copies: it ends well and says nothing, whatever goes
//! first. Each scene is played in a process of its own, without a test harness around it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{InFlight, Lease, Pool};

use crate::support::*;
use crate::{Check, check_with};

/// A driver call at exit kills the process, on the software driver.
const STRICT: (&str, &str) = ("FAKECUDA_EXIT", "strict");
/// The keeper is inside a call most of the time.
const SLOW: (&str, &str) = ("FAKECUDA_FAIL", "cuEventQuery:1+:sleep=20");
/// Copies go on for longer than the process.
const LATE: (&str, &str) = ("FAKECUDA_COPY_DELAY_US", "1000");
/// The driver allocates the memory.
const UNREGISTERED: (&str, &str) = ("FAKECUDA_REGISTER", "unsupported");

pub(crate) const ALL: &[Check] = &[
    check_with("main_returns_with_pools_and_leases_in_statics", &[STRICT], main_returns),
    check_with("an_exit_handler_from_before_drops_the_pools", &[STRICT], handler_from_before),
    check_with("an_exit_handler_from_behind_drops_the_pools", &[STRICT], handler_from_behind),
    check_with("another_thread_exits", &[STRICT], another_thread_exits),
    check_with("main_returns_while_a_crew_copies", &[STRICT, LATE], main_returns_beside_a_crew),
];

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check_with("main_returns_while_the_driver_is_asked", &[STRICT, SLOW], main_returns),
    check_with(
        "another_thread_exits_while_the_driver_is_asked",
        &[STRICT, SLOW],
        another_thread_exits,
    ),
    check_with(
        "an_exit_handler_drops_pools_of_driver_memory",
        &[STRICT, UNREGISTERED],
        handler_from_before,
    ),
    check_with("a_driver_that_is_going_costs_no_slot", &[], going_costs_no_slot),
];

fn main_returns() {
    ends_well("return");
}

fn main_returns_beside_a_crew() {
    ends_well("a crew");
}

fn handler_from_before() {
    ends_well("handler from before");
}

fn handler_from_behind() {
    ends_well("handler from behind");
}

fn another_thread_exits() {
    ends_well("another thread");
}

/// Where the driver's own handler came first: its answer tells nothing of the copy.
fn going_costs_no_slot() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    driver().fail("cuEventQuery:1+:4").expect("planned");
    drop(filled(&pool, 4096, 1).upload(&stream, &mut device).expect("queued"));
    let asked = driver().calls("cuEventQuery");
    until("the keeper asks", || driver().calls("cuEventQuery") > asked + 2);
    assert_eq!(counts(&pool), (0, 0, 1, 0), "in flight, not quarantined");
    driver().clear_faults();
    all_home(&pool);
    no_harm_done();
}

/// Plays a scene, several times: exits race.
fn ends_well(scene: &str) {
    for round in 0..rounds(3, 3) {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let output = command.env(SCENE, scene).output().expect("it starts");
        let said = pinpool_testkit::child::describe(&output);
        let silent = output.stdout.is_empty() && output.stderr.is_empty();
        assert!(output.status.success() && silent, "{scene}, round {round}: {said}");
    }
}

/// Set in a process that plays a scene; names it.
pub(crate) const SCENE: &str = "GPU_TESTS_EXIT_SCENE";

/// What main does in such a process.
pub(crate) fn play(scene: &OsStr) -> ExitCode {
    tracing::subscriber::set_global_default(Loud).expect("the only one");
    let scene = scene.to_str().expect("a name");
    if scene == "a crew" {
        return begin_to_stage();
    }
    if scene == "handler from before" {
        at_exit(drop_everything);
    }
    set_the_stage();
    match scene {
        "return" | "handler from before" => {}
        "handler from behind" => at_exit(drop_everything),
        "another thread" => {
            std::thread::spawn(|| {
                keep_some_here();
                std::process::exit(0)
            });
            std::thread::sleep(HANG);
            panic!("the process did not end");
        }
        other => panic!("there is no scene {other}"),
    }
    ExitCode::SUCCESS
}

/// The crew has work for much longer, and buffers in flight at any time.
fn begin_to_stage() -> ExitCode {
    let (pool, stager) = crate::staging::crew(3);
    let stream = stream(&pool);
    let copies: Vec<_> = (0..4)
        .map(|_| {
            let device = device_memory(&stream, 500 * crate::staging::CHUNK);
            stager.upload_owned(vec![1_u8; device.len()], &stream, device).expect("begun")
        })
        .collect();
    until("they are under way", || copies.iter().all(|copy| copy.progress().done > 0));
    // cudarc's slices call the driver when they are dropped: these never are.
    std::mem::forget((copies, stream, stager, pool));
    ExitCode::SUCCESS
}

fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the handlers below may run at any time.
    assert_eq!(unsafe { libc::atexit(handler) }, 0, "a handler is taken");
}

/// A pool with a copy that never ends, and one with copies that are over.
static BUSY: Mutex<Option<Pool>> = Mutex::new(None);
static IDLE: Mutex<Option<Pool>> = Mutex::new(None);
static LEASES: Mutex<Vec<Lease>> = Mutex::new(Vec::new());
static FLIGHTS: Mutex<Vec<InFlight>> = Mutex::new(Vec::new());
/// cudarc's own, which call the driver when they are dropped: these never are.
static STREAM: OnceLock<Arc<CudaStream>> = OnceLock::new();

thread_local! {
    static HERE: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
    static FLYING_HERE: RefCell<Vec<InFlight>> = const { RefCell::new(Vec::new()) };
}

fn pools() -> [Pool; 2] {
    [&BUSY, &IDLE].map(|pool| pool.lock().expect("no panic").clone().expect("open"))
}

fn set_the_stage() {
    *BUSY.lock().expect("no panic") = Some(pool(4096, 8));
    *IDLE.lock().expect("no panic") = Some(pool(4096, 8));
    let [busy, idle] = pools();
    let quick = stream(&idle);
    let mut device = device_memory(&quick, 4096);
    let copied = filled(&idle, 4096, 1).upload(&quick, &mut device).expect("queued");
    drop(copied.wait().expect("copied"));
    // Kept for ever, as their drops would call the driver.
    std::mem::forget((quick, device));
    let held = STREAM.get_or_init(|| stream(&busy));
    std::mem::forget(Gate::close_now(held));
    drop(never_ending(&busy));
    let flight = never_ending(&busy);
    FLIGHTS.lock().expect("no panic").push(flight);
    let mut leases = LEASES.lock().expect("no panic");
    leases.extend([filled(&busy, 4096, 1), filled(&idle, 4096, 1)]);
    keep_some_here();
}

fn never_ending(pool: &Pool) -> InFlight {
    let stream = STREAM.get().expect("there");
    let mut device: CudaSlice<u8> = stream.alloc_zeros(4096).expect("device memory");
    let flight = filled(pool, 4096, 2).upload(stream, &mut device).expect("queued");
    std::mem::forget(device);
    flight
}

/// In thread-locals: what this thread holds goes first.
fn keep_some_here() {
    let [busy, idle] = pools();
    HERE.with_borrow_mut(|here| here.extend([filled(&busy, 4096, 3), filled(&idle, 4096, 3)]));
    FLYING_HERE.with_borrow_mut(|here| here.push(never_ending(&busy)));
    // The keeper has begun to ask.
    std::thread::sleep(Duration::from_millis(5));
}

extern "C" fn drop_everything() {
    drop(std::mem::take(&mut *LEASES.lock().expect("no panic")));
    drop(std::mem::take(&mut *FLIGHTS.lock().expect("no panic")));
    drop([&BUSY, &IDLE].map(|pool| pool.lock().expect("no panic").take()));
}

/// Says on stderr that something was logged that a user would see.
struct Loud;

impl tracing::Subscriber for Loud {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "logged: {event:?}");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
