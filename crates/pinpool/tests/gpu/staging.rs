//! Staged copies: every byte arrives, in the caller's order, and the crew's buffers come home.

use std::fs::File;
use std::future::{Future, IntoFuture};
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{
    BackendChoice, Error, Fence, FenceStatus, LeaseError, LockMode, Pool, StageCause, Stager,
};

use crate::support::*;
use crate::{Check, check, check_with};

pub(crate) const ALL: &[Check] = &[
    check("copies_of_all_sizes_arrive", copies_of_all_sizes_arrive),
    check("elements_and_views_arrive", elements_and_views_arrive),
    check_with("a_staged_copy_comes_behind_earlier_work", SLOW, comes_behind_earlier_work),
    check_with("later_work_sees_a_staged_copy", SLOW, later_work_sees_it),
    check("a_busy_stream_holds_up_no_other_copy", a_busy_stream_holds_up_no_other),
    check_with("copies_take_turns", SLOW, copies_take_turns),
    check("an_owned_copy_gives_back_what_it_had", an_owned_copy_gives_back),
    check_with("an_owned_copy_that_is_dropped_goes_on", SLOW, an_owned_copy_goes_on),
    check_with("a_task_awaits_staged_copies", SLOW, a_task_awaits_staged_copies),
    check("pinned_memory_goes_straight", pinned_memory_goes_straight),
    check("files_readers_and_writers", files_readers_and_writers),
    check("a_scope_waits_for_its_copies", a_scope_waits_for_its_copies),
    check("a_stager_bounds_what_it_holds", a_stager_bounds_what_it_holds),
    check("a_fence_tells_of_a_staged_copy", a_fence_tells_of_a_staged_copy),
];

const SLOW: &[(&str, &str)] = &[("FAKECUDA_COPY_DELAY_US", "500")];
pub(crate) const CHUNK: usize = 64 << 10;
/// Less than a piece, so that most copies are staged.
pub(crate) const SMALL: usize = 4096;

/// A pool for a crew of so many, and that crew.
pub(crate) fn crew(threads: usize) -> (Pool, Stager) {
    let pool = pool(CHUNK, 2 * threads);
    let stager =
        Stager::builder(&pool).threads(threads).chunk_bytes(CHUNK).straight_bytes(SMALL).build();
    (pool, stager.expect("a stager"))
}

/// Ends the crew: every slot comes home, and no harm was done.
pub(crate) fn end(pool: &Pool, stager: Stager) {
    stager.close();
    all_home(pool);
    no_harm_done();
}

fn copies_of_all_sizes_arrive() {
    let (pool, stager) = crew(3);
    let stream = stream(&pool);
    let edges = [CHUNK, 3 * CHUNK, 6 * CHUNK, 7 * CHUNK, 64 * CHUNK];
    let sizes = [1, 100, 4096].into_iter().chain(edges.map(|edge| edge - 1)).chain(edges);
    for (round, size) in sizes.chain(edges.map(|edge| edge + 1)).enumerate() {
        let source = pattern(size, round as u8);
        let mut device = device_memory(&stream, size);
        let copy = stager.upload(&source, &stream, &mut device).expect("uploaded");
        copy.wait().expect("arrived");
        assert!(on_device(&stream, &device) == source, "{size} bytes up");
        let mut back = vec![0; size];
        stager.download(&device, &stream, &mut back).expect("downloaded");
        assert!(back == source, "{size} bytes down");
    }
    let mut device = device_memory(&stream, 1);
    stager.upload::<u8, _>(&[], &stream, &mut device).expect("nothing").wait().expect("nothing");
    end(&pool, stager);
}

fn elements_and_views_arrive() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let source: Vec<f32> = (0..60_001_u16).cycle().take(300_000).map(f32::from).collect();
    let mut device = stream.alloc_zeros::<f32>(400_000).expect("device memory");
    let mut view = device.slice_mut(1000..);
    stager.upload(&source, &stream, &mut view).expect("uploaded").wait().expect("arrived");
    let mut back = vec![-1.0_f32; 400_000];
    stager.download(&device, &stream, &mut back).expect("downloaded");
    assert!(back[..1000].iter().chain(&back[301_000..]).all(|element| *element == 0.0));
    assert!(back[1000..301_000] == source[..]);
    // A longer target keeps its end.
    let mut long = vec![-1.0_f32; 400_001];
    stager.download(&device.slice(1000..301_000), &stream, &mut long).expect("downloaded");
    assert!(long[..300_000] == source[..] && long[300_000..].iter().all(|e| *e < 0.0));
    end(&pool, stager);
}

