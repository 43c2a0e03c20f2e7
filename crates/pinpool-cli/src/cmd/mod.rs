//! The subcommands, one in each file.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod plan;
