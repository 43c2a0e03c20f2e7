//! One pool and several devices on memory that needs none: each handle leases from its own classes and the
//! shared ones, and whatever is not leasing is about the whole pool.

use std::future::Future;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pinpool::{
    BackendKind, ClassConfig, Error, Heap, Lease, LeaseError, MemoryError, OnEmpty, PageLock,
    PageTier, Pinned, Pool, PoolBuilder, Region,
};
use pinpool_testkit::scripted::{Counted, Fault, Faulty, Ledger};
use pinpool_testkit::soon::{HANG, until};

use crate::{assert_all_home, builder, stats, until_in_line};

const SMALL: usize = 64;
const FRAME: usize = 4096;
const SHORT: Duration = Duration::from_millis(5);

/// Devices 3, 0 and 1 of one pool.
const DEVICES: [u32; 3] = [3, 0, 1];

fn frames(device: u32) -> ClassConfig {
    ClassConfig::new(format!("frame-{device}"), FRAME, 2).device(device)
}

/// A class of two frames for each device, and one that all share.
fn classes() -> Vec<ClassConfig> {
    let shared = ClassConfig::new("shared", SMALL, 4);
    DEVICES.into_iter().map(frames).chain([shared]).collect()
}

fn served(classes: impl IntoIterator<Item = ClassConfig>) -> PoolBuilder {
    let [first, others @ ..] = DEVICES;
    let builder = builder().devices(first, others).max_pinned(1 << 40);
    classes.into_iter().fold(builder, PoolBuilder::class_config)
}

fn open(classes: impl IntoIterator<Item = ClassConfig>) -> (Pool, Ledger) {
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    (served(classes).memory(memory).open().unwrap(), ledger)
}

fn class_of(lease: &Lease) -> String {
    lease.class_name().to_string()
}

/// Every way to lease one.
type Way = fn(&Pool, usize) -> Result<Lease, LeaseError>;
const WAYS: [Way; 11] = [
    |pool, len| pool.try_lease(len),
    |pool, len| pool.try_lease_priority(len),
    |pool, len| pool.lease_timeout(len, SHORT),
    |pool, len| pool.lease_priority_timeout(len, SHORT),
    |pool, len| pool.lease_deadline(len, std::time::Instant::now() + SHORT),
    |pool, len| pool.try_lease_many(&[len]).map(only),
    |pool, len| pool.lease_many_timeout(&[len], SHORT).map(only),
    |pool, len| pool.try_lease_of::<u32>(len / 4).map(|lease| lease.cast().unwrap()),
    |pool, len| pool.lease_timeout_of::<u32>(len / 4, SHORT).map(|lease| lease.cast().unwrap()),
    |pool, len| soon(pool.lease_async(len)),
    |pool, len| soon(pool.lease_priority_async(len)),
];

fn only(mut leases: Vec<Lease>) -> Lease {
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}

/// A task that is polled for a while and then cancelled: its class is empty.
fn soon(future: impl Future<Output = Result<Lease, LeaseError>>) -> Result<Lease, LeaseError> {
    let mut future = pin!(future);
    for _ in 0..10 {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(lease) => return lease,
            Poll::Pending => thread::sleep(SHORT / 10),
        }
    }
    Err(LeaseError::NotReady)
}

#[test]
fn each_handle_leases_from_its_own_classes_and_from_those_of_all() {
    let (pool, ledger) = open(classes());
    assert_eq!((pool.device(), pool.on(3).unwrap().device()), (3, 3));
    for device in DEVICES {
        let handle = pool.on(device).unwrap();
        assert_eq!(handle.device(), device);
        let own = format!("frame-{device}");
        for way in WAYS {
            assert_eq!(class_of(&way(&handle, SMALL).unwrap()), "shared");
            let one = way(&handle, FRAME).unwrap();
            let two = way(&handle.clone(), SMALL + 4).unwrap();
            assert_eq!([class_of(&one), class_of(&two)], [own.as_str(); 2]);
            assert!(way(&handle, FRAME).is_err(), "both are out, and others have theirs");
            for other in DEVICES.into_iter().filter(|other| *other != device) {
                assert_eq!(stats(&pool, &format!("frame-{other}")).free, 2);
                // From whichever handle it is asked for.
                let other = way(&handle.on(other).unwrap(), FRAME).unwrap();
                assert_ne!(class_of(&other), own);
            }
        }
        let error = handle.try_lease(FRAME + 1).unwrap_err();
        assert_eq!(error, LeaseError::TooLarge { requested: FRAME + 1, largest: FRAME });
    }
    assert_all_home(pool, &ledger);
}

