//! Every interleaving of a few waiters, returns, deadlines, cancellations and closes. A lost wake-up is
//! a deadlock, which loom reports.

use std::task::{Wake, Waker};

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::explore::explore;
use crate::free_list::Layout;
use crate::sync::plain::{AtomicUsize, Ordering as Plain};

/// A list and its waiters.
struct House {
    list: FreeList<()>,
    waiters: Waiters,
}

/// A task's waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Plain::Relaxed);
    }
}

const ONE: Want = Want { count: 1, reach: Reach::REGULAR };

impl House {
    /// All slots are out.
    fn empty(layout: impl Into<Layout>) -> Arc<Self> {
        let list = FreeList::new(layout, 1, 0, || ()).expect("memory");
        while let Pop::Slot { .. } = list.pop_within(Reach::PINNED) {}
        Arc::new(Self { list, waiters: Waiters::new() })
    }

    /// What `ClassRef::give_back` does.
    fn give_back(&self, slot: u32) {
        if self.list.push(slot) == Push::Waited {
            assert!(self.waiters.give(&self.list, slot).wake().is_empty(), "the list is open");
        }
    }

    /// What a waiting thread does; loom has no clock, so that it waits for ever.
    fn wait(&self, want: Want) -> Woken {
        let ready = std::sync::Arc::new(Condvar::default());
        let sleeper = Sleeper::Thread(std::sync::Arc::clone(&ready));
        let (entered, handed) = self.waiters.enter(&self.list, want, sleeper, || false);
        let _ = handed.wake();
        let ticket = match entered {
            Ok(ticket) => ticket,
            Err(woken) => return woken,
        };
        let (woken, handed) = self.waiters.sleep(&self.list, ticket, &ready, None);
        let _ = handed.wake();
        woken
    }

    fn spawn_waiter(house: &Arc<Self>, want: Want) -> thread::JoinHandle<Woken> {
        let house = Arc::clone(house);
        thread::spawn(move || house.wait(want))
    }

    fn assert_free(&self, slots: u32) {
        assert_eq!(self.list.census(Reach::PINNED).0, slots, "every slot is free again");
        assert!(!self.list.is_watched(), "nobody is in line");
    }
}

/// One slot out, one sleeper, one return: the sleeper always gets it.
#[test]
fn a_return_reaches_a_sleeper() {
    explore(None, || {
        let house = House::empty(1);
        let sleeper = House::spawn_waiter(&house, ONE);
        house.give_back(0);
        assert_eq!(sleeper.join().ok(), Some(Woken::Slots(vec![0])));
    });
}

/// Two slots out, two sleepers, two returns from one thread: both sleepers get one.
#[test]
fn two_returns_reach_two_sleepers() {
    explore(Some(3), || {
        let house = House::empty(2);
        let sleepers = [House::spawn_waiter(&house, ONE), House::spawn_waiter(&house, ONE)];
        house.give_back(0);
        house.give_back(1);
        let mut got: Vec<_> = sleepers
            .into_iter()
            .map(|sleeper| match sleeper.join() {
                Ok(Woken::Slots(slots)) => slots,
                other => unreachable!("{other:?}"),
            })
            .collect();
        got.sort_unstable();
        assert_eq!(got, [vec![0], vec![1]]);
        house.assert_free(0);
    });
}

/// A newcomer that only looks gets the slot or the sleeper does; the sleeper is served in any case.
#[test]
fn a_look_never_starves_a_sleeper() {
    explore(Some(4), || {
        let house = House::empty(1);
        let sleeper = House::spawn_waiter(&house, ONE);
        let looker = {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                if let Pop::Slot { slot, .. } = house.list.pop_within(Reach::REGULAR) {
                    house.give_back(slot);
                }
            })
        };
        house.give_back(0);
        assert_eq!(sleeper.join().ok(), Some(Woken::Slots(vec![0])));
        looker.join().expect("the model fails first");
        house.assert_free(0);
    });
}

/// Close ends the wait of a sleeper, whenever it comes.
#[test]
fn close_wakes_a_sleeper() {
    explore(None, || {
        let house = House::empty(1);
        let sleeper = House::spawn_waiter(&house, ONE);
        let (counted, handed) = house.waiters.close(&house.list, |taken| taken);
        assert!(handed.wake().is_empty());
        assert_eq!(counted, Some(0));
        assert_eq!(sleeper.join().ok(), Some(Woken::Closed));
    });
}

