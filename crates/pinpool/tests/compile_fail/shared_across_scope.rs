//! What a reader reads does not outlive the reader.

use pinpool::SharedLease;

fn bytes(shared: SharedLease) -> &'static [u8] {
    shared.as_slice()
}

fn main() {}
