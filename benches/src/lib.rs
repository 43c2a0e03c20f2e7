//! Workloads, rivals and reports that measure pinpool against what people write without it.
//!
//! A scenario ([`copy`], [`gigabyte`], [`alloc`], [`break_even`], [`frames`], [`neighbours`],
//! [`overlap`], [`startup`], [`lease`], [`in_flight`], [`waiting`], [`staged`], [`pressure`]) runs
//! its rivals interleaved in one process and returns a [`report`], which is the JSON that is
//! committed and the table that is printed. The command line tool and the Criterion targets run
//! this same code; [`page`] turns committed results into the performance page, [`html`] any results into a page that
//! shows them, and [`compare`] sets two of them side by side.

pub mod alloc;
pub mod break_even;
pub mod churn;
mod clock;
pub mod compare;
pub mod copy;
pub mod cuda_rig;
pub mod error;
pub mod frames;
pub mod gigabyte;
pub mod header;
pub mod html;
pub mod in_flight;
mod json;
pub mod kernels;
pub mod lease;
pub mod link;
pub mod machine;
pub mod neighbours;
pub mod origin;
pub mod output;
pub mod overlap;
pub mod page;
mod pin_room;
pub mod pressure;
mod procfs;
mod pytorch;
pub mod report;
pub mod rig;
pub mod rivals;
pub mod section;
pub mod sink;
pub mod staged;
pub mod stamp;
pub mod startup;
mod tables;
pub mod text;
pub mod timing;
pub mod waiting;
pub mod window;

pub use error::BenchError;
