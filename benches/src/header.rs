//! What every result of several tables says of its run as a whole.

use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine};

/// Where a result comes from; the first fields of its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The name of the scenario.
    pub scenario: String,
    /// Why nothing was measured, where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// The machine of the run.
    pub machine: Machine,
    /// The command that was run.
    pub command: String,
    /// The commit that was built.
    pub commit: String,
    /// Whether every part ran in a small size, whose figures mean little.
    pub quick: bool,
    /// How the figures were made.
    pub method: String,
}

impl Header {
    /// Of a run on this machine, by this program.
    pub fn here(scenario: &str, command: String, quick: bool, method: &str) -> Self {
        Self {
            scenario: scenario.to_owned(),
            not_run: None,
            machine: Machine::describe(),
            command,
            commit: machine::commit(),
            quick,
            method: method.to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::{Gpu, Memlock};

    pub(crate) fn machine(gpu: bool) -> Machine {
        Machine {
            cpu: "Some CPU".into(),
            cores: 16,
            memory_bytes: 128 << 30,
            kernel: "Linux 6.18".into(),
            gpu: gpu.then(|| Gpu {
                name: "NVIDIA H200".into(),
                driver: "580.1".into(),
                cuda: "13.0".into(),
                memory_bytes: 139 << 30,
            }),
            memlock: Memlock { soft_bytes: None, hard_bytes: None, cap_ipc_lock: false },
            transparent_huge_pages: "madvise".into(),
        }
    }

    /// As [`Header::here`], the same on every machine.
    pub(crate) fn header(scenario: &str, gpu: bool) -> Header {
        Header {
            scenario: scenario.into(),
            not_run: None,
            machine: machine(gpu),
            command: format!("pinpool bench {scenario}"),
            commit: "0123456789ab".into(),
            quick: false,
            method: "the method".into(),
        }
    }
}
