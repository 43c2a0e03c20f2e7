//! The pool of a configuration file against what there is: which limit or key stops it.

use super::driver::Driver;
use super::facts::Facts;
use super::report::Line;
use super::request::Request;

/// Bytes that a pool may pin yet, where that is known.
pub(super) fn room(_facts: &Facts, _request: &Request, _driver: &Driver) -> Option<u64> {
    None
}

pub(super) fn lines(_facts: &Facts, _request: &Request, _on_host: bool) -> Vec<Line> {
    Vec::new()
}
