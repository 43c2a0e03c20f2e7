//! Desks: a few slots close at hand for each thread, in front of the stacks; it knows slots as numbers
//! only.
//!
//! # Structure
//!
//! Every thread that has a number of its own has a *desk* in every list: some *magazines*, each a
//! small array of slots under one head word. At most one of them is *biased*: its owner takes from it
//! and gives to it with plain loads and stores. The others only ever shrink: anybody takes one slot
//! at a time by compare-and-swap. An owner whose biased magazine is full publishes it whole and goes
//! on with an empty one, so that slots which one thread leases and another drops move in batches.
//!
//! ```text
//! desk     [ bias: odd while it is on | busy | which magazine is hot | ... ]
//! magazine [ tag: 59 bits | biased | count: 4 bits ]  [ slot: 32 bits | stamp: 32 bits ] x 14
//! ```
//!
//! # Why it is correct
//!
//! * **The owner is alone in its biased magazine.** It works in *sections*: `busy = 1`, a light barrier,
//!   look whether the bias is on, work, `busy = 0`. Who wants such slots turns the bias off, passes a heavy
//!   barrier and waits until `busy` is 0. Of the two barriers one comes first ([`barrier`]): either the
//!   section saw that the bias is off and did nothing, or its `busy = 1` is seen, and then its end is
//!   waited for. The load that sees `busy = 0` acquires everything the owner did before.
//! * **Nobody else changes a biased magazine.** All others change a head by compare-and-swap, and not
//!   while it says *biased*. The owner sets that bit by compare-and-swap, and every change raises the
//!   tag: who read the head before fails. The bit is cleared by the owner, outside of sections, or by
//!   somebody who saw the bias off, waited, read the head, and saw the bias as it had left it *after*
//!   that. If the owner has turned it on again since, either that last look or the tag says so.
//! * **One owner (I2).** An entry is read before the compare-and-swap that takes it; entries below the
//!   count are only overwritten by an owner, whose setting of the bit changed the head.
//! * **Nothing is stranded (I13).** A published magazine is anybody's, and a biased one is after a
//!   revocation, whatever its owner does or does not do any more. A slot is in some magazine or stack
//!   at every instant or with somebody: none is carried from one to another.
//! * **Waiting and closing.** They need every desk *quiet*: they count themselves in `quiet`, then revoke
//!   every bias. An owner turns its bias on first and then looks at `quiet`, with a full barrier in
//!   between on both sides: it sees the count and turns it off again before any section, or it is
//!   revoked. While a list is quiet slots go to the stacks, whose flags tell of waiters and of the end.
//! * **A bounded wait.** A section is some ten instructions without a call, so that `busy` stays set only
//!   if its thread was put aside there. A taker then sleeps a little, which lets that thread run also
//!   where priorities are strict, and gives up after two milliseconds.

use super::home::NUMBERS;
use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, pause};

/// The desks of one list.
#[derive(Debug)]
pub(super) struct Desks {
    all: Box<[Desk]>,
    /// Magazines that were ever in use, as bits: four for each desk. Set before the first slot comes.
    seated: Box<[AtomicU64]>,
    /// Biases that are on, or were turned off and may still be worked under.
    unsettled: AtomicU32,
    /// Those who need the desks quiet.
    quiet: AtomicU32,
}

/// One thread's. Lines of its own: others read nothing of it but `bias` and `busy`, and that rarely.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Desk {
    /// 1 within a section.
    busy: AtomicU32,
    /// Odd while the owner may work in sections. Only the owner makes it odd, anybody even.
    bias: AtomicU32,
    // The rest is the owner's alone.
    /// The magazine that is biased while `bias` is odd.
    hot: AtomicU32,
    /// Slots at which the hot magazine is published: fewer if others came for them.
    limit: AtomicU32,
    /// The last even `bias` that the owner knows of.
    known: AtomicU32,
    /// Slow returns until the owner turns its bias on again, and how many it waits the next time.
    rest: AtomicU32,
    patience: AtomicU32,
    /// The magazine that a slot was last taken from, plus one.
    from: AtomicU32,
    /// Leases that this thread and earlier owners took, and how many when the bias was turned on.
    leases: AtomicU64,
    since: AtomicU64,
    magazines: [Magazine; MAGAZINES],
}