/// Close against a return and a sleeper: the sleeper has the slot or hears of the close, and the slot
/// is either its own or counted home.
#[test]
fn close_and_a_return_lose_no_slot() {
    explore(Some(6), || {
        let house = House::empty(1);
        let sleeper = House::spawn_waiter(&house, ONE);
        let returner = {
            let house = Arc::clone(&house);
            thread::spawn(move || match house.list.push(0) {
                Push::Free => 0,
                Push::Closed => 1,
                Push::Waited => house.waiters.give(&house.list, 0).wake().len(),
            })
        };
        let (counted, handed) = house.waiters.close(&house.list, |taken| taken as usize);
        let home = counted.unwrap_or(9) + handed.wake().len();
        let home = home + returner.join().unwrap_or(9);
        match sleeper.join() {
            Ok(Woken::Slots(slots)) => assert_eq!((slots, home), (vec![0], 0)),
            Ok(Woken::Closed) => assert_eq!(home, 1, "counted home once"),
            other => unreachable!("{other:?}"),
        }
    });
}

/// A task that gives up while its slot is on the way hands it on to the thread behind it.
#[test]
fn a_cancelled_wait_hands_its_slot_on() {
    explore(Some(6), || {
        let house = House::empty(1);
        let waker = Waker::from(std::sync::Arc::new(Wakes::default()));
        let entered = house.waiters.enter(&house.list, ONE, Sleeper::Task(waker), || false);
        let ticket = entered.0.expect("the slot is out");
        let behind = House::spawn_waiter(&house, ONE);
        let returner = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.give_back(0))
        };
        assert!(house.waiters.leave(&house.list, ticket).wake().is_empty());
        assert_eq!(behind.join().ok(), Some(Woken::Slots(vec![0])));
        returner.join().expect("the model fails first");
        house.assert_free(0);
    });
}

/// A task is woken once for its slot, and finds it when it asks.
#[test]
fn a_task_is_woken_once() {
    explore(None, || {
        let house = House::empty(1);
        let wakes = std::sync::Arc::new(Wakes::default());
        let waker = Waker::from(std::sync::Arc::clone(&wakes));
        let returner = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.give_back(0))
        };
        let sleeper = Sleeper::Task(waker.clone());
        let (entered, handed) = house.waiters.enter(&house.list, ONE, sleeper, || false);
        assert!(handed.wake().is_empty());
        let early = match entered {
            Err(woken) => Some(woken),
            Ok(ticket) => house.waiters.poll(ticket, &waker).or_else(|| {
                returner.join().expect("the model fails first");
                let woken = house.waiters.poll(ticket, &waker);
                assert_eq!(wakes.0.load(Plain::Relaxed), 1, "woken once");
                woken
            }),
        };
        assert_eq!(early, Some(Woken::Slots(vec![0])));
        assert!(wakes.0.load(Plain::Relaxed) <= 1);
    });
}

/// A task that moved to another waker is woken through that one, or has been served by then.
#[test]
fn a_task_is_woken_where_it_asked_last() {
    loom::model(|| {
        let house = House::empty(1);
        let wakes = [(); 2].map(|()| std::sync::Arc::new(Wakes::default()));
        let [first, last] = wakes.each_ref().map(|wakes| Waker::from(std::sync::Arc::clone(wakes)));
        let returner = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.give_back(0))
        };
        let (entered, handed) =
            house.waiters.enter(&house.list, ONE, Sleeper::Task(first), || false);
        assert!(handed.wake().is_empty());
        let early = match entered {
            Err(woken) => Some(woken),
            Ok(ticket) => house.waiters.poll(ticket, &last).or_else(|| {
                returner.join().expect("the model fails first");
                let woken = wakes.each_ref().map(|wakes| wakes.0.load(Plain::Relaxed));
                assert_eq!(woken, [0, 1], "woken where it asked last");
                house.waiters.poll(ticket, &last)
            }),
        };
        assert_eq!(early, Some(Woken::Slots(vec![0])));
    });
}

/// Two that want both slots each: one gathers them all, the other afterwards. Neither keeps one.
#[test]
fn gatherers_do_not_block_each_other() {
    explore(Some(3), || {
        let house = House::empty(2);
        let both = Want { count: 2, reach: Reach::REGULAR };
        let other = {
            let house = Arc::clone(&house);
            thread::spawn(move || match house.wait(both) {
                Woken::Slots(slots) => slots.into_iter().for_each(|slot| house.give_back(slot)),
                other => unreachable!("{other:?}"),
            })
        };
        house.give_back(0);
        house.give_back(1);
        match house.wait(both) {
            Woken::Slots(slots) => slots.into_iter().for_each(|slot| house.give_back(slot)),
            other => unreachable!("{other:?}"),
        }
        other.join().expect("the model fails first");
        house.assert_free(2);
    });
}

