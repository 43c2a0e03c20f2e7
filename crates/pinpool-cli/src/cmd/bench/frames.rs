//! `pinpool bench frames`: the video pitfall, in figures of this machine.

use pinpool_bench::frames::{self, FramesOptions};
use pinpool_bench::report::Report;

use super::{Target, command, measured};
use crate::cli::FramesArgs;
use crate::failure::Failure;

pub(crate) fn run(arguments: &FramesArgs) -> Result<(), Failure> {
    let options = FramesOptions {
        backend: arguments.backend.into(),
        frame: arguments.frame,
        frames: if arguments.quick { frames::FRAMES_QUICK } else { arguments.frames },
        depth: arguments.depth,
        rate: arguments.rate,
        max_pinned: arguments.pinned.max_pinned,
    };
    options.check()?;
    let target = Target::check(&arguments.output)?;
    let report = measured("frames", |progress| frames::run(&options, command(), progress))?;
    target.publish(Report::Frames(report))
}