#[derive(Debug)]
#[repr(align(128))]
struct Magazine {
    head: AtomicU64,
    /// The fewest slots that others ever left in it. A hint for high-water sampling.
    low: AtomicU32,
    entries: [AtomicU64; ENTRIES],
}

/// A slot in a magazine and its stamp when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) stamp: u32,
}

/// A magazine is its owner's alone.
struct Biased;

/// What [`Desks::take_published`] found.
#[derive(Debug)]
pub(super) enum Published {
    /// Somebody's slot before. True if there never were so few left in its magazine.
    Entry(Entry, bool),
    /// Nothing but slots in this magazine, which is biased, and perhaps in others.
    Biased(usize),
    None,
}

/// Keeps all desks of a list without a bias.
#[derive(Debug)]
#[must_use = "the desks are quiet as long as this lives"]
pub(crate) struct Quiet<'a>(&'a Desks);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.end_quiet();
    }
}

impl Desks {
    /// Desks for threads with numbers below `count`; none where the system has no barrier for them.
    pub(super) fn new(count: usize) -> Self {
        let count = count.min(NUMBERS as usize);
        let count = if count > 0 && barrier::is_available() { count } else { 0 };
        Self {
            all: (0..count).map(|_| Desk::new()).collect(),
            seated: (0..(count * MAGAZINES).div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            unsettled: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
        }
    }

    /// The desk of the thread with this number, which is the caller's.
    #[inline]
    pub(super) fn of(&self, home: u32) -> Option<&Desk> {
        self.all.get(home as usize)
    }

    /// Takes a slot from the caller's own magazines that are not hot, or were revoked.
    pub(super) fn take_back(&self, home: u32) -> Option<Entry> {
        let desk = self.of(home)?;
        let bias = desk.bias.load(Ordering::Acquire);
        if is_on(bias) {
            if let Some(entry) = desk.pop() {
                return Some(entry);
            }
            let full = desk.others().find(|(_, magazine)| magazine.count() > 0)?.0;
            // Nobody came for it.
            let limit = desk.limit.load(Ordering::Relaxed);
            desk.limit.store((limit + 1).min(ENTRIES as u32), Ordering::Relaxed);
            self.turn_to(home, desk, full);
            return desk.pop();
        }
        desk.note_off(bias);
        let take = |magazine: &Magazine| magazine.take(false).ok().flatten();
        desk.magazines.iter().find_map(take)
    }

    /// Sees to it that the caller can push a slot at its desk. False if it goes to the stacks.
    pub(super) fn make_room(&self, home: u32) -> bool {
        let Some(desk) = self.of(home) else { return false };
        let bias = desk.bias.load(Ordering::Acquire);
        if !is_on(bias) {
            return self.turn_on(home, desk, bias);
        }
        let empty = desk.others().find(|(_, magazine)| magazine.count() == 0);
        empty.is_some_and(|(empty, _)| self.turn_to(home, desk, empty))
    }

    /// Makes another magazine hot and publishes the one that was.
    fn turn_to(&self, home: u32, desk: &Desk, next: usize) -> bool {
        self.seat(home, next);
        if !desk.magazines[next].bias() {
            return false;
        }
        let last = desk.hot();
        desk.hot.store(u32_of(next), Ordering::Relaxed);
        desk.magazines[last].unbias();
        // If the bias was turned off meanwhile, the next section sees it, and nobody works here.
        true
    }

    /// Turns the caller's bias on, once it has rested long enough.
    fn turn_on(&self, home: u32, desk: &Desk, bias: u32) -> bool {
        desk.note_off(bias);
        let rest = desk.rest.load(Ordering::Relaxed);
        if rest > 0 {
            desk.rest.store(rest - 1, Ordering::Relaxed);
            return false;
        }
        let limit = desk.limit.load(Ordering::Relaxed);
        let hot = desk.hot();
        let roomy = desk.magazines[hot].count() < limit;
        let empty = || desk.others().find(|(_, magazine)| magazine.count() == 0);
        let Some(next) = roomy.then_some(hot).or_else(|| Some(empty()?.0)) else { return false };
        if self.quiet.load(Ordering::Relaxed) > 0 {
            desk.rest.store(REST, Ordering::Relaxed);
            return false;
        }
        self.seat(home, next);
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        let on = bias.wrapping_add(1);
        // In this order: who sees the magazine biased sees that the bias is on.
        desk.bias.store(on, Ordering::Release);
        let biased = desk.magazines[next].bias();
        desk.hot.store(u32_of(next), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if biased && self.quiet.load(Ordering::Relaxed) == 0 {
            desk.since.store(desk.leases.load(Ordering::Relaxed), Ordering::Relaxed);
            return true;
        }
        // No section was begun, so there is nothing to wait for.
        if desk.swap_bias(on, on.wrapping_add(1)) {
            self.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
        desk.note_off(on.wrapping_add(1));
        false
    }

    /// Marks a magazine as in use.
    fn seat(&self, home: u32, magazine: usize) {
        let index = home as usize * MAGAZINES + magazine;
        let (word, bit) = (&self.seated[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// The numbers of the magazines in use.
    fn in_use(&self) -> impl Iterator<Item = usize> {
        self.seated.iter().zip((0..).step_by(64)).flat_map(|(word, first)| {
            let mut left = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(first + bit)
            })
        })
    }

    fn magazine(&self, index: usize) -> &Magazine {
        &self.all[index / MAGAZINES].magazines[index % MAGAZINES]
    }

    /// Takes a slot from any published magazine. `calm`: no bias is on, and none comes on meanwhile.
    pub(super) fn take_published(&self, home: u32, calm: bool) -> Published {
        let desk = self.of(home);
        let last =
            desk.and_then(|desk| (desk.from.load(Ordering::Relaxed) as usize).checked_sub(1));
        if let Some(last) = last {
            // The others of the same desk are next: a thread that drops fills them in turn.
            let first = last / MAGAZINES * MAGAZINES;
            let siblings = first..first + MAGAZINES;
            let near = self.take_of(desk, std::iter::once(last).chain(siblings), calm);
            if let Published::Entry(..) = near {
                return near;
            }
        }
        self.take_of(desk, self.in_use(), calm)
    }

    fn take_of(
        &self,
        desk: Option<&Desk>,
        magazines: impl Iterator<Item = usize>,
        calm: bool,
    ) -> Published {
        let mut found = Published::None;
        for index in magazines {
            let magazine = self.magazine(index);
            match magazine.take(calm) {
                Ok(Some(entry)) => {
                    if let Some(desk) = desk {
                        desk.from.store(u32_of(index + 1), Ordering::Relaxed);
                    }
                    return Published::Entry(entry, magazine.is_new_low());
                }
                Ok(None) => {}
                Err(Biased) => found = Published::Biased(index),
            }
        }
        found
    }

    /// Publishes a magazine that was biased. False if its owner was put aside in the middle and does not
    /// come back.
    pub(super) fn revoke(&self, index: usize) -> bool {
        let desk = &self.all[index / MAGAZINES];
        loop {
            let (off, mine) = desk.turn_off();
            barrier::heavy();
            if !desk.settle(off, BRIEF) {
                // It stays unsettled: whoever needs the desks quiet waits for it.
                return false;
            }
            if mine {
                self.unsettled.fetch_sub(1, Ordering::AcqRel);
            }
            if self.magazine(index).clear(desk, off) {
                return true;
            }
        }
    }

    /// Makes all desks quiet: once this returns no section is run until it is dropped. May sleep; called
    /// without a lock that leases can take (I17).
    pub(super) fn quiet(&self) -> Quiet<'_> {
        self.begin_quiet();
        fence(Ordering::SeqCst);
        if self.unsettled.load(Ordering::Acquire) > 0 {
            let turned: Vec<_> = self.all.iter().map(Desk::turn_off).collect();
            barrier::heavy();
            for (desk, (off, mine)) in self.all.iter().zip(turned) {
                // Whoever turned it off may not have waited yet.
                desk.settle(off, u32::MAX);
                if mine {
                    self.unsettled.fetch_sub(1, Ordering::AcqRel);
                }
                for magazine in &desk.magazines {
                    magazine.clear(desk, off);
                }
            }
        }
        Quiet(self)
    }

    /// Counts somebody who needs the desks quiet, while they are.
    pub(super) fn begin_quiet(&self) {
        self.quiet.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end_quiet(&self) {
        self.quiet.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes everything out of quiet desks.
    pub(super) fn take_all(&self, mut each: impl FnMut(Entry)) {
        for index in self.in_use() {
            self.magazine(index).take_all().into_iter().flatten().for_each(&mut each);
        }
    }

    /// What is in quiet desks, as far as nobody takes it meanwhile.
    pub(super) fn contents(&self) -> Vec<Entry> {
        let read = |index| {
            let magazine = self.magazine(index);
            loop {
                let head = magazine.head.load(Ordering::Acquire);
                let entries = magazine.read(head);
                if magazine.head.load(Ordering::Acquire) == head {
                    return entries.into_iter().flatten();
                }
            }
        };
        self.in_use().flat_map(read).collect()
    }

    /// Slots in all magazines, and a stamp that changes with every change.
    pub(super) fn census(&self) -> (u32, u64) {
        let mut free = 0;
        // Bits are only added and tags only rise.
        let mut stamp = 0u64;
        for word in &self.seated {
            stamp = stamp.wrapping_add(word.load(Ordering::Acquire));
        }
        for index in self.in_use() {
            let head = self.magazine(index).head.load(Ordering::Acquire);
            free += count(head);
            stamp = stamp.wrapping_add(head >> TAG_SHIFT);
        }
        (free, stamp)
    }

    /// Leases that owners of desks counted.
    pub(super) fn leases(&self) -> u64 {
        self.all.iter().map(|desk| desk.leases.load(Ordering::Relaxed)).sum()
    }
}

impl Desk {
    fn new() -> Self {
        Self {
            busy: AtomicU32::new(0),
            bias: AtomicU32::new(0),
            hot: AtomicU32::new(0),
            limit: AtomicU32::new(ENTRIES as u32),
            known: AtomicU32::new(0),
            rest: AtomicU32::new(REST),
            patience: AtomicU32::new(REST),
            from: AtomicU32::new(0),
            leases: AtomicU64::new(0),
            since: AtomicU64::new(0),
            magazines: [const { () }; MAGAZINES].map(|()| Magazine::new()),
        }
    }

    /// Takes a slot from the hot magazine, if the bias is on.
    #[inline]
    pub(super) fn pop(&self) -> Option<Entry> {
        let mut found = None;
        self.section(|magazine, head| {
            // Of an empty one there is no entry below the count.
            let top = magazine.entries.get((count(head) as usize).wrapping_sub(1))?;
            found = Some(Entry::of(top.load(Ordering::Relaxed)));
            Some(next(head, -1))
        });
        found
    }

    /// Gives a slot to the hot magazine, if the bias is on and there is room.
    #[inline]
    pub(super) fn push(&self, entry: Entry) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        self.section(|magazine, head| {
            let room = magazine.entries.get(count(head) as usize)?;
            if count(head) >= limit {
                return None;
            }
            room.store(entry.word(), Ordering::Relaxed);
            Some(next(head, 1))
        })
    }

    /// Changes the hot magazine alone, if the bias is on. Called by the owner.
    #[inline]
    fn section(&self, change: impl FnOnce(&Magazine, u64) -> Option<u64>) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        barrier::light();
        let mut changed = false;
        if is_on(self.bias.load(Ordering::Relaxed)) {
            let magazine = &self.magazines[self.hot()];
            if let Some(head) = change(magazine, magazine.head.load(Ordering::Relaxed)) {
                magazine.head.store(head, Ordering::Release);
                changed = true;
            }
        }
        // The last that is touched: a slot that was given may be somebody's, and the pool gone.
        self.busy.store(0, Ordering::Release);
        changed
    }

    /// Counts a lease of the owner.
    #[inline]
    pub(super) fn count_lease(&self) {
        let leases = self.leases.load(Ordering::Relaxed).wrapping_add(1);
        self.leases.store(leases, Ordering::Relaxed);
    }

    /// The owner sees that its bias is off: if it did not know, it rests, the longer the sooner it was
    /// disturbed.
    fn note_off(&self, bias: u32) {
        if self.known.load(Ordering::Relaxed) == bias {
            return;
        }
        self.known.store(bias, Ordering::Relaxed);
        self.magazines.iter().for_each(Magazine::unbias);
        let patience = self.patience.load(Ordering::Relaxed);
        let lasted = self.leases.load(Ordering::Relaxed) - self.since.load(Ordering::Relaxed);
        let long = lasted > u64::from(patience) * WORTH;
        let patience = if long { (patience / 2).max(REST) } else { (patience * 2).min(REST_MAX) };
        self.patience.store(patience, Ordering::Relaxed);
        self.rest.store(patience, Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed);
        self.limit.store((limit / 2).max(1), Ordering::Relaxed);
    }

    #[inline]
    fn hot(&self) -> usize {
        self.hot.load(Ordering::Relaxed) as usize % MAGAZINES
    }

    /// The magazines that are not hot.
    fn others(&self) -> impl Iterator<Item = (usize, &Magazine)> {
        let hot = self.hot();
        self.magazines.iter().enumerate().filter(move |(index, _)| *index != hot)
    }

    /// The even bias from here on, and whether this call made it so.
    fn turn_off(&self) -> (u32, bool) {
        loop {
            let bias = self.bias.load(Ordering::Acquire);
            if !is_on(bias) {
                return (bias, false);
            }
            if self.swap_bias(bias, bias.wrapping_add(1)) {
                return (bias.wrapping_add(1), true);
            }
        }
    }

    fn swap_bias(&self, from: u32, to: u32) -> bool {
        self.bias.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits until no section is run that began before the bias was turned `off`; true if so. After the
    /// heavy barrier.
    fn settle(&self, off: u32, rounds: u32) -> bool {
        for round in 0..rounds {
            let idle = self.busy.load(Ordering::Acquire) == 0;
            // Its owner turned it on again: it is in no section of before.
            if idle || self.bias.load(Ordering::Acquire) != off {
                return true;
            }
            pause(round);
        }
        false
    }
}

impl Magazine {
    fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            low: AtomicU32::new(ENTRIES as u32),
            entries: [const { () }; ENTRIES].map(|()| AtomicU64::new(0)),
        }
    }

    fn count(&self) -> u32 {
        count(self.head.load(Ordering::Acquire))
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        self.head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes it the owner's alone, who calls this. False if it was already.
    fn bias(&self) -> bool {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head & BIASED != 0 {
                return false;
            }
            if self.swap(head, next(head | BIASED, 0)) {
                return true;
            }
        }
    }

    /// Makes it everybody's. Called by the owner outside of a section.
    fn unbias(&self) {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head & BIASED == 0 || self.swap(head, next(head & !BIASED, 0)) {
                return;
            }
        }
    }

    /// Clears the bit of a desk whose bias was turned `off` and that was waited for. False if its owner has
    /// turned it on again.
    fn clear(&self, desk: &Desk, off: u32) -> bool {
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head & BIASED == 0 {
                return true;
            }
            // After the head was read: if it is as it was, nobody works in this magazine, and if not, the
            // tag has changed or changes before the owner works.
            if desk.bias.load(Ordering::Acquire) != off {
                return false;
            }
            if self.swap(head, next(head & !BIASED, 0)) {
                return true;
            }
        }
    }

