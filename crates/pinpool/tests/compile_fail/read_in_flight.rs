//! The bytes of a lease in flight cannot be reached, in none of the ways in which a lease's can.

use pinpool::InFlight;

fn reach(mut flight: InFlight) {
    flight.as_slice();
    flight.as_mut_slice();
    flight.as_ptr();
    flight.view(..);
    let _: &[u8] = flight.as_ref();
    let _: &[u8] = &*flight;
}

fn main() {}
