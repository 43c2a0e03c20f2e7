//! Wakers that run their task on the spot, and so wake others before they return.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::Sleeper;
use crate::sync::thread_local;

/// The wakers that run on a thread, each within the one before, and who is woken after them.
#[derive(Default)]
struct Waking {
    depth: u32,
    next: VecDeque<Sleeper>,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers have no const form")]
    static WAKING: RefCell<Waking> = RefCell::new(Waking::default());
}

/// Wakes everybody. A waker may run its task on the spot, which drops a lease, which serves and wakes the
/// next in line: below a certain depth one after another, so that a long line does not exhaust the stack
/// (I7). Above it at once, as a waker may take its time.
pub(super) fn wake_in_turn(mut sleepers: Vec<Sleeper>) {
    if sleepers.is_empty() {
        return;
    }
    let deep = WAKING.try_with(|waking| {
        let mut waking = waking.borrow_mut();
        let deep = waking.depth == DEPTH_MAX;
        if deep {
            waking.next.extend(sleepers.drain(..));
        } else {
            waking.depth += 1;
        }
        deep
    });
    sleepers.into_iter().for_each(Sleeper::wake);
    // Neither within a deeper call nor on a thread at its end, which has no such list any more.
    if !matches!(deep, Ok(false)) {
        return;
    }
    let next = |waking: &RefCell<Waking>| {
        let mut waking = waking.borrow_mut();
        let sleeper = waking.next.pop_front();
        waking.depth -= u32::from(sleeper.is_none());
        sleeper
    };
    while let Ok(Some(sleeper)) = WAKING.try_with(next) {
        sleeper.wake();
    }
}

/// Wakers within wakers: few, as the keeper's stack is small and their frames are not ours.
const DEPTH_MAX: u32 = 8;
