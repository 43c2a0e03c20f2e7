//! A lease is not given up while a part of it is borrowed.

use pinpool::{Lease, ManualFence};

fn keep(lease: Lease) -> u8 {
    let view = lease.view(..16).unwrap();
    lease.retire_after(ManualFence::new());
    view.as_slice()[0]
}

fn main() {}
