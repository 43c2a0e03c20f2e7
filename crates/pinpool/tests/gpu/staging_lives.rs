//! Staged copies and what goes on around them: readers that wait for others, later work of the stream, captures,
//! closes, forks, and the end of the process.

use std::future::{Future, IntoFuture};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use pinpool::cudarc::driver::{CudaStream, sys};
use pinpool::{Fence, FenceStatus, StageCause, StageError, StagedCopy, Stager};
use pinpool_testkit::fork::in_fork;

use crate::staging::{CHUNK, crew, end};
use crate::support::*;
use crate::{Check, check, check_with};

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check_with("a_reader_that_waits_holds_up_no_other_copy", SLOW, a_reader_holds_up_no_other),
    check("a_reader_and_a_writer_of_one_pipe", a_reader_and_a_writer),
    check("later_work_is_no_part_of_a_copy", later_work_is_no_part),
    check("a_look_at_a_copy_ruins_no_capture", a_look_ruins_no_capture),
    check("a_copy_in_a_stream_per_thread", a_stream_per_thread),
    check("a_forked_child_waits_for_no_copy", a_forked_child_waits_for_none),
    check("a_forked_child_closes_its_parents_stager", a_forked_child_closes),
    check("an_error_whose_drop_panics", an_error_whose_drop_panics),
    check("what_is_no_file_is_not_opened", what_is_no_file_is_not_opened),
    check("a_task_awaits_a_copy_of_a_closed_pool", a_task_of_a_closed_pool),
    check("a_small_upload_is_over_at_once", a_small_upload_is_over),
    check("a_fence_keeps_no_source", a_fence_keeps_no_source),
    check("a_stager_is_closed_by_its_own_crew", closed_by_its_own_crew),
];

const SLOW: &[(&str, &str)] = &[("FAKECUDA_COPY_DELAY_US", "500")];

/// What `work` gives, if it is there in time. What is stuck cannot be unwound.
fn in_time<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, told) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    told.recv_timeout(HANG).unwrap_or_else(|why| {
        println!("{what}: {why}");
        std::process::exit(1)
    })
}

/// Waits until it may go on.
#[derive(Clone, Default)]
struct Waits(Arc<(AtomicBool, AtomicBool)>);

impl Waits {
    fn is_reached(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    fn go_on(&self) {
        self.0.1.store(true, Ordering::SeqCst);
    }
}

impl Read for Waits {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.0.store(true, Ordering::SeqCst);
        while !self.0.1.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        buffer.fill(3);
        Ok(buffer.len())
    }
}

/// Pieces that a thread has sent are not behind a reader that it calls next.
fn a_reader_holds_up_no_other() {
    let (pool, stager) = crew(2);
    let stager = Arc::new(stager);
    let stream = stream(&pool);
    let device = device_memory(&stream, 60 * CHUNK);
    let mut second = device_memory(&stream, 4 * CHUNK);
    let copy = stager.upload_owned(vec![1_u8; 60 * CHUNK], &stream, device).expect("begun");
    let waits = Waits::default();
    let (reader, its_stager, its_stream) = (waits.clone(), Arc::clone(&stager), stream.clone());
    let thread = std::thread::spawn(move || {
        let read = its_stager.upload_from(reader, &its_stream, &mut second).expect("read");
        read.wait().expect("arrived");
    });
    until("the reader waits", || waits.is_reached());
    in_time("a copy waits for another one's reader", move || copy.wait().expect("arrived"));
    waits.go_on();
    thread.join().expect("no panic");
    end(&pool, Arc::into_inner(stager).expect("the last"));
}

/// Each waits for the other, so that one thread must not have both.
fn a_reader_and_a_writer() {
    let (pool, stager) = crew(2);
    let stager = Arc::new(stager);
    for _ in 0..50 {
        let stream = stream(&pool);
        let [from, mut to] = [0, 1].map(|_| device_memory(&stream, 40 * CHUNK));
        let (reader, writer) = io::pipe().expect("a pipe");
        let stager = Arc::clone(&stager);
        in_time("a reader and a writer wait for each other", move || {
            std::thread::scope(|threads| {
                threads.spawn(|| stager.download_to(&from, &stream, writer).expect("written"));
                let read = stager.upload_from(reader, &stream, &mut to).expect("read");
                read.wait().expect("arrived");
            });
        });
    }
    end(&pool, Arc::into_inner(stager).expect("the last"));
}

