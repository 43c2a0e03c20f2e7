//! The operation model: random sequences of everything a holder can do, each step compared with a
//! plain record of what must be true. One thread; threads are the stress tests' part.

mod class;
mod held;
mod op;
mod twin;

use arbitrary::Unstructured;

use op::Op;
pub use twin::Totals;
use twin::Twin;

/// Runs one sequence, drawn until the bytes are used up, on one pool or alternately on two.
///
/// # Errors
///
/// Too few random bytes to begin with.
pub fn run(u: &mut Unstructured<'_>, totals: &mut Totals) -> arbitrary::Result<()> {
    let mut twins = vec![Twin::open(u)?];
    if u.ratio(1, 4)? {
        twins.push(Twin::open(u)?);
    }
    let mut at = 0;
    // A list drawn as a whole would have one operation on average.
    while !u.is_empty() {
        let op = Op::draw(u)?;
        at = (at + usize::from(op.switches)) % twins.len();
        let twin = &mut twins[at];
        twin.apply(op, totals);
        if twin.is_over() {
            let ended = std::mem::replace(twin, Twin::open(u).unwrap_or_else(|_| Twin::smallest()));
            ended.finish(totals);
        }
        totals.ops += 1;
    }
    totals.cases += 1;
    for twin in twins {
        twin.finish(totals);
    }
    Ok(())
}
