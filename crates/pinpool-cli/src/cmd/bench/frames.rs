//! `pinpool bench frames`: the video pitfall, in figures of this machine.

use pinpool_bench::frames::{self, FramesOptions};

use super::{JsonTarget, command, progress_bar};
use crate::cli::FramesArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &FramesArgs) -> Result<(), Failure> {
    let options = FramesOptions {
        backend: arguments.backend.into(),
        frame: arguments.frame,
        frames: arguments.frames,
        depth: arguments.depth,
        rate: arguments.rate,
    };
    options.check()?;
    let json = JsonTarget::check(arguments.json.as_deref())?;
    let bar = progress_bar("frames");
    let result = frames::run(&options, command(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = result?;
    json.publish(&report.to_json()?, &report.to_text())
}
