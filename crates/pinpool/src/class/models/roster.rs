//! Every interleaving of classes that come, a close, an end of the opening, and those who wait for a class.
//! It knows no class: a place is filled with an address that nobody follows.

use std::ptr::NonNull;
use std::task::{Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

use crate::class::roster::{Absent, Roster};
use crate::class::{Class, ClassRef};
use crate::explore::explore;
use crate::size_class::ClassId;
use crate::sync::{AtomicUsize, Ordering};

/// A roster, what an opener wrote into each class before it came, and how often each was ended.
struct House {
    roster: Roster,
    made: Vec<UnsafeCell<u8>>,
    ended: Vec<AtomicUsize>,
}

const MADE: u8 = 7;

impl House {
    fn new(classes: usize) -> Arc<Self> {
        Arc::new(Self {
            roster: Roster::of_places(classes),
            made: (0..classes).map(|_| UnsafeCell::new(0)).collect(),
            ended: (0..classes).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Makes a class and lets it in, or ends it, as the opener does.
    fn open(&self, place: usize) -> bool {
        // SAFETY: nobody else knows of the class yet.
        self.made[place].with_mut(|made| unsafe { *made = MADE });
        let added = self.roster.put(id(place), class(place));
        if !added {
            self.end(class(place));
        }
        added
    }

    /// Ends the classes that are there, as the pool's handle does.
    fn close(&self) {
        self.roster.close();
        self.roster.iter().rev().for_each(|class| self.end(class));
    }

    fn end(&self, class: ClassRef) {
        self.look_at(class);
        self.ended[place(class)].fetch_add(1, Ordering::Relaxed);
    }

    /// Whoever has a class sees it whole: loom reports a race otherwise.
    fn look_at(&self, class: ClassRef) {
        // SAFETY: the opener wrote before it let the class in.
        self.made[place(class)].with(|made| assert_eq!(unsafe { *made }, MADE));
    }

    /// What a lease without a deadline does.
    fn wait(&self, place: usize) -> Result<(), Absent> {
        self.roster.wait(id(place), None).map(|class| self.look_at(class))
    }

    /// What a task does, which only its waker wakes.
    fn await_class(&self, place: usize) -> Result<(), Absent> {
        let alarm = std::sync::Arc::new(Alarm(Notify::new()));
        let waker = Waker::from(std::sync::Arc::clone(&alarm));
        let mut wait = None;
        loop {
            match self.roster.poll(id(place), &waker, &mut wait) {
                Err(Absent::Coming) => alarm.0.wait(),
                settled => return settled.map(|class| self.look_at(class)),
            }
        }
    }

    fn spawn<T: 'static>(
        house: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let house = Arc::clone(house);
        thread::spawn(move || run(&house))
    }
}

/// A task's waker.
struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

fn id(place: usize) -> ClassId {
    ClassId(u8::try_from(place).unwrap_or(u8::MAX))
}

/// An address that tells the place and is never followed.
fn class(place: usize) -> ClassRef {
    let address = std::ptr::without_provenance_mut::<Class>((place + 1) * align_of::<Class>());
    ClassRef(NonNull::new(address).expect("not null"))
}

fn place(class: ClassRef) -> usize {
    class.0.addr().get() / align_of::<Class>() - 1
}

/// Each class is ended by whoever closes or by its opener: once, and never by neither.
#[test]
fn a_class_that_comes_meets_a_close() {
    explore(None, || {
        let house = House::new(2);
        let opener = House::spawn(&house, |house| [0, 1].map(|place| house.open(place)));
        house.close();
        let added = opener.join().expect("no panic");
        for (place, ended) in house.ended.iter().enumerate() {
            assert_eq!(ended.load(Ordering::Relaxed), 1, "class {place}: {added:?}");
        }
        assert!(added[0] || !added[1], "none comes after one was refused");
        assert_eq!(house.roster.ready(), added.iter().filter(|added| **added).count());
    });
}

/// Of two classes one comes, and then the opening fails: who waits for the first has it, who waits for the
/// second is told that it never comes.
#[test]
fn who_waits_misses_no_class_and_no_end() {
    explore(Some(3), || {
        let house = House::new(2);
        let waiters = [0, 1].map(|place| House::spawn(&house, move |house| house.wait(place)));
        assert!(house.open(0));
        house.roster.settle();
        let [first, second] = waiters.map(|waiter| waiter.join().expect("no panic"));
        assert_eq!((first, second), (Ok(()), Err(Absent::Closed)));
        assert_eq!(house.roster.look(id(1)), Err(Absent::Closed));
    });
}

/// The same for tasks.
#[test]
fn a_task_misses_no_class_and_no_end() {
    explore(Some(3), || {
        let house = House::new(2);
        let tasks = [0, 1].map(|place| House::spawn(&house, move |house| house.await_class(place)));
        assert!(house.open(0));
        house.roster.settle();
        let [first, second] = tasks.map(|task| task.join().expect("no panic"));
        assert_eq!((first, second), (Ok(()), Err(Absent::Closed)));
    });
}

/// A close ends every wait: with the class if it came before, else with "never". A waiter that has it
/// finds it in the roster.
#[test]
fn a_close_ends_every_wait() {
    explore(Some(3), || {
        let house = House::new(1);
        let opener = House::spawn(&house, |house| house.open(0));
        let waiter = House::spawn(&house, |house| house.wait(0));
        house.close();
        let waited = waiter.join().expect("no panic");
        let added = opener.join().expect("no panic");
        assert!(added || waited == Err(Absent::Closed), "{waited:?} of a class that was refused");
        assert_eq!(house.ended[0].load(Ordering::Relaxed), 1);
    });
}

/// Who does not wait is never told "never" of a class that came, and sees all classes that are there.
#[test]
fn an_answer_is_true_when_it_is_given() {
    explore(None, || {
        let house = House::new(2);
        let opener = House::spawn(&house, |house| {
            let added = [0, 1].map(|place| house.open(place));
            house.roster.settle();
            added
        });
        let first = house.roster.look(id(0));
        let second = house.roster.look(id(1));
        assert!(first.is_ok() || first == Err(Absent::Coming), "{first:?}");
        assert!(second.is_ok() || second == Err(Absent::Coming), "{second:?}");
        if second.is_ok() {
            assert_eq!(house.roster.ready(), 2, "they come in order");
            assert!(house.roster.is_full());
        }
        house.roster.iter().for_each(|class| house.look_at(class));
        assert_eq!(opener.join().ok(), Some([true; 2]));
        assert!(house.roster.is_full() && house.roster.is_settled());
    });
}
