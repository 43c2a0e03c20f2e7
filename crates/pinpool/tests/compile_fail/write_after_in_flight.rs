//! Nobody writes to a slot that some work still reads: the lease is gone.

use pinpool::{ManualFence, Pool};

fn main() {
    let pool = Pool::builder().class("frame", 4096, 1).open().unwrap();
    let mut lease = pool.lease(4096).unwrap();
    let flight = lease.in_flight_until(ManualFence::new());
    lease.as_mut_slice().fill(0);
    drop(flight);
}
