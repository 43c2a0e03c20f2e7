//! The subcommands, one in each file.

pub(crate) mod bench;
pub(crate) mod plan;