    /// Takes a slot, unless the magazine is biased and somebody may work under that bias.
    fn take(&self, calm: bool) -> Result<Option<Entry>, Biased> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let Some(top) = (count(head) as usize).checked_sub(1) else { return Ok(None) };
            if head & BIASED != 0 && !calm {
                return Err(Biased);
            }
            let entry = Entry::of(self.entries[top].load(Ordering::Relaxed));
            if self.swap(head, next(head, -1)) {
                return Ok(Some(entry));
            }
        }
    }

    fn take_all(&self) -> [Option<Entry>; ENTRIES] {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let entries = self.read(head);
            if self.swap(head, next(head & !(BIASED | COUNT), 0)) {
                return entries;
            }
        }
    }

    fn read(&self, head: u64) -> [Option<Entry>; ENTRIES] {
        std::array::from_fn(|index| {
            let held = index < count(head) as usize;
            held.then(|| Entry::of(self.entries[index].load(Ordering::Relaxed)))
        })
    }

    /// Others left fewer slots in it than ever.
    fn is_new_low(&self) -> bool {
        let left = self.count();
        let new = left < self.low.load(Ordering::Relaxed);
        if new {
            self.low.store(left, Ordering::Relaxed);
        }
        new
    }
}

impl Entry {
    #[inline]
    fn word(self) -> u64 {
        u64::from(self.stamp) << 32 | u64::from(self.slot)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "both halves")]
    fn of(word: u64) -> Self {
        Self { slot: word as u32, stamp: (word >> 32) as u32 }
    }
}

