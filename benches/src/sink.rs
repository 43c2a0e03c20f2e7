//! Where every rival's frames go: device memory, or a host buffer where there is no device.

use std::hint::black_box;

use crate::BenchError;
use crate::cuda_rig::{CudaRig, DeviceMemory};

/// The target of all copies of a run, touched before the first one.
#[derive(Debug)]
pub struct Sink {
    kind: Kind,
    bytes: usize,
}

#[derive(Debug)]
enum Kind {
    Host(Vec<u8>),
    // Boxed, because the device's handle is much larger than a vector.
    Device(Box<DeviceMemory>),
}

impl Sink {
    /// A host buffer of `bytes`.
    pub fn host(bytes: usize) -> Self {
        // Zeroed memory may still lack pages: write it, so that no rival pays for the first touch.
        let mut buffer = vec![0u8; bytes];
        black_box(&mut buffer).fill(1);
        Self { kind: Kind::Host(buffer), bytes }
    }

    /// Device memory of `bytes`.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn device(rig: &CudaRig, bytes: usize) -> Result<Self, BenchError> {
        Ok(Self { kind: Kind::Device(Box::new(rig.device_memory(bytes)?)), bytes })
    }

    /// Copies a whole frame and waits for the copy.
    ///
    /// # Errors
    /// The driver's reason, or [`BenchError::Failed`] for a frame of another size.
    pub fn copy(&mut self, frame: &[u8]) -> Result<(), BenchError> {
        if frame.len() != self.bytes {
            let text = format!("a frame of {} bytes for a sink of {}", frame.len(), self.bytes);
            return Err(BenchError::Failed(text));
        }
        match &mut self.kind {
            Kind::Host(buffer) => {
                black_box(buffer.as_mut_slice()).copy_from_slice(black_box(frame));
                Ok(())
            }
            Kind::Device(memory) => memory.copy_in(frame),
        }
    }

    /// What the sink holds now.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn read_back(&self) -> Result<Vec<u8>, BenchError> {
        match &self.kind {
            Kind::Host(buffer) => Ok(buffer.clone()),
            Kind::Device(memory) => {
                let mut bytes = vec![0; self.bytes];
                memory.copy_out(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}
