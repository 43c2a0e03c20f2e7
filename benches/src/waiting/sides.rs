//! Parts `tasks` and `threads`: rounds in which every pool meets every load.

use super::Scale;
use super::load::{self, Load, Outcome};
use super::pools::{Channel, Guarded, Leases, Permits};
use super::report::{CHANNEL, CONDVAR, FREE, GIVING_UP, LEASE, LoadRow, SEMAPHORE, WAITING};
use crate::BenchError;
use crate::timing::{Progress, Range, Times, order, rounded};

/// 1,000 tasks wait for 50 buffers, 50 tasks do not, 1,000 wait and half of the waits are given up.
pub(super) fn tasks(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<LoadRow>, BenchError> {
    let (leases, permits, channel) =
        (Leases::open(SLOTS)?, Permits::new(SLOTS), Channel::new(SLOTS));
    let mut sides = Vec::new();
    for case in [WAITING, FREE, GIVING_UP] {
        let load = Load { cancels: case == GIVING_UP, ..load_of(case, scale.tasks, scale) };
        let (leases, permits, channel) = (&leases, &permits, &channel);
        sides.push(Side::new(case, LEASE, move || load::tasks(leases, &load))?);
        sides.push(Side::new(case, SEMAPHORE, move || load::tasks(permits, &load))?);
        sides.push(Side::new(case, CHANNEL, move || load::tasks(channel, &load))?);
    }
    measure(sides, scale, progress)
}

/// The same with threads, which do not give up.
pub(super) fn threads(
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<LoadRow>, BenchError> {
    let (leases, guarded) = (Leases::open(SLOTS)?, Guarded::new(SLOTS));
    let mut sides = Vec::new();
    for case in [WAITING, FREE] {
        let load = load_of(case, scale.threads, scale);
        let (leases, guarded) = (&leases, &guarded);
        sides.push(Side::new(case, LEASE, move || load::threads(leases, &load))?);
        sides.push(Side::new(case, CONDVAR, move || load::threads(guarded, &load))?);
    }
    measure(sides, scale, progress)
}

fn load_of(case: &str, waiters: usize, scale: &Scale) -> Load {
    Load {
        waiters: if case == FREE { SLOTS } else { waiters },
        cancels: false,
        warm_up: scale.warm_up,
        counted: scale.counted,
    }
}

fn measure(
    mut sides: Vec<Side<'_>>,
    scale: &Scale,
    progress: &mut Progress<'_>,
) -> Result<Vec<LoadRow>, BenchError> {
    for round in 0..scale.rounds {
        for at in order(round, sides.len()) {
            sides[at].round()?;
        }
        progress.step();
    }
    Ok(sides.into_iter().map(Side::row).collect())
}

/// One pool under one load, and what came of it so far.
struct Side<'a> {
    case: &'static str,
    pool: &'static str,
    run: Box<dyn Fn() -> Result<Outcome, BenchError> + 'a>,
    waits: Times,
    rates: Vec<f64>,
    tails: Vec<f64>,
    waiters: usize,
    leases: u64,
    cancelled: u64,
    in_line: Option<u64>,
    lost: u64,
}

impl<'a> Side<'a> {
    fn new(
        case: &'static str,
        pool: &'static str,
        run: impl Fn() -> Result<Outcome, BenchError> + 'a,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            case,
            pool,
            run: Box::new(run),
            waits: Times::new()?,
            rates: Vec::new(),
            tails: Vec::new(),
            waiters: usize::MAX,
            leases: 0,
            cancelled: 0,
            in_line: None,
            lost: 0,
        })
    }

    fn round(&mut self) -> Result<(), BenchError> {
        let outcome = (self.run)()?;
        self.rates.push(outcome.leases_per_s);
        let median = outcome.waits.quantile_us(0.5);
        if median > 0.0 {
            self.tails.push(outcome.waits.quantile_us(0.999) / median);
        }
        self.waits.merge(&outcome.waits)?;
        self.waiters = self.waiters.min(outcome.waiters);
        self.leases += outcome.leases;
        self.cancelled += outcome.cancelled;
        self.lost += outcome.lost;
        if let Some(in_line) = outcome.in_line {
            *self.in_line.get_or_insert(0) += in_line;
        }
        Ok(())
    }

    fn row(self) -> LoadRow {
        let tries = self.leases + self.cancelled;
        let quantile = |q| rounded(self.waits.quantile_us(q));
        LoadRow {
            case: self.case.to_owned(),
            pool: self.pool.to_owned(),
            waiters: self.waiters as u64,
            slots: SLOTS as u64,
            leases_per_s: Range::of(&self.rates),
            rounds: self.rates.iter().map(|&rate| rounded(rate)).collect(),
            in_line_percent: self
                .in_line
                .map(|in_line| rounded(in_line as f64 * 100.0 / tries.max(1) as f64)),
            waits: self.waits.count(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            p9999_us: quantile(0.9999),
            max_us: rounded(self.waits.max_us()),
            tail: Range::of(&self.tails),
            cancelled: self.cancelled,
            lost: self.lost,
        }
    }
}

const SLOTS: usize = 50;
