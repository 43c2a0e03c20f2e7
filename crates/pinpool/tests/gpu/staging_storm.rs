//! Thousands of staged copies of random sizes, places and kinds, from several threads at once, with random
//! delays and cancels: byte for byte what a plain copy would have left.

use std::sync::Arc;

use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{Pool, StageCause, Stager};

use crate::Check;
use crate::staging::{CHUNK, SMALL, end};
use crate::support::*;

pub(crate) const ALL: &[Check] =
    &[crate::check("a_storm_of_staged_copies", a_storm_of_staged_copies)];

const CALLERS: u64 = 4;
const BYTES: usize = 12 * CHUNK;

fn a_storm_of_staged_copies() {
    let each = rounds(2500, 2500);
    let pool = pool(CHUNK, 6);
    let stager = Stager::builder(&pool)
        .threads(3)
        .chunk_bytes(CHUNK)
        .straight_bytes(SMALL)
        .build()
        .expect("a stager");
    let (mut copies, mut cancelled) = (0, 0);
    std::thread::scope(|threads| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let (pool, stager) = (&pool, &stager);
                threads.spawn(move || Caller::new(pool, stager, number).run(each))
            })
            .collect();
        for caller in callers {
            let (some, ended) = caller.join().expect("no panic");
            copies += some;
            cancelled += ended;
        }
    });
    println!("{copies} copies, {cancelled} of them cancelled in time");
    assert!(copies >= CALLERS as usize * each && cancelled > 0);
    end(&pool, stager);
}

/// One thread with a stream and a piece of device memory of its own, and what must be in it.
struct Caller<'a> {
    stager: &'a Stager,
    stream: Arc<CudaStream>,
    device: CudaSlice<u8>,
    shadow: Vec<u8>,
    /// Where it reads from, and what for.
    source: Vec<u8>,
    back: Vec<u8>,
    random: u64,
    cancelled: usize,
}

impl<'a> Caller<'a> {
    fn new(pool: &Pool, stager: &'a Stager, number: u64) -> Self {
        let stream = stream(pool);
        let mut device = device_memory(&stream, BYTES);
        stream.memset_zeros(&mut device).expect("queued");
        let (shadow, source, back) = (vec![0; BYTES], pattern(2 * BYTES, 3), vec![0; BYTES]);
        let random = 0x9e37_79b9_7f4a_7c15 ^ (number + 1);
        Self { stager, stream, device, shadow, source, back, random, cancelled: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % end
    }

    /// A part of the device: mostly a few pieces long, now and then small or all of it.
    fn part(&mut self) -> std::ops::Range<usize> {
        let most = match self.below(8) {
            0 => BYTES,
            1 => 300,
            _ => 4 * CHUNK,
        };
        let len = 1 + self.below(most);
        let start = self.below(BYTES - len + 1);
        start..start + len
    }

    fn run(mut self, copies: usize) -> (usize, usize) {
        for round in 0..copies {
            if let Some(driver) = software()
                && round % 50 == 0
            {
                driver.set_copy_delay_us(self.below(60) as u64);
            }
            match self.below(6) {
                0 | 1 => self.up(),
                2 => self.up_by_a_reader(),
                3 => self.up_and_cancel(),
                4 => self.two_at_once(),
                _ => self.down(),
            }
        }
        assert!(on_device(&self.stream, &self.device) == self.shadow, "at the end");
        (copies, self.cancelled)
    }

    fn source_for(&mut self, len: usize) -> std::ops::Range<usize> {
        let from = self.below(self.source.len() - len);
        from..from + len
    }

    fn up(&mut self) {
        let part = self.part();
        let from = self.source_for(part.len());
        let mut target = self.device.slice_mut(part.clone());
        let source = &self.source[from.clone()];
        let copy = self.stager.upload(source, &self.stream, &mut target).expect("uploaded");
        self.shadow[part].copy_from_slice(&self.source[from]);
        if self.below(2) == 0 {
            copy.wait().expect("arrived");
        }
    }

    fn up_by_a_reader(&mut self) {
        let part = self.part();
        let from = self.source_for(part.len());
        let mut target = self.device.slice_mut(part.clone());
        let source = &self.source[from.clone()];
        let copy = self.stager.upload_from(source, &self.stream, &mut target);
        copy.expect("uploaded").wait().expect("arrived");
        self.shadow[part].copy_from_slice(&self.source[from]);
    }

    /// What a cancelled copy left is unknown, and made known by another one.
    fn up_and_cancel(&mut self) {
        let part = self.part();
        let from = self.source_for(part.len());
        let spins = self.below(3000);
        let mut target = self.device.slice_mut(part.clone());
        let ended = self.stager.scope(|scope| {
            let source = &self.source[from.clone()];
            let copy = scope.upload(source, &self.stream, &mut target).expect("begun");
            (0..spins).for_each(|_| std::hint::spin_loop());
            copy.cancel();
            copy.wait()
        });
        if let Err(error) = ended {
            assert!(matches!(error.cause, StageCause::Cancelled), "{error}");
            self.cancelled += 1;
            let mut target = self.device.slice_mut(part.clone());
            let source = &self.source[from.clone()];
            let again = self.stager.upload(source, &self.stream, &mut target);
            again.expect("uploaded").wait().expect("arrived");
        }
        self.shadow[part].copy_from_slice(&self.source[from]);
    }

    fn two_at_once(&mut self) {
        let middle = 1 + self.below(BYTES - 1);
        let (first, second) = (self.source_for(middle), self.source_for(BYTES - middle));
        let (mut low, mut high) = self.device.split_at_mut(middle);
        self.stager.scope(|scope| {
            let low = scope.upload(&self.source[first.clone()], &self.stream, &mut low);
            let high = scope.upload(&self.source[second.clone()], &self.stream, &mut high);
            high.expect("begun").wait().expect("arrived");
            low.expect("begun").wait().expect("arrived");
        });
        self.shadow[..middle].copy_from_slice(&self.source[first]);
        self.shadow[middle..].copy_from_slice(&self.source[second]);
    }

    fn down(&mut self) {
        let part = self.part();
        let source = self.device.slice(part.clone());
        let back = &mut self.back[..part.len()];
        self.stager.download(&source, &self.stream, back).expect("downloaded");
        assert!(*back == self.shadow[part], "it came back otherwise");
    }
}
