//! A graph may read a held lease at any launch: the bytes are reached through the bound graph,
//! whose accessors wait.

use pinpool::cuda::GraphHold;

fn write(mut hold: GraphHold<u8>) {
    hold.as_mut_slice().fill(0);
    hold.as_slice();
}

fn main() {}