/// What the stream has queued is over before a byte is overwritten, and before one is read.
fn comes_behind_earlier_work() {
    const BYTES: usize = 20 * CHUNK;
    let (pool, stager) = crew(3);
    let other = self::pool(BYTES, 2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, BYTES);
    let gate = Gate::close_now(&stream);
    // It is queued, and would overwrite what came too early.
    drop(filled(&other, BYTES, 1).upload(&stream, &mut device).expect("queued"));
    let source = vec![2; BYTES];
    stager.scope(|scope| {
        let copy = scope.upload(&source, &stream, &mut device).expect("begun");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(copy.progress().done, 0, "the stream stands still");
        gate.open();
        copy.wait().expect("arrived");
    });
    assert_filled(&stream, &device, 2);
    let gate = Gate::close_now(&stream);
    drop(filled(&other, BYTES, 3).upload(&stream, &mut device).expect("queued"));
    let opener = gate.open_soon();
    let mut back = vec![0; BYTES];
    stager.download(&device, &stream, &mut back).expect("downloaded");
    assert!(back.iter().all(|byte| *byte == 3), "it read what came before the earlier copy");
    opener.join().expect("no panic");
    end(&pool, stager);
}

/// Work that is queued right behind an upload sees all of it, though the host waited for none.
fn later_work_sees_it() {
    const BYTES: usize = 13 * CHUNK + 77;
    let (pool, stager) = crew(3);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, BYTES);
    let mut second = device_memory(&stream, BYTES);
    for round in 0..20 {
        let mut source = pattern(BYTES, round);
        let copy = stager.upload(&source, &stream, &mut device).expect("uploaded");
        stream.memcpy_dtod(&device, &mut second).expect("queued");
        // The source has been read.
        source.fill(0xff);
        assert!(on_device(&stream, &second) == pattern(BYTES, round), "round {round}");
        copy.wait().expect("arrived");
    }
    end(&pool, stager);
}

/// A copy whose stream stands still takes no thread away from the others.
fn a_busy_stream_holds_up_no_other() {
    const BYTES: usize = 20 * CHUNK;
    let (pool, stager) = crew(1);
    let [stuck, free] = streams_apart(&pool);
    let mut devices = [device_memory(&stuck, BYTES), device_memory(&free, BYTES)];
    let gate = Gate::close_now(&stuck);
    let sources = [vec![1; BYTES], vec![2; BYTES]];
    let [first, second] = &mut devices;
    stager.scope(|scope| {
        let held = scope.upload(&sources[0], &stuck, first).expect("begun");
        scope.upload(&sources[1], &free, second).expect("begun").wait().expect("arrived");
        assert!(!held.is_over() && held.progress().done == 0);
        gate.open();
        held.wait().expect("arrived");
    });
    assert_filled(&free, &devices[1], 2);
    assert_filled(&stuck, &devices[0], 1);
    end(&pool, stager);
}

/// A small copy behind a large one does not wait for its end.
fn copies_take_turns() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let large = vec![1; 400 * CHUNK];
    let small = vec![2; 4 * CHUNK];
    let mut targets = (device_memory(&stream, large.len()), device_memory(&stream, small.len()));
    stager.scope(|scope| {
        let first = scope.upload(&large, &stream, &mut targets.0).expect("begun");
        until("it has begun", || first.progress().done > 0);
        let second = scope.upload(&small, &stream, &mut targets.1).expect("begun");
        second.wait().expect("arrived");
        let progress = first.progress();
        // A device may be done with both before anybody looks.
        if software().is_some() {
            assert!(progress.done < progress.total / 2, "{progress:?}");
        }
        first.wait().expect("arrived");
    });
    assert_filled(&stream, &targets.0, 1);
    assert_filled(&stream, &targets.1, 2);
    end(&pool, stager);
}

fn an_owned_copy_gives_back() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let source = pattern(9 * CHUNK + 5, 7);
    let device = device_memory(&stream, source.len());
    let copy = stager.upload_owned(source.clone(), &stream, device).expect("begun");
    let (same, device) = copy.wait().expect("arrived");
    assert!(same == source && on_device(&stream, &device) == source);
    let target = vec![0_u8; source.len() + 3];
    let (device, back) =
        stager.download_owned(device, &stream, target).expect("begun").wait().expect("arrived");
    assert!(back[..source.len()] == source[..] && back[source.len()..] == [0; 3]);
    // An array moves with its owner, so that it must not be moved while the crew reads it.
    let inline = [9_u8; 3000];
    let (inline, device) =
        stager.upload_owned(inline, &stream, device).expect("begun").wait().expect("arrived");
    assert!(on_device(&stream, &device)[..3000] == inline);
    // Refused, both come back.
    let Err(refused) = stager.upload_owned(vec![0_u8; device.len() + 1], &stream, device) else {
        panic!("the target is too short")
    };
    let text = refused.to_string();
    assert!(text.contains("into a buffer of"), "{text}");
    let (source, device) = refused.parts.expect("both are back");
    assert_eq!(source.len(), device.len() + 1);
    end(&pool, stager);
}

