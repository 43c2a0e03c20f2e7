//! A part of a lease does not outlive it.

use pinpool::{LeaseView, Pool};

fn part(pool: &Pool) -> LeaseView<'_, u8> {
    let lease = pool.lease(4096).unwrap();
    lease.view(..16).unwrap()
}

fn main() {}