#[test]
fn an_exhausted_class_is_named_by_its_place_in_the_plan() {
    let (pool, ledger) = open(classes());
    for device in DEVICES {
        let handle = pool.on(device).unwrap();
        let held = [handle.try_lease(FRAME).unwrap(), handle.try_lease(FRAME).unwrap()];
        let Err(LeaseError::Exhausted(exhausted)) = handle.try_lease(FRAME) else {
            panic!("both are out")
        };
        let name = format!("frame-{device}");
        let place = pool.plan().classes.iter().position(|class| class.name == name);
        assert_eq!((exhausted.name.as_str(), Some(exhausted.class.index())), (&*name, place));
        let class = stats(&pool, &name);
        assert_eq!((class.id, class.leased, class.misses_total), (exhausted.class, 2, 1));
        drop(held);
    }
    assert_all_home(pool, &ledger);
}

#[test]
fn a_device_that_the_pool_does_not_serve_is_refused_by_number() {
    let (pool, ledger) = open(classes());
    for handle in [pool.clone(), pool.on(1).unwrap()] {
        let error = handle.on(2).unwrap_err();
        assert!(error.is_bad_input());
        let text = error.to_string();
        for word in ["device 2", "the pool's, which are: 3, 0, 1", "add 2 to device in [pool]"] {
            assert!(text.contains(word), "`{word}` is missing: {text}");
        }
        let Error::UnknownDevice { device, devices } = error else { panic!("{error}") };
        assert_eq!((device, &devices[..]), (2, &DEVICES[..]));
    }
    assert_all_home(pool, &ledger);
}

/// One slot of 64 and of 128 bytes on each of two devices, and a shared one of 256.
#[test]
fn an_empty_class_spills_within_its_handle() {
    let own = |name: &str, size, device| {
        ClassConfig::new(format!("{name}-{device}"), size, 1).device(device).max_spill(8)
    };
    let small = [0, 1, 3].map(|device| own("small", 64, device));
    let large = [0, 1].map(|device| own("large", 128, device));
    let shared = ClassConfig::new("shared", 256, 1).max_spill(4);
    let largest = ClassConfig::new("largest-1", 768, 1).device(1);
    let largest_of_all = ClassConfig::new("largest", 1024, 1);
    let (pool, ledger) =
        open(small.into_iter().chain(large).chain([shared, largest, largest_of_all]));
    let take = |device, len| {
        let lease = pool.on(device).unwrap().try_lease(len);
        lease.map(|lease| (class_of(&lease), lease))
    };
    let mut held = Vec::new();
    let mut names = |device, len, wanted: &[&str]| {
        for wanted in wanted {
            let (name, lease) = take(device, len).unwrap();
            assert_eq!(name, *wanted);
            held.push(lease);
        }
        assert!(take(device, len).is_err());
    };
    names(0, 64, &["small-0", "large-0", "shared"]);
    // A class of all devices spills to such classes only, whoever asks: it has one line for all.
    names(1, 256, &["largest"]);
    names(1, 64, &["small-1", "large-1"]);
    names(3, 64, &["small-3"]);
    assert_eq!(stats(&pool, "shared").spilled_total, 1);
    drop(held);
    assert_all_home(pool, &ledger);
}

/// A waiter is told of a larger slot that its own handle may have.
#[test]
fn who_waits_is_given_a_larger_slot_of_its_own_device() {
    let own = |name: &str, size, device| ClassConfig::new(name, size, 1).device(device);
    let classes = [
        own("small", 64, 0).max_spill(2),
        own("large-0", 128, 0),
        own("large-1", 128, 1),
        own("three", 64, 3),
    ];
    let (pool, ledger) = open(classes);
    let [zero, one] = [0, 1].map(|device| pool.on(device).unwrap());
    let small = zero.try_lease(64).unwrap();
    let large = zero.try_lease(128).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| zero.lease_timeout(64, HANG).map(|lease| class_of(&lease)));
        until_in_line(&pool, "small", 1);
        drop(one.try_lease(128).unwrap());
        thread::sleep(Duration::from_millis(20));
        assert_eq!(stats(&pool, "small").waiting, 1, "that of device 1 is not for it");
        drop(large);
        assert_eq!(waiter.join().unwrap().unwrap(), "large-0");
    });
    drop(small);
    drop((zero, one));
    assert_all_home(pool, &ledger);
}

#[test]
fn several_at_once_come_of_the_handles_classes() {
    let (pool, ledger) = open(classes());
    let sizes = [FRAME, SMALL, FRAME, SMALL];
    for device in DEVICES {
        let handle = pool.on(device).unwrap();
        let leases = handle.lease_many(&sizes).unwrap();
        let own = format!("frame-{device}");
        let names: Vec<_> = leases.iter().map(class_of).collect();
        assert_eq!(names, [own.as_str(), "shared", &own, "shared"]);
        let error = handle.try_lease_many(&[FRAME; 3]).unwrap_err();
        assert!(matches!(error, LeaseError::TooMany { most: 2, .. }), "{error}");
        let error = handle.lease_many_timeout(&sizes[..1], SHORT).unwrap_err();
        assert!(matches!(error, LeaseError::Timeout { .. }), "{error}");
    }
    assert_all_home(pool, &ledger);
}