/// Its drop is counted.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fill(0xee);
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn an_owned_copy_goes_on() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 0..10 {
        let source = Counted(pattern(12 * CHUNK, round), Arc::clone(&drops));
        let device = device_memory(&stream, 12 * CHUNK);
        let copy = stager.upload_owned::<u8, _, _>(source, &stream, device).expect("begun");
        if round % 2 == 0 {
            drop(copy);
        } else {
            copy.cancel();
            drop(copy);
        }
        let wanted = usize::from(round) + 1;
        until("the source was dropped", || drops.load(Ordering::SeqCst) == wanted);
    }
    // A stager that is dropped ends what it was given.
    let source = Counted(pattern(12 * CHUNK, 77), Arc::clone(&drops));
    let device = device_memory(&stream, 12 * CHUNK);
    let copy = stager.upload_owned::<u8, _, _>(source, &stream, device).expect("begun");
    drop(stager);
    let (source, device) = copy.wait().expect("arrived");
    assert!(on_device(&stream, &device) == source.0);
    all_home(&pool);
    no_harm_done();
}

/// Wakes the thread that polls.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(start.elapsed() < HANG, "nobody wakes the task");
        std::thread::park_timeout(HANG);
    }
}

fn a_task_awaits_staged_copies() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    for size in [100, CHUNK, 30 * CHUNK] {
        let source = pattern(size, 3);
        let mut device = device_memory(&stream, size);
        block_on(stager.upload(&source, &stream, &mut device).expect("uploaded")).expect("there");
        assert!(on_device(&stream, &device) == source);
        let copy = stager.upload_owned(source, &stream, device).expect("begun");
        let (source, device) = block_on(copy).expect("arrived");
        let copy = stager.download_owned(device, &stream, vec![0; size]).expect("begun");
        let (_, back) = block_on(copy).expect("arrived");
        assert!(back == source);
    }
    // A future that is dropped early leaves nothing behind that wakes.
    let source = vec![1; 40 * CHUNK];
    let device = device_memory(&stream, source.len());
    let mut future = stager.upload_owned(source, &stream, device).expect("begun").into_future();
    assert!(pin!(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(future);
    end(&pool, stager);
}

/// Bytes of a lease need no second buffer, and are read when the call returns.
fn pinned_memory_goes_straight() {
    const BYTES: usize = 40 * CHUNK;
    let (pool, stager) = crew(1);
    let other = self::pool(BYTES, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, BYTES);
    let mut lease = filled(&other, BYTES, 5);
    let before = software().map(|driver| driver.calls("cuMemcpyHtoDAsync_v2"));
    let copy = stager.upload(lease.as_slice(), &stream, &mut device).expect("uploaded");
    assert!(copy.is_over(), "the source could be written while it is read");
    if let (Some(driver), Some(before)) = (software(), before) {
        assert_eq!(driver.calls("cuMemcpyHtoDAsync_v2") - before, 1, "one copy is enough");
    }
    lease.as_mut_slice().fill(6);
    assert_filled(&stream, &device, 5);
    stager.download(&device, &stream, lease.as_mut_slice()).expect("downloaded");
    assert!(lease.as_slice().iter().all(|byte| *byte == 5));
    end(&pool, stager);
}

fn files_readers_and_writers() {
    let (pool, stager) = crew(3);
    let stream = stream(&pool);
    let bytes = pattern(33 * CHUNK + 123, 9);
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&bytes).expect("written");
    file.as_file().sync_all().expect("on disk");
    let drop_cache = |file: &File| {
        use std::os::fd::AsRawFd;
        // SAFETY: the file is open, and advice changes nothing of it.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    };
    for (offset, cold) in [(0, false), (0, true), (4096, true), (77, true), (77, false)] {
        let wanted = &bytes[offset..];
        let mut device = device_memory(&stream, wanted.len());
        if cold {
            drop_cache(file.as_file());
        }
        let copy = stager.upload_file(file.as_file(), offset as u64, &stream, &mut device);
        copy.expect("uploaded").wait().expect("arrived");
        assert!(on_device(&stream, &device) == wanted, "from {offset}, cold: {cold}");
    }
    let mut device = device_memory(&stream, bytes.len());
    let reader = File::open(file.path()).expect("opens");
    stager.upload_from(reader, &stream, &mut device).expect("uploaded").wait().expect("arrived");
    assert!(on_device(&stream, &device) == bytes);
    // One that gives few bytes at a time.
    stager.upload_from(Drip(&bytes), &stream, &mut device).expect("uploaded").wait().expect("ok");
    assert!(on_device(&stream, &device) == bytes);
    let mut written = Vec::new();
    stager.download_to(&device, &stream, &mut written).expect("downloaded");
    assert!(written == bytes, "in their order");
    end(&pool, stager);
}

struct Drip<'a>(&'a [u8]);

