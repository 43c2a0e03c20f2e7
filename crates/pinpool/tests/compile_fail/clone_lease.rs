//! A slot has one owner: neither a lease nor a lease in flight is cloned.

use pinpool::{InFlight, Lease};

fn twice(lease: &Lease, flight: &InFlight) -> (Lease, InFlight) {
    (lease.clone(), flight.clone())
}

fn main() {}