/// Each call takes all of two shared classes, asked for in turns that differ from handle to handle.
#[test]
fn callers_on_several_handles_never_block_each_other_for_good() {
    const ROUNDS: usize = 2000;
    let own = |name, size, device| ClassConfig::new(name, size, 2).device(device);
    let shared = [ClassConfig::new("low", 128, 2), ClassConfig::new("high", 512, 2)];
    let others = [own("zero", 1024, 0), own("one", 64, 1), own("three", 256, 3)];
    let (pool, ledger) = open(shared.into_iter().chain(others));
    thread::scope(|scope| {
        let orders = [(0, [1024, 512, 512, 128, 128]), (1, [128, 512, 64, 128, 512])];
        for (device, sizes) in orders.into_iter().chain([(3, [256, 128, 512, 512, 128])]) {
            let handle = pool.on(device).unwrap();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    drop(handle.lease_many_timeout(&sizes, HANG).unwrap());
                }
            });
        }
    });
    assert_eq!(stats(&pool, "low").leases_total, 3 * 2 * ROUNDS as u64);
    assert_eq!(stats(&pool, "high").leases_total, 3 * 2 * ROUNDS as u64);
    assert_all_home(pool, &ledger);
}

#[test]
fn what_does_not_lease_is_about_the_whole_pool() {
    let large = ClassConfig::new("grows", 1 << 16, 1).device(1).on_empty(OnEmpty::Grow);
    let (pool, ledger) = open(classes().into_iter().chain([large]));
    let handles = DEVICES.map(|device| pool.on(device).unwrap());
    let held: Vec<_> = handles.iter().map(|handle| handle.try_lease(FRAME).unwrap()).collect();
    let grown = handles[2].try_lease(1 << 16).unwrap();
    until("it grew", || stats(&pool, "grows").grown == 1);
    for handle in &handles {
        let counts = handle.stats();
        let names: Vec<_> = counts.classes.iter().map(|class| class.name.to_string()).collect();
        assert_eq!(names, ["shared", "frame-3", "frame-0", "frame-1", "grows"]);
        let leased: Vec<_> = counts.classes.iter().map(|class| class.leased).collect();
        assert_eq!(leased, [0, 1, 1, 1, 1]);
        assert_eq!(handle.holders().len(), 4);
        assert_eq!(handle.startup().slabs.len(), 5);
        assert_eq!(handle.plan(), pool.plan());
        assert!(handle.is_pinned());
    }
    drop(grown);
    assert_eq!(
        handles[1].trim(),
        1 << 16,
        "a slab of device 1's class, asked of device 0's handle"
    );
    drop((held, handles));
    assert_all_home(pool, &ledger);
}

#[test]
fn a_close_on_any_handle_closes_all_of_them() {
    for closer in DEVICES {
        let (pool, ledger) = open(classes());
        let handles = DEVICES.map(|device| pool.on(device).unwrap());
        let lease = handles[2].try_lease(FRAME).unwrap();
        let report = pool.on(closer).unwrap().close(SHORT);
        assert_eq!(report.still_out, [(lease.class_name(), 1)]);
        for handle in handles.iter().chain([&pool]) {
            for len in [SMALL, FRAME] {
                assert_eq!(handle.try_lease(len).unwrap_err(), LeaseError::Closed);
            }
            for device in DEVICES {
                let closed = handle.on(device).unwrap_err();
                assert!(matches!(closed, Error::Lease(LeaseError::Closed)), "{closed}");
            }
            assert!(matches!(handle.on(9), Err(Error::UnknownDevice { device: 9, .. })));
        }
        drop(lease);
        drop(handles);
        assert_all_home(pool, &ledger);
    }
}

/// In any order in which the handles go, and a task's that was never polled is one of them.
#[test]
fn the_last_handle_of_whatever_device_closes_the_pool() {
    for last in 0..4 {
        let (pool, ledger) = open(classes());
        let [_, zero, one] = DEVICES.map(|device| pool.on(device).unwrap());
        let task = one.clone().lease_async(FRAME);
        let mut handles: Vec<Box<dyn Send>> =
            vec![Box::new(pool), Box::new(zero), Box::new(one), Box::new(task)];
        let kept = handles.remove(last);
        drop(handles);
        assert_eq!(ledger.regions(), 4, "handle {last} keeps it open");
        drop(kept);
        until("the memory is given back", || ledger.regions() == 0);
        ledger.assert_clean();
    }
}

