//! Staged copies that fail: each tells why and how far it came, nothing is stuck, and the crew goes on.

use std::io::{self, Read, Write};
use std::sync::Arc;

use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{Error, Fence, Pool, StageCause, StageError, Stager};
use pinpool_testkit::fork::in_fork;

use crate::staging::{CHUNK, SMALL, crew, end};
use crate::support::*;
use crate::{Check, check, check_with};

pub(crate) const ALL: &[Check] = &[
    check("a_source_that_ends_early", a_source_that_ends_early),
    check("a_source_that_fails", a_source_that_fails),
    check("a_sink_that_fails", a_sink_that_fails),
    check("readers_and_writers_that_panic", readers_and_writers_that_panic),
    check("a_file_that_is_truncated_meanwhile", a_file_that_is_truncated_meanwhile),
    check("staged_copies_are_refused", staged_copies_are_refused),
];

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check_with("a_staged_copy_that_is_cancelled", SLOW, a_copy_that_is_cancelled),
    check("every_call_of_a_staged_copy_fails", every_call_fails),
    check("the_device_is_lost_under_staged_copies", the_device_is_lost),
    check("a_forked_child_stages_nothing", a_forked_child_stages_nothing),
];

const SLOW: &[(&str, &str)] = &[("FAKECUDA_COPY_DELAY_US", "2000")];

/// The crew works as ever.
fn assert_usable(stager: &Stager, stream: &Arc<CudaStream>) {
    let source = pattern(21 * CHUNK + 9, 3);
    let mut device = device_memory(stream, source.len());
    stager.upload(&source, stream, &mut device).expect("uploaded").wait().expect("arrived");
    let mut back = vec![0; source.len()];
    stager.download(&device, stream, &mut back).expect("downloaded");
    assert!(back == source);
}

/// The error of a copy, whenever it came.
fn error<C>(copy: Result<C, StageError>, wait: fn(C) -> Result<(), StageError>) -> StageError {
    copy.and_then(wait).expect_err("it fails")
}

fn a_source_that_ends_early() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 10 * CHUNK);
    for len in [0, 1, CHUNK, 9 * CHUNK + 1, 10 * CHUNK - 1] {
        let source = pattern(len, 5);
        let copy = stager.upload_from(&source[..], &stream, &mut device);
        let error = error(copy, pinpool::StagedCopy::wait);
        assert!(matches!(error.cause, StageCause::Truncated), "{error}");
        assert!(error.done <= len as u64 && error.total == 10 * CHUNK as u64, "{error}");
        // In order, without gaps.
        let done = error.done as usize;
        assert!(on_device(&stream, &device)[..done] == source[..done]);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&source).expect("written");
        let copy = stager.upload_file(&file, 0, &stream, &mut device);
        let error = self::error(copy, pinpool::StagedCopy::wait);
        assert!(matches!(error.cause, StageCause::Truncated), "{error}");
        let text = error.to_string();
        assert!(text.contains("truncates it") && text.contains("655360 bytes"), "{text}");
    }
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

/// Reads or writes so many bytes, then fails or panics.
struct Fails {
    left: usize,
    panics: bool,
}

impl Fails {
    fn take(&mut self, wanted: usize) -> io::Result<usize> {
        if self.left == 0 {
            assert!(!self.panics, "meant");
            return Err(io::Error::other("the cable was pulled"));
        }
        let some = wanted.min(self.left);
        self.left -= some;
        Ok(some)
    }
}

impl Read for Fails {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.take(buffer.len())
    }
}