#[inline]
fn is_on(bias: u32) -> bool {
    bias & 1 == 1
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "masked to four bits")]
fn count(head: u64) -> u32 {
    (head & COUNT) as u32
}

/// The head after `head` with so many slots more or less: the tag rises.
#[inline]
fn next(head: u64, more: i64) -> u64 {
    let head = head.wrapping_add_signed(more);
    if cfg!(loom) {
        let tag = (head >> TAG_SHIFT).wrapping_add(1) & 3;
        return tag << TAG_SHIFT | head & (BIASED | COUNT);
    }
    head.wrapping_add(1 << TAG_SHIFT)
}

#[allow(clippy::cast_possible_truncation, reason = "numbers of magazines")]
fn u32_of(index: usize) -> u32 {
    index as u32
}

const MODELLED: bool = cfg!(any(loom, shuttle));
/// Of each desk.
const MAGAZINES: usize = if MODELLED { 2 } else { 4 };
/// Of each magazine: with its head two cache lines.
const ENTRIES: usize = if MODELLED { 2 } else { 14 };
const COUNT: u64 = 15;
const BIASED: u64 = 16;
const TAG_SHIFT: u32 = 5;
/// Slow returns before the first bias, and the most after revocations. A revocation costs some
/// microseconds, and a slow return some tens of nanoseconds.
const REST: u32 = if MODELLED {
    0
} else if cfg!(test) {
    8
} else {
    64
};
const REST_MAX: u32 = if MODELLED { 1 } else { 1 << 14 };
/// Leases under a bias, for each slow return before it, that make it worth while.
const WORTH: u64 = 16;
/// Rounds that a taker waits for a section to end: about two milliseconds.
const BRIEF: u32 = if MODELLED { u32::MAX } else { 160 };