/// Another device's handle needs its classes; the first one's is there from the beginning.
#[test]
fn while_the_pool_opens_a_handle_may_not_be_ready() {
    let gate = Arc::new(Mutex::new(()));
    let (memory, ledger) = Counted::new(Heap::claiming_locked());
    let memory =
        Near { inner: memory, gate: Some((1, Arc::clone(&gate))), calls: Calls::default() };
    let shut = gate.lock().unwrap();
    // In the order of the configuration: device 1's comes last.
    let shared = ClassConfig::new("shared", SMALL, 4);
    let order = [shared].into_iter().chain(DEVICES.map(frames));
    let opening = served(order).memory(memory).open_async().unwrap();
    until("all but one are there", || opening.progress().classes_ready == 3);
    let pool = opening.pool().unwrap();
    assert_eq!(class_of(&pool.on(3).unwrap().try_lease(FRAME).unwrap()), "frame-3");
    assert_eq!(class_of(&pool.on(0).unwrap().try_lease(FRAME).unwrap()), "frame-0");
    let early = pool.on(1).unwrap_err();
    assert!(matches!(early, Error::Lease(LeaseError::NotReady)), "{early}");
    assert!(matches!(pool.on(7), Err(Error::UnknownDevice { .. })));
    drop(shut);
    let opened = opening.wait().unwrap();
    assert_eq!(class_of(&pool.on(1).unwrap().try_lease(FRAME).unwrap()), "frame-1");
    drop(pool);
    assert_all_home(opened, &ledger);
}

/// Each call of the opening fails once, those for a device's class among them: nothing stays.
#[test]
fn an_opening_that_fails_at_a_devices_class_leaves_nothing() {
    let mut named = Vec::new();
    for nth in 1.. {
        let (memory, ledger) = Counted::new(Heap::claiming_locked());
        let (memory, log) = Faulty::new(memory, Fault::nth(nth));
        match served(classes()).memory(memory).open() {
            Ok(pool) => {
                assert!(log.injected().is_empty(), "what fails is yet to come");
                drop(pool);
                break;
            }
            Err(Error::Memory { class, .. }) => named.push(class),
            Err(other) => panic!("{other}"),
        }
        ledger.assert_clean();
    }
    named.dedup();
    assert_eq!(named, ["frame-3", "frame-0", "frame-1", "shared"]);
}

/// The devices that regions were reserved for, with their bytes; `None` for those of all.
type Calls = Arc<Mutex<Vec<(usize, Option<u32>)>>>;

/// Memory that books for which device a region is, and lets those for one device wait at a gate.
#[derive(Debug)]
struct Near<M> {
    inner: M,
    gate: Option<(u32, Arc<Mutex<()>>)>,
    calls: Calls,
}

// SAFETY: every duty is the inner memory's; this writes a book and waits before the call.
unsafe impl<M: PageLock> PageLock for Near<M> {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.calls.lock().unwrap().push((bytes, None));
        self.inner.reserve(bytes)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        let gate = self.gate.as_ref().filter(|(shut, _)| *shut == device);
        drop(gate.map(|(_, gate)| gate.lock()));
        self.calls.lock().unwrap().push((bytes, Some(device)));
        self.inner.reserve_near(bytes, tier, device)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.unpin(chunk) }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.inner.release(region) }
    }
}

/// Those that a class opens with and those that it grows by; which nodes are near is `backend.rs`'s to know.
#[test]
fn slabs_of_a_devices_class_are_reserved_near_it_grown_ones_too() {
    let (inner, ledger) = Counted::new(Heap::claiming_locked());
    let calls = Calls::default();
    let memory = Near { inner, gate: None, calls: Arc::clone(&calls) };
    let grows =
        |class: ClassConfig| class.on_empty(OnEmpty::Grow).grow_by(1).grow_max(1).grow_at(0);
    let shared = ClassConfig::new("shared", 3 * FRAME, 1);
    let pool = served([shared, frames(3), frames(0), frames(1)].map(grows)).memory(memory);
    let pool = pool.open().unwrap();
    let first =
        [(3 * FRAME, None), (2 * FRAME, Some(3)), (2 * FRAME, Some(0)), (2 * FRAME, Some(1))];
    assert_eq!(*calls.lock().unwrap(), first);
    let last_after = |device, len, slots: usize, wanted| {
        let handle = pool.on(device).unwrap();
        let held: Vec<_> = (0..slots).map(|_| handle.try_lease(len).unwrap()).collect();
        until("it grew", || calls.lock().unwrap().len() == wanted);
        drop(handle.lease_timeout(len, HANG).unwrap());
        drop(held);
        calls.lock().unwrap().last().copied()
    };
    assert_eq!(last_after(1, FRAME, 2, 5), Some((FRAME, Some(1))));
    assert_eq!(last_after(3, FRAME, 2, 6), Some((FRAME, Some(3))));
    assert_eq!(last_after(0, 3 * FRAME, 1, 7), Some((3 * FRAME, None)));
    assert_all_home(pool, &ledger);
}