impl Write for Fails {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.take(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn a_source_that_fails() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 10 * CHUNK);
    for left in [0, CHUNK + 7, 9 * CHUNK] {
        let copy = stager.upload_from(Fails { left, panics: false }, &stream, &mut device);
        let error = error(copy, pinpool::StagedCopy::wait);
        assert!(matches!(error.cause, StageCause::Read(_)), "{error}");
        assert!(error.to_string().contains("the cable was pulled"), "{error}");
        assert!(error.done <= left as u64, "{error}");
    }
    // A folder opens as a file and cannot be read.
    let folder = std::fs::File::open("/").expect("opens");
    let copy = stager.upload_file(&folder, 0, &stream, &mut device);
    let error = error(copy, pinpool::StagedCopy::wait);
    assert!(matches!(error.cause, StageCause::Read(_)), "{error}");
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

fn a_sink_that_fails() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let device = device_memory(&stream, 10 * CHUNK);
    for left in [0, CHUNK + 7, 9 * CHUNK] {
        let ended = stager.download_to(&device, &stream, Fails { left, panics: false });
        let error = ended.expect_err("it fails");
        assert!(matches!(error.cause, StageCause::Write(_)), "{error}");
        assert!(error.done <= left as u64, "{error}");
    }
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

fn readers_and_writers_that_panic() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 10 * CHUNK);
    for round in 0..20 {
        let left = round * CHUNK / 2;
        let copy = stager.upload_from(Fails { left, panics: true }, &stream, &mut device);
        let error = error(copy, pinpool::StagedCopy::wait);
        assert!(matches!(error.cause, StageCause::Panicked), "{error}");
        let ended = stager.download_to(&device, &stream, Fails { left, panics: true });
        assert!(matches!(ended.expect_err("it panics").cause, StageCause::Panicked));
    }
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

/// The file becomes shorter while it is read, at any time.
fn a_file_that_is_truncated_meanwhile() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let bytes = pattern(64 * CHUNK, 1);
    let mut device = device_memory(&stream, bytes.len());
    let mut failed = 0;
    for round in 0..30_u64 {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        let copy = std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(round * 100));
                file.set_len(CHUNK as u64 * (round % 7)).expect("truncated");
            });
            stager.upload_file(&file, 0, &stream, &mut device).and_then(pinpool::StagedCopy::wait)
        });
        match copy {
            Ok(()) => assert!(on_device(&stream, &device) == bytes, "round {round}"),
            Err(error) => {
                assert!(matches!(error.cause, StageCause::Truncated), "{error}");
                failed += 1;
            }
        }
    }
    println!("{failed} of 30 were truncated in time");
    assert!(failed > 0, "none was truncated in time");
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

fn staged_copies_are_refused() {
    let (pool, stager) = crew(1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4 * CHUNK);
    let long = vec![0; 4 * CHUNK + 1];
    let failed = |error: StageError| match error.cause {
        StageCause::Failed(error) => error,
        other => panic!("{other:?}"),
    };
    let up = stager.upload(&long, &stream, &mut device).expect_err("too short");
    assert!(matches!(failed(up), Error::CopyLength { .. }));
    let down = stager.download(&device, &stream, &mut [0; 9]).expect_err("too short");
    assert!(matches!(failed(down), Error::CopyLength { .. }));
    // A stream that is being captured: a staged copy would run now, and not with the graph.
    let mode = pinpool::cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut unwatched = unwatched_memory(&stream, 4 * CHUNK);
    stream.begin_capture(mode).expect("captures");
    for bytes in [100, 3 * CHUNK] {
        let captured = stager.upload(&long[..bytes], &stream, &mut unwatched);
        assert!(matches!(failed(captured.expect_err("captured")), Error::StreamCapturing));
    }
    let flags = pinpool::cudarc::driver::sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(stream.end_capture(flags));
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

fn a_copy_that_is_cancelled() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let source = vec![1; 60 * CHUNK];
    let mut device = device_memory(&stream, source.len());
    let mut back = vec![0; source.len()];
    for round in 0..10 {
        let ended = stager.scope(|scope| {
            let copy = if round % 2 == 0 {
                scope.upload(&source, &stream, &mut device).expect("begun")
            } else {
                scope.download(&device, &stream, &mut back).expect("begun")
            };
            let after = round * 2 * CHUNK as u64;
            until("it is so far", || copy.progress().done >= after);
            copy.cancel();
            copy.wait()
        });
        let error = ended.expect_err("it was cancelled long before its end");
        assert!(matches!(error.cause, StageCause::Cancelled), "{error}");
        // At most what was under way.
        assert!(error.done < (round * 2 + 12) * CHUNK as u64, "round {round}: {error}");
    }
    // While a reader's pieces are under way.
    assert_usable(&stager, &stream);
    end(&pool, stager);
}

/// What a staged copy calls.
const CALLS: &[&str] = &[
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamIsCapturing",
    "cuStreamGetId",
    "cuStreamCreate",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuPointerGetAttributes",
    "cuCtxSetCurrent",
    "cuCtxGetCurrent",
];

