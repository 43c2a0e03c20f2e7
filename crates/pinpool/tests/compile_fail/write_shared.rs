//! A lease with several readers cannot be written.

use pinpool::SharedLease;

fn write(mut shared: SharedLease) {
    shared.as_mut_slice().fill(0);
    shared.view_mut(..).unwrap();
}

fn main() {}
