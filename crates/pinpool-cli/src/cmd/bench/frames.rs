//! `pinpool bench frames`: the video pitfall, in figures of this machine.

use pinpool_bench::frames::{self, FramesOptions};

use super::{JsonTarget, command, measured};
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
    let report = measured("frames", |progress| frames::run(&options, command(), progress))?;
    json.publish(&report.to_json()?, &report.to_text())
}
