//! The threads of a stager. Each has two buffers and goes through pieces of copies: while the device copies
//! one buffer, the thread fills or empties the other.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::board::{Board, Take, Work};
use super::error::StageCause;
use super::job::Job;
use crate::config::STAGE_SLOTS_EACH;
use crate::cuda::lane::{Lane, ask_at_any_time, landed, still_runs};
use crate::error::Error;
use crate::foreign::{caught, tell};
use crate::in_flight::InFlight;
use crate::lease::Lease;
use crate::pool::Pool;

/// One thread's things.
pub(super) struct Hand {
    number: usize,
    board: Arc<Board<Job>>,
    pool: Pool,
    buffer_bytes: usize,
    /// Where its buffers lie, as processors; anywhere if empty.
    processors: Vec<u32>,
    /// Buffers that nothing uses.
    idle: Vec<Lease>,
    /// Buffers that the device uses, in the order of their copies.
    flights: VecDeque<Flight>,
    /// A stream in each context that copies came from.
    lanes: Vec<Lane>,
}

/// A piece on its way.
struct Flight {
    job: Arc<Job>,
    piece: usize,
    buffer: InFlight,
}

impl Hand {
    pub(super) fn new(
        number: usize,
        board: &Arc<Board<Job>>,
        pool: Pool,
        buffer_bytes: usize,
        idle: Vec<Lease>,
        processors: Vec<u32>,
    ) -> Self {
        let (board, flights, lanes) = (Arc::clone(board), VecDeque::new(), Vec::new());
        Self { number, board, pool, buffer_bytes, processors, idle, flights, lanes }
    }

    /// Starts the thread. It ends once the board is closed and all copies on it are over.
    pub(super) fn start(self) -> io::Result<JoinHandle<()>> {
        let name = format!("pinpool-stage{}", self.number);
        std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(|| self.run())
    }

    fn run(mut self) {
        stay_on(&self.processors);
        ask_at_any_time();
        loop {
            // Whoever has nothing else to do sees to what is on its way.
            match self.board.take(self.number, self.flights.is_empty(), self.bound()) {
                Take::Piece(job, piece) => self.begin(job, piece),
                Take::End if self.flights.is_empty() => return,
                Take::Nothing | Take::End => self.land(),
            }
        }
    }

    /// The copy in order whose pieces are on their way.
    fn bound(&self) -> Option<&Job> {
        self.flights.iter().map(|flight| &*flight.job).find(|job| job.is_serial())
    }

    /// Starts a piece: reads its source and queues its copy, or queues its copy from the device.
    fn begin(&mut self, job: Arc<Job>, piece: usize) {
        // A reader may wait for long: pieces of other copies are not to wait with it.
        let alone = job.is_serial();
        let holds_up = |flight: &Flight| alone && !Arc::ptr_eq(&flight.job, &job);
        while self.flights.len() == STAGE_SLOTS_EACH || self.flights.iter().any(holds_up) {
            self.land();
        }
        match self.send(&job, piece) {
            Ok(buffer) => {
                job.tally.sent();
                self.flights.push_back(Flight { job, piece, buffer });
            }
            Err(cause) => {
                job.tally.fail(Some(cause));
                let_go(job);
            }
        }
    }

    fn send(&mut self, job: &Job, piece: usize) -> Result<InFlight, StageCause> {
        let mut buffer = self.buffer()?;
        let prepared = buffer
            .set_len(job.len(piece))
            .map_err(|error| StageCause::Failed(error.into()))
            .and_then(|()| job.fill(piece, buffer.as_mut_slice()))
            .and_then(|()| self.lane(job).map_err(StageCause::Failed));
        let lane = match prepared {
            Ok(lane) => lane,
            Err(cause) => {
                self.idle.push(buffer);
                return Err(cause);
            }
        };
        let (lane, address) = (&self.lanes[lane], job.address(piece));
        let queued = if job.is_upload() {
            // SAFETY: I18, the job's device memory is of the lane's context and has these bytes.
            unsafe { lane.upload(buffer, address) }
        } else {
            // SAFETY: as above.
            unsafe { lane.download(buffer, address) }
        };
        queued.map_err(|refused| {
            self.idle.extend(refused.lease);
            StageCause::Failed(refused.error)
        })
    }

    /// A buffer that nothing uses. One that was lost to a failure is replaced, if the pool has one.
    fn buffer(&mut self) -> Result<Lease, StageCause> {
        if let Some(idle) = self.idle.pop() {
            return Ok(idle);
        }
        // Once the process exits all of them are given up, and nobody asks the pool for others.
        still_runs().map_err(StageCause::Failed)?;
        let fresh = self.pool.try_lease(self.buffer_bytes);
        let fresh = fresh.map_err(|error| StageCause::Failed(Error::Lease(error)))?;
        // What the class may lend instead of a slot goes back: the next copy may find one.
        if !fresh.is_pinned() {
            let backend = fresh.backend();
            return Err(StageCause::Failed(Error::NotDeviceAccessible { backend }));
        }
        Ok(fresh)
    }

    /// The lane for a job's context.
    fn lane(&mut self, job: &Job) -> Result<usize, Error> {
        let known = self.lanes.iter().position(|lane| lane.is_of(&job.context));
        let lane = known.unwrap_or(self.lanes.len());
        if known.is_none() {
            self.lanes.push(Lane::open(&job.context)?);
        }
        job.goes_by(&self.lanes[lane]);
        Ok(lane)
    }

    /// Waits for the oldest piece on its way, and hands on what came from the device.
    fn land(&mut self) {
        let Some(Flight { job, piece, buffer }) = self.flights.pop_front() else { return };
        let buffer = match landed(buffer) {
            Ok(buffer) => buffer,
            Err(error) => {
                job.tally.fail(Some(StageCause::Failed(error)));
                return let_go(job);
            }
        };
        let drained = if job.is_upload() {
            Ok(())
        } else if job.tally.is_stopped() {
            Err(None)
        } else {
            job.drain(piece, buffer.as_slice()).map_err(Some)
        };
        self.idle.push(buffer);
        match drained {
            Ok(()) => job.tally.settle(job.len(piece) as u64),
            Err(cause) => job.tally.fail(cause),
        }
        let_go(job);
    }
}

/// What an owned copy keeps may go with it, and is the caller's.
fn let_go(job: Arc<Job>) {
    if caught(|| drop(job)).is_none() {
        tell!(error, "what an owned staged copy kept panicked when it was dropped");
    }
}

/// Keeps the calling thread on those of its processors that are among these, if any are.
fn stay_on(processors: &[u32]) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut near = CpuSet::new();
    for number in processors.iter().map(|number| *number as usize) {
        if number < CpuSet::MAX_CPU && allowed.is_set(number) {
            near.set(number);
        }
    }
    if near.count() > 0 {
        // Where it is forbidden it is no worse than before.
        let _ = sched_setaffinity(None, &near);
    }
}

/// Readers and writers of the caller's run on it.
const STACK_BYTES: usize = 1 << 20;
