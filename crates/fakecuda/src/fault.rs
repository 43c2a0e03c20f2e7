//! Planned failures: the n-th call of a named function returns a chosen code, once or for ever.

use crate::codes::CuResult;

/// The name under which a plan counts copies as they run on a stream, not calls.
///
/// A failure there is what a lost device looks like: every later call returns the code.
pub(crate) const ASYNC_COPY: &str = "async-copy";

/// One planned failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    function: String,
    /// The call that fails, counted from 1 since the plan was made.
    nth: u64,
    /// All later calls fail too.
    onwards: bool,
    code: CuResult,
    seen: u64,
}

impl Fault {
    /// Reads `name:n:code` or `name:n+:code`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not NAME:N:CODE or NAME:N+:CODE");
        let mut parts = text.split(':');
        let (Some(function), Some(nth), Some(code), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let (nth, onwards) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        let nth = nth.parse().map_err(|_| wrong())?;
        let code = code.parse().map_err(|_| wrong())?;
        if !crate::api::is_exported(function) && function != ASYNC_COPY {
            return Err(format!("`{function}` is not a function of this library"));
        }
        if nth == 0 || code == 0 {
            return Err(wrong());
        }
        Ok(Self { function: function.to_owned(), nth, onwards, code, seen: 0 })
    }

    /// Counts one call of `function`; the code if this call is to fail.
    pub(crate) fn count(&mut self, function: &str) -> Option<CuResult> {
        if self.function != function {
            return None;
        }
        self.seen += 1;
        let due = self.seen == self.nth || (self.onwards && self.seen > self.nth);
        due.then_some(self.code)
    }
}

/// Counts the call in every plan (all must see it); the first plan that is due decides.
pub(crate) fn trip(faults: &mut [Fault], function: &str) -> Option<CuResult> {
    let mut first = None;
    for fault in faults {
        let due = fault.count(function);
        first = first.or(due);
    }
    first
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn one_call_fails_or_all_from_one_on() {
        let mut once = [Fault::parse("cuEventRecord:2:719").unwrap()];
        let mut ever = [Fault::parse("cuEventRecord:2+:719").unwrap()];
        let calls = |faults: &mut [Fault]| -> Vec<bool> {
            (0..4).map(|_| trip(faults, "cuEventRecord").is_some()).collect()
        };
        assert_eq!(calls(&mut once), [false, true, false, false]);
        assert_eq!(calls(&mut ever), [false, true, true, true]);
        assert_eq!(trip(&mut ever, "cuEventQuery"), None);
    }

    #[test]
    fn every_plan_counts_every_call() {
        let mut faults = [
            Fault::parse("cuEventRecord:1+:1").unwrap(),
            Fault::parse("cuEventRecord:2:2").unwrap(),
        ];
        assert_eq!(trip(&mut faults, "cuEventRecord"), Some(1));
        assert_eq!(trip(&mut faults, "cuEventRecord"), Some(1));
        assert_eq!(faults[1].seen, 2);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "cuEventRecord:1", "cuEventRecord:0:1", "cuEventRecord:1:0", "cuNo:1:1"] {
            assert!(Fault::parse(text).is_err(), "{text}");
        }
    }
}
