//! How results are written as JSON; knows no scenario.

use serde::Serialize;

use crate::BenchError;

/// Pretty, so that a committed result shows a readable difference.
pub(crate) fn to_json(report: &impl Serialize) -> Result<String, BenchError> {
    let json = serde_json::to_string_pretty(report);
    json.map(|json| json + "\n").map_err(|cause| BenchError::failed("writing JSON", cause))
}

/// For fields that only say something where they are true.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