/// Copies up and down; both are right, or tell why not.
fn try_both(stager: &Stager, stream: &Arc<CudaStream>, device: &mut CudaSlice<u8>) -> bool {
    let source = pattern(device.len(), 8);
    let up = stager.upload(&source, stream, device).and_then(pinpool::StagedCopy::wait);
    let mut back = vec![0; source.len()];
    let down = stager.download(device, stream, &mut back);
    match (up, down) {
        (Ok(()), Ok(())) => {
            assert!(back == source, "it said that all is there");
            true
        }
        (up, down) => {
            for error in [up, down].into_iter().filter_map(Result::err) {
                assert!(!error.to_string().is_empty());
                assert!(matches!(error.cause, StageCause::Failed(_)), "{error}");
            }
            false
        }
    }
}

fn every_call_fails() {
    let driver = driver();
    let (mut planned, mut failed) = (0, 0);
    for call in CALLS {
        for nth in 1..=24 {
            let pool = spare_pool();
            let stager =
                Stager::builder(&pool).threads(2).chunk_bytes(CHUNK).straight_bytes(SMALL).build();
            let stager = stager.expect("a stager");
            let stream = stream(&pool);
            let mut device = device_memory(&stream, 5 * CHUNK + 3);
            driver.fail(&format!("{call}:{nth}:999")).expect("planned");
            let right = try_both(&stager, &stream, &mut device);
            driver.clear_faults();
            // cudarc keeps a failure of its own calls for the next one to tell.
            let _ = stream.context().check_err();
            planned += 1;
            failed += usize::from(!right);
            // What was lost to a failure is replaced from the pool.
            assert_usable(&stager, &stream);
            stager.close();
            until("nothing is in flight", || counts(&pool).2 == 0);
            let (_, leased, _, quarantined) = counts(&pool);
            assert!(leased == 0 && quarantined <= 2, "{call} {nth}: {:?}", counts(&pool));
        }
    }
    println!("{planned} faults, {failed} of them failed a copy");
    assert!(failed > planned / 8, "{failed} of {planned} faults did anything");
    no_harm_done();
}

/// With slots for those that failures cost.
fn spare_pool() -> Pool {
    pool(CHUNK, 8)
}

fn the_device_is_lost() {
    let driver = driver();
    for round in 0..20_usize {
        let pool = spare_pool();
        let stager =
            Stager::builder(&pool).threads(2).chunk_bytes(CHUNK).straight_bytes(SMALL).build();
        let stager = stager.expect("a stager");
        let stream = stream(&pool);
        let source = vec![1; 30 * CHUNK];
        let mut device = device_memory(&stream, source.len());
        let ended = stager.scope(|scope| {
            let copy = scope.upload(&source, &stream, &mut device).expect("begun");
            let enough = (round * CHUNK) as u64;
            until("it is so far", || copy.progress().done >= enough || copy.is_over());
            driver.poison(719);
            copy.wait()
        });
        if let Err(error) = ended {
            assert!(matches!(error.cause, StageCause::Failed(_)), "{error}");
        }
        let refused = stager.upload(&source, &stream, &mut device);
        let refused = refused.and_then(pinpool::StagedCopy::wait);
        assert!(matches!(refused.expect_err("lost").cause, StageCause::Failed(_)));
        stager.close();
        drop((pool, device, stream));
        driver.poison(0);
    }
}

fn a_forked_child_stages_nothing() {
    let (pool, stager) = crew(2);
    let stream = stream(&pool);
    let source = vec![1; 30 * CHUNK];
    let mut device = device_memory(&stream, source.len());
    let mut other = device_memory(&stream, 4);
    threads_are_quiet();
    let gate = Gate::close_now(&stream);
    stager.scope(|scope| {
        let copy = scope.upload(&source, &stream, &mut device).expect("begun");
        let (fence, small) = (copy.fence(), [0_u8; 4]);
        let child = in_fork(|| {
            let forked = |error: StageError| matches!(error.cause, StageCause::Forked);
            copy.cancel();
            let refused = stager.upload(&small, &stream, &mut other);
            fence.poll().is_err() && refused.is_err_and(forked) && copy.wait().is_err_and(forked)
        });
        assert_eq!(child, Ok(true));
        gate.open();
    });
    assert_filled(&stream, &device, 1);
    end(&pool, stager);
}
