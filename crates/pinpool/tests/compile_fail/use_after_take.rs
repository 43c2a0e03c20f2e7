//! A lease in flight is given back once.

use pinpool::{InFlight, Lease};

fn twice(flight: InFlight) -> (Lease, Lease) {
    let first = flight.wait().unwrap();
    (first, flight.wait().unwrap())
}

fn main() {}