/// Smaller than any piece; the caller goes on all the same.
type Small = pinpool::OwnedCopy<[u8; 100], pinpool::cudarc::driver::CudaSlice<u8>>;

fn small(stager: &Stager, stream: &Arc<CudaStream>) -> Small {
    let device = unwatched_memory(stream, 100);
    stager.upload_owned([1; 100], stream, device).expect("begun")
}

fn later_work_is_no_part() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let copy = small(&stager, &stream);
    let gate = Gate::close_now(&stream);
    until("it is over", || copy.is_over() && copy.progress().done == 100);
    assert_eq!(copy.fence().poll(), Ok(FenceStatus::Complete));
    copy.wait().expect("arrived");
    gate.open();
    end(&pool, stager);
}

fn a_look_ruins_no_capture() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let copy = small(&stager, &stream);
    until("it is over", || copy.is_over());
    stream
        .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        .expect("captures");
    assert!(format!("{copy:?}").contains("100") && copy.is_over());
    let ended = copy.wait();
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(stream.end_capture(flags).expect("the capture is as it was"));
    drop(ended.expect("arrived"));
    end(&pool, stager);
}

/// Its handle stands for another stream on each thread.
fn a_stream_per_thread() {
    let (pool, stager) = crew(1);
    let stream = context(&pool).per_thread_stream();
    let device = unwatched_memory(&stream, 100);
    let gate = Gate::close_now(&stream);
    let copy = stager.upload_owned([1_u8; 100], &stream, device).expect("begun");
    let elsewhere = std::thread::spawn(move || (copy.is_over(), copy.fence().poll(), copy));
    let (over, fence, copy) = elsewhere.join().expect("no panic");
    assert_eq!((over, fence), (false, Ok(FenceStatus::Pending)), "the stream stands still");
    gate.open();
    drop(copy.wait().expect("arrived"));
    end(&pool, stager);
}

fn a_forked_child_waits_for_none() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let owned = small(&stager, &stream);
    let fence = owned.fence();
    threads_are_quiet();
    let child = in_fork(|| {
        let forked = |error: &StageError| matches!(error.cause, StageCause::Forked);
        let refused = owned.wait().is_err_and(|it| it.parts.is_none() && forked(&it.error));
        refused && fence.poll().is_err()
    });
    assert_eq!(child, Ok(true));
    end(&pool, stager);
}

/// While the crew looks at copies that are not ready, under the board's lock.
fn a_forked_child_closes() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let gate = Gate::close_now(&stream);
    let copies: Vec<_> = (0..30)
        .map(|_| {
            let device = unwatched_memory_of(&pool);
            stager.upload_owned(vec![1_u8; 2 * CHUNK], &stream, device).expect("begun")
        })
        .collect();
    threads_are_quiet();
    let mut stager = Some(stager);
    for _ in 0..100 {
        let child = in_fork(|| {
            stager.take().expect("there").close();
            true
        });
        assert_eq!(child, Ok(true), "it takes the lock of a thread that is not there");
    }
    gate.open();
    for copy in copies {
        drop(copy.wait().expect("arrived"));
    }
    end(&pool, stager.expect("the parent's"));
}

fn unwatched_memory_of(pool: &pinpool::Pool) -> pinpool::cudarc::driver::CudaSlice<u8> {
    unwatched_memory(&stream(pool), 2 * CHUNK)
}

/// Panics where nobody of the caller's is.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        let thread = std::thread::current();
        assert!(!thread.name().is_some_and(|name| name.starts_with("pinpool")), "meant");
    }
}

impl Read for Bomb {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, Bomb))
    }
}

fn an_error_whose_drop_panics() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 10 * CHUNK);
    let stager = in_time("it cost the crew its thread", move || {
        let error = stager.upload_from(Bomb, &stream, &mut device).expect_err("it ends early");
        assert!(matches!(error.cause, StageCause::Truncated), "{error}");
        stager
    });
    end(&pool, stager);
}

