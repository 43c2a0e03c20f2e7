//! What says nothing about the end of work is no fence.

use pinpool::Lease;

fn retire<F: Send + Sync + 'static>(lease: Lease, said: F) {
    lease.retire_after(said);
}

fn main() {}
