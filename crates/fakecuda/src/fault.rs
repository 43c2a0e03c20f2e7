//! Planned faults: the n-th call of a named function fails or takes its time, once or for ever.

use std::time::Duration;

use crate::codes::CuResult;

/// The name under which a plan counts copies as they run on a stream, not calls.
///
/// A failure there is what a lost device looks like: every later call returns the code.
pub(crate) const ASYNC_COPY: &str = "async-copy";

/// What a planned fault does to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Fail(CuResult),
    /// The call is late by so much, and does its work.
    Sleep(Duration),
}

/// What the plans demand of one call: first the delay, then the code instead of its work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) sleep: Duration,
    pub(crate) code: Option<CuResult>,
}

/// One planned fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    function: String,
    /// The call that it befalls, counted from 1 since the plan was made.
    nth: u64,
    /// And all later calls.
    onwards: bool,
    effect: Effect,
    seen: u64,
}

impl Fault {
    /// Reads `name:n:code` or `name:n+:code`; `sleep=millis` may stand for the code.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not NAME:N:CODE or NAME:N+:CODE; CODE can be sleep=MILLIS");
        let mut parts = text.split(':');
        let (Some(function), Some(nth), Some(effect), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let (nth, onwards) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        let nth = nth.parse().map_err(|_| wrong())?;
        let effect = match effect.strip_prefix("sleep=") {
            Some(millis) => {
                Effect::Sleep(Duration::from_millis(millis.parse().map_err(|_| wrong())?))
            }
            None => Effect::Fail(effect.parse().map_err(|_| wrong())?),
        };
        if !crate::api::is_exported(function) && function != ASYNC_COPY {
            return Err(format!("`{function}` is not a function of this library"));
        }
        if nth == 0 || [Effect::Fail(0), Effect::Sleep(Duration::ZERO)].contains(&effect) {
            return Err(wrong());
        }
        Ok(Self { function: function.to_owned(), nth, onwards, effect, seen: 0 })
    }

    /// Counts one call of `function`; the effect if this is a call that the plan is about.
    fn count(&mut self, function: &str) -> Option<Effect> {
        if self.function != function {
            return None;
        }
        self.seen += 1;
        let due = self.seen == self.nth || (self.onwards && self.seen > self.nth);
        due.then_some(self.effect)
    }
}

/// Counts the call in every plan (all must see it). Delays add up; the first code that is due
/// decides.
pub(crate) fn trip(faults: &mut [Fault], function: &str) -> Verdict {
    let mut verdict = Verdict::default();
    for fault in faults {
        match fault.count(function) {
            Some(Effect::Fail(code)) => verdict.code = verdict.code.or(Some(code)),
            Some(Effect::Sleep(time)) => verdict.sleep += time,
            None => {}
        }
    }
    verdict
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
            (0..4).map(|_| trip(faults, "cuEventRecord").code.is_some()).collect()
        };
        assert_eq!(calls(&mut once), [false, true, false, false]);
        assert_eq!(calls(&mut ever), [false, true, true, true]);
        assert_eq!(trip(&mut ever, "cuEventQuery"), Verdict::default());
    }

    #[test]
    fn every_plan_counts_every_call() {
        let mut faults = [
            Fault::parse("cuEventRecord:1+:1").unwrap(),
            Fault::parse("cuEventRecord:2:2").unwrap(),
        ];
        assert_eq!(trip(&mut faults, "cuEventRecord").code, Some(1));
        assert_eq!(trip(&mut faults, "cuEventRecord").code, Some(1));
        assert_eq!(faults[1].seen, 2);
    }

    #[test]
    fn a_call_can_be_late_and_fail_as_well() {
        let mut faults = [
            Fault::parse("cuEventQuery:1+:sleep=30").unwrap(),
            Fault::parse("cuEventQuery:2:sleep=5").unwrap(),
            Fault::parse("cuEventQuery:2:719").unwrap(),
        ];
        let late = |millis, code| Verdict { sleep: Duration::from_millis(millis), code };
        assert_eq!(trip(&mut faults, "cuEventQuery"), late(30, None));
        assert_eq!(trip(&mut faults, "cuEventQuery"), late(35, Some(719)));
        assert_eq!(trip(&mut faults, "cuEventQuery"), late(30, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "cuEventRecord:1",
            "cuEventRecord:0:1",
            "cuEventRecord:1:0",
            "cuNo:1:1",
            "cuEventRecord:1:sleep=0",
            "cuEventRecord:1:sleep=",
            "cuEventRecord:1:sleep",
        ] {
            assert!(Fault::parse(text).is_err(), "{text}");
        }
    }
}