impl std::io::Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let few = buffer.len().min(self.0.len()).min(1009);
        buffer[..few].copy_from_slice(&self.0[..few]);
        self.0 = &self.0[few..];
        Ok(few)
    }
}

fn a_scope_waits_for_its_copies() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let source = pattern(30 * CHUNK, 4);
    let mut device = device_memory(&stream, source.len());
    let mut back = vec![0; source.len()];
    // Nobody keeps the handle.
    stager.scope(|scope| drop(scope.upload(&source, &stream, &mut device).expect("begun")));
    assert!(on_device(&stream, &device) == source);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stager.scope(|scope| {
            drop(scope.download(&device, &stream, &mut back).expect("begun"));
            panic!("meant")
        });
    }));
    assert!(panicked.is_err() && back == source, "the scope was left before its end");
    end(&pool, stager);
}

fn a_stager_bounds_what_it_holds() {
    let pool = pool(CHUNK, 7);
    let build = |threads| {
        Stager::builder(&pool).threads(threads).chunk_bytes(CHUNK).straight_bytes(SMALL).build()
    };
    let Err(Error::StagerBuffers { needed: 8, error: LeaseError::TooMany { .. }, .. }) = build(4)
    else {
        panic!("the class has 7 slots")
    };
    assert_eq!(counts(&pool), (7, 0, 0, 0));
    for threads in [0, 65] {
        assert!(matches!(build(threads), Err(Error::StagerSize { .. })));
    }
    let large = Stager::builder(&pool).threads(1).chunk_bytes(CHUNK + 1).build();
    let text = large.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("[[class]]") && text.contains("65537"), "{text}");
    let stager = build(3).expect("6 of 7 slots");
    assert!(matches!(build(1), Err(Error::StagerBuffers { needed: 2, .. })));
    let stream = stream(&pool);
    let source = vec![1; 100 * CHUNK];
    let mut device = device_memory(&stream, source.len());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..5 {
                stager.upload(&source, &stream, &mut device).expect("up").wait().expect("there");
            }
        });
        for _ in 0..100 {
            let class = class(&pool);
            assert_eq!((class.free, class.leased + class.in_flight), (1, 6), "{class:?}");
        }
    });
    end(&pool, stager);
    // Without a device there is nothing to copy to.
    let host = Pool::builder().env(false).backend(BackendChoice::Host).lock(LockMode::Try);
    let host = host.class("c", CHUNK, 2).open().expect("a host pool");
    let refused =
        Stager::builder(&host).threads(1).chunk_bytes(CHUNK).straight_bytes(SMALL).build();
    assert!(matches!(refused, Err(Error::StagerWithoutDevice { .. })));
}

fn a_fence_tells_of_a_staged_copy() {
    const BYTES: usize = 30 * CHUNK;
    let (pool, stager) = crew(1);
    let other = self::pool(4096, 1);
    let stream = stream(&pool);
    let source = vec![1; BYTES];
    let mut device = device_memory(&stream, BYTES);
    let gate = Gate::close_now(&stream);
    stager.scope(|scope| {
        let copy = scope.upload(&source, &stream, &mut device).expect("begun");
        other.lease(4096).expect("a slot").retire_after(copy.fence());
        assert_eq!(copy.fence().poll(), Ok(FenceStatus::Pending));
        assert!(other.try_lease(4096).is_err());
        gate.open();
        assert!(other.lease_timeout(4096, HANG).is_ok());
        copy.wait().expect("arrived");
    });
    // One that fails says so, and what waited for it is not used again.
    let gate = Gate::close_now(&stream);
    stager.scope(|scope| {
        let copy = scope.upload(&source, &stream, &mut device).expect("begun");
        let fence = copy.fence();
        copy.cancel();
        assert!(fence.poll().is_err_and(|error| error.to_string().contains("cancelled")));
        let error = copy.wait().expect_err("cancelled");
        assert!(matches!(error.cause, StageCause::Cancelled) && error.done == 0, "{error}");
    });
    gate.open();
    end(&pool, stager);
}

#[allow(dead_code, reason = "what users may send between threads")]
fn is_send(stager: Stager, copy: pinpool::StagedCopy, owned: pinpool::OwnedCopy<Vec<u8>, Slice>) {
    fn check<T: Send + Sync>(_: T) {}
    check((stager, copy, owned));
}

type Slice = (CudaSlice<u8>, Arc<CudaStream>);
