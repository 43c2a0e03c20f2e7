//! What the environment may say about the pretended machine; read once, at the first driver call.

use std::time::Duration;

use crate::codes::{self, CuResult};
use crate::fault::Fault;

/// Memory of each device unless `FAKECUDA_MEMORY` says otherwise.
const MEMORY_BYTES: u64 = 8 << 30;

/// The machine that this library pretends to be.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) devices: i32,
    /// What `cuInit` returns when it is not success.
    pub(crate) init: CuResult,
    pub(crate) register_supported: bool,
    /// The compute mode of every device: 0 for all processes, 2 for none, 3 for one at a time.
    pub(crate) compute_mode: i32,
    pub(crate) async_alloc_supported: bool,
    pub(crate) memory_bytes: u64,
    pub(crate) copy_delay: Duration,
    /// Pinned bytes in total beyond which pinning fails with `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) pin_limit: u64,
    /// A single registration of more bytes fails with `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) pin_max: u64,
    /// A new stream gets the handle of the last one destroyed, as real drivers do.
    pub(crate) reuse_handles: bool,
    pub(crate) call_at_exit: CallAtExit,
}

/// What a driver call does when the process exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallAtExit {
    /// It fails with `CUDA_ERROR_DEINITIALIZED`.
    Fails,
    /// It ends the process with a message.
    Aborts,
}

impl Config {
    pub(crate) const fn new() -> Self {
        Self {
            devices: 1,
            init: codes::SUCCESS,
            register_supported: true,
            compute_mode: 0,
            async_alloc_supported: true,
            memory_bytes: MEMORY_BYTES,
            copy_delay: Duration::ZERO,
            pin_limit: u64::MAX,
            pin_max: u64::MAX,
            reuse_handles: false,
            call_at_exit: CallAtExit::Fails,
        }
    }

    /// Reads `FAKECUDA_*` through `get`. An unreadable value is an error: a test whose setting is
    /// ignored would pass for the wrong reason.
    pub(crate) fn read(
        &mut self,
        faults: &mut Vec<Fault>,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let number = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| format!("{name}={text}: expected a whole number")),
        };
        if let Some(devices) = number("FAKECUDA_DEVICES")? {
            self.devices = i32::try_from(devices)
                .ok()
                .filter(|devices| *devices <= 16)
                .ok_or_else(|| format!("FAKECUDA_DEVICES={devices}: at most 16"))?;
        }
        if number("FAKECUDA_NO_DEVICE")?.is_some_and(|flag| flag != 0) {
            self.init = codes::NO_DEVICE;
        }
        if number("FAKECUDA_STUB")?.is_some_and(|flag| flag != 0) {
            self.init = codes::STUB_LIBRARY;
        }
        self.register_supported = supported("FAKECUDA_REGISTER", &get)?;
        self.compute_mode = match number("FAKECUDA_COMPUTE_MODE")? {
            None | Some(0) => 0,
            Some(2) => 2,
            Some(3) => 3,
            Some(mode) => return Err(format!("FAKECUDA_COMPUTE_MODE={mode}: expected 0, 2 or 3")),
        };
        self.async_alloc_supported = supported("FAKECUDA_ASYNC_ALLOC", &get)?;
        self.memory_bytes = number("FAKECUDA_MEMORY")?.unwrap_or(self.memory_bytes);
        self.pin_limit = number("FAKECUDA_PIN_LIMIT")?.unwrap_or(self.pin_limit);
        self.pin_max = number("FAKECUDA_PIN_MAX")?.unwrap_or(self.pin_max);
        self.reuse_handles = number("FAKECUDA_REUSE_HANDLES")?.is_some_and(|flag| flag != 0);
        self.call_at_exit = match get("FAKECUDA_EXIT").as_deref() {
            None => CallAtExit::Fails,
            Some("strict") => CallAtExit::Aborts,
            Some(text) => return Err(format!("FAKECUDA_EXIT={text}: expected `strict`")),
        };
        if let Some(micros) = number("FAKECUDA_COPY_DELAY_US")? {
            self.copy_delay = Duration::from_micros(micros);
        }
        if let Some(text) = get("FAKECUDA_FAIL") {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                faults.push(Fault::parse(part).map_err(|why| format!("FAKECUDA_FAIL: {why}"))?);
            }
        }
        Ok(())
    }
}

fn supported(name: &str, get: impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    match get(name).as_deref() {
        None | Some("supported") => Ok(true),
        Some("unsupported") => Ok(false),
        Some(text) => Err(format!("{name}={text}: expected `supported` or `unsupported`")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(Config, Vec<Fault>), String> {
        let mut config = Config::new();
        let mut faults = Vec::new();
        config.read(&mut faults, |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })?;
        Ok((config, faults))
    }

    #[test]
    fn values_are_taken_from_the_environment() {
        let (config, faults) = read(&[
            ("FAKECUDA_DEVICES", "2"),
            ("FAKECUDA_REGISTER", "unsupported"),
            ("FAKECUDA_COPY_DELAY_US", "250"),
            ("FAKECUDA_FAIL", "cuEventRecord:3:719,cuMemHostRegister_v2:2+:2"),
        ])
        .unwrap();
        assert_eq!(config.devices, 2);
        assert!(!config.register_supported);
        assert!(config.async_alloc_supported);
        assert_eq!(config.copy_delay, Duration::from_micros(250));
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn a_value_that_cannot_be_read_is_an_error() {
        for pair in [
            ("FAKECUDA_DEVICES", "two"),
            ("FAKECUDA_DEVICES", "17"),
            ("FAKECUDA_REGISTER", "no"),
            ("FAKECUDA_COMPUTE_MODE", "1"),
            ("FAKECUDA_EXIT", "1"),
            ("FAKECUDA_FAIL", "cuEventRecord"),
        ] {
            let error = read(&[pair]).unwrap_err();
            assert!(error.starts_with(pair.0), "{error}");
        }
    }
}