fn what_is_no_file_is_not_opened() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 2 * CHUNK);
    // Opening a named pipe once more would wait for a writer.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().expect("it starts");
    assert!(made.success());
    let pipe = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let pipe = pipe.expect("opens");
    let (stager, stream, mut device) = in_time("it waits for a writer", move || {
        let error = stager.upload_file(&pipe, 0, &stream, &mut device).expect_err("no file");
        assert!(matches!(error.cause, StageCause::Read(_)), "{error}");
        (stager, stream, device)
    });
    // A descriptor for writing stays one.
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), vec![1; 2 * CHUNK]).expect("written");
    let writes = std::fs::OpenOptions::new().write(true).open(file.path()).expect("opens");
    writes.sync_all().expect("on disk");
    // SAFETY: the file is open, and advice changes nothing of it.
    unsafe {
        use std::os::fd::AsRawFd;
        libc::posix_fadvise(writes.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
    };
    let read = stager.upload_file(&writes, 0, &stream, &mut device).and_then(StagedCopy::wait);
    assert!(read.is_err_and(|error| matches!(error.cause, StageCause::Read(_))));
    end(&pool, stager);
}

/// The stream has passed it, so that nothing queued later is a part of it, and no handle asks the stream.
fn a_small_upload_is_over() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 100);
    let copy = stager.upload(&[7_u8; 100], &stream, &mut device).expect("uploaded");
    let gate = Gate::close_now(&stream);
    assert!(copy.is_over() && copy.progress().done == 100);
    copy.wait().expect("arrived");
    gate.open();
    assert_filled(&stream, &device, 7);
    end(&pool, stager);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn a_task_of_a_closed_pool() {
    for closes_first in [true, false] {
        let (pool, stager) = crew(1);
        let stream = stream(&pool);
        let device = unwatched_memory(&stream, 100);
        let gate = Gate::close_now(&stream);
        let copy = stager.upload_owned([1_u8; 100], &stream, device).expect("begun");
        drop(stager);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(copy.into_future());
        let mut is_done = || future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        // The crew has its slots until the copy is over.
        let soon = Duration::from_millis(10);
        if closes_first {
            pool.close(soon);
            assert!(!is_done());
        } else {
            assert!(!is_done());
            pool.close(soon);
        }
        gate.open();
        let mut seen = 0;
        loop {
            until("the task is woken", || woken.0.load(Ordering::SeqCst) > seen);
            seen = woken.0.load(Ordering::SeqCst);
            if is_done() {
                break;
            }
        }
    }
    no_harm_done();
}

/// Says that it was dropped, and closes a stager that it was given.
struct Tells(Vec<u8>, Arc<AtomicBool>, Arc<Mutex<Option<Stager>>>);

impl AsRef<[u8]> for Tells {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        if let Some(stager) = self.2.lock().expect("no panic").take() {
            stager.close();
        }
        self.1.store(true, Ordering::SeqCst);
    }
}

fn a_fence_keeps_no_source() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let device = device_memory(&stream, 10 * CHUNK);
    let dropped = Arc::new(AtomicBool::new(false));
    let source = Tells(vec![1; 10 * CHUNK], Arc::clone(&dropped), Arc::default());
    let copy = stager.upload_owned::<u8, _, _>(source, &stream, device).expect("begun");
    let fence = copy.fence();
    drop(copy);
    until("the source is dropped", || dropped.load(Ordering::SeqCst));
    assert_eq!(fence.poll(), Ok(FenceStatus::Complete));
    end(&pool, stager);
}

fn closed_by_its_own_crew() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let device = device_memory(&stream, 10 * CHUNK);
    let (dropped, place) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let source = Tells(vec![1; 10 * CHUNK], Arc::clone(&dropped), Arc::clone(&place));
    let gate = Gate::close_now(&stream);
    drop(stager.upload_owned::<u8, _, _>(source, &stream, device).expect("begun"));
    *place.lock().expect("no panic") = Some(stager);
    gate.open();
    until("it is closed", || dropped.load(Ordering::SeqCst));
    all_home(&pool);
    no_harm_done();
}
