//! `pinpool bench waiting`: far more takers than slots.

use pinpool_bench::waiting::{self, WaitingOptions};

use super::{JsonTarget, command, progress_bar};
use crate::cli::WaitingArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &WaitingArgs) -> Result<(), Failure> {
    let options = WaitingOptions { seconds: arguments.seconds, quick: arguments.quick };
    options.check()?;
    let json = JsonTarget::check(arguments.json.as_deref())?;
    let bar = progress_bar("rounds");
    let result = waiting::run(&options, command(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = result?;
    json.publish(&report.to_json()?, &report.to_text())
}