/// A slot of the reserve goes to who may have it, and stays free for it otherwise.
#[test]
fn the_reserve_is_for_the_urgent() {
    explore(Some(6), || {
        let house = House::empty(Layout { regular: 1, reserve: 1, ..Layout::default() });
        let plain = House::spawn_waiter(&house, ONE);
        let urgent = House::spawn_waiter(&house, Want { count: 1, reach: Reach::PINNED });
        house.give_back(1);
        assert_eq!(urgent.join().ok(), Some(Woken::Slots(vec![1])));
        house.give_back(0);
        assert_eq!(plain.join().ok(), Some(Woken::Slots(vec![0])));
        house.assert_free(0);
    });
}

/// A slab that comes while somebody waits is handed out, whoever was first.
#[test]
fn an_added_slab_serves_a_sleeper() {
    explore(None, || {
        let layout = Layout { regular: 1, slabs: 1, slab_slots: 1, ..Layout::default() };
        let house = House::empty(layout);
        let sleeper = House::spawn_waiter(&house, ONE);
        let bay = crate::free_list::BayId::of_slab(0);
        let (opened, handed) = house.waiters.open(&house.list, || house.list.open_bay(bay));
        assert!(opened && handed.wake().is_empty());
        assert_eq!(sleeper.join().ok(), Some(Woken::Slots(vec![1])));
        house.assert_free(0);
    });
}

/// The last slot that could come home is lost while somebody waits: the wait ends.
#[test]
fn despair_wakes_a_sleeper() {
    explore(None, || {
        let house = House::empty(1);
        let lost = Arc::new(crate::sync::AtomicUsize::new(0));
        let sleeper = {
            let (house, lost) = (Arc::clone(&house), Arc::clone(&lost));
            thread::spawn(move || {
                let ready = std::sync::Arc::new(Condvar::default());
                let sleeper = Sleeper::Thread(std::sync::Arc::clone(&ready));
                let hopeless = || lost.load(crate::sync::Ordering::Acquire) == 1;
                let (entered, handed) = house.waiters.enter(&house.list, ONE, sleeper, hopeless);
                let _ = handed.wake();
                entered.map_or_else(
                    |woken| woken,
                    |ticket| house.waiters.sleep(&house.list, ticket, &ready, None).0,
                )
            })
        };
        lost.store(1, crate::sync::Ordering::Release);
        let _ = house.waiters.despair(&house.list, |_| true).wake();
        assert_eq!(sleeper.join().ok(), Some(Woken::Hopeless));
    });
}

/// Two tasks give up at once while a slot comes home: it ends in the list, and nobody is in line.
#[test]
fn two_that_give_up_leave_the_slot() {
    explore(Some(4), || {
        let house = House::empty(1);
        let tickets = [0, 1].map(|_| {
            let waker = Waker::from(std::sync::Arc::new(Wakes::default()));
            let entered = house.waiters.enter(&house.list, ONE, Sleeper::Task(waker), || false);
            entered.0.expect("the slot is out")
        });
        let others = tickets.map(|ticket| {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                assert!(house.waiters.leave(&house.list, ticket).wake().is_empty());
            })
        });
        house.give_back(0);
        others.into_iter().for_each(|other| other.join().expect("the model fails first"));
        house.assert_free(1);
    });
}

/// A sleeper, a task that gives up, and two returns: the sleeper has one slot, the other is free.
#[test]
fn a_sleeper_beside_one_that_gives_up() {
    explore(Some(5), || {
        let house = House::empty(2);
        let sleeper = House::spawn_waiter(&house, ONE);
        let task = {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                let waker = Waker::from(std::sync::Arc::new(Wakes::default()));
                let sleeper = Sleeper::Task(waker);
                let (entered, handed) = house.waiters.enter(&house.list, ONE, sleeper, || false);
                assert!(handed.wake().is_empty());
                match entered {
                    Ok(ticket) => {
                        assert!(house.waiters.leave(&house.list, ticket).wake().is_empty())
                    }
                    Err(Woken::Slots(slots)) => house.give_back(slots[0]),
                    Err(other) => unreachable!("{other:?}"),
                }
            })
        };
        house.give_back(0);
        house.give_back(1);
        assert!(matches!(sleeper.join(), Ok(Woken::Slots(slots)) if slots.len() == 1));
        task.join().expect("the model fails first");
        house.assert_free(1);
    });
}
