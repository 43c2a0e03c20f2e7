//! The host's side: a source and a target for each chunk, in pageable memory or in leases.

use pinpool::{BackendChoice, Lease, LockMode, Pool};

use crate::BenchError;

/// A kind of host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// From the allocator.
    Pageable,
    /// Leases from a pool.
    Pinned,
}

impl Memory {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pageable, Self::Pinned];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
        }
    }
}

/// Sources and targets of one kind.
#[derive(Debug)]
pub struct Host {
    /// The kind.
    pub memory: Memory,
    sources: Vec<Buffer>,
    targets: Vec<Buffer>,
}

#[derive(Debug)]
enum Buffer {
    Pageable(Vec<u8>),
    Leased(Lease),
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Pageable(bytes) => bytes,
            Self::Leased(lease) => lease.as_slice(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pageable(bytes) => bytes,
            Self::Leased(lease) => lease.as_mut_slice(),
        }
    }
}

impl Host {
    /// Memory for `chunks` of `bytes`, all of it touched, the sources filled with numbers.
    ///
    /// # Errors
    /// A pool that does not open.
    pub fn open(memory: Memory, chunks: usize, bytes: usize) -> Result<Self, BenchError> {
        let mut buffers = match memory {
            Memory::Pageable => {
                (0..2 * chunks).map(|_| Buffer::Pageable(vec![1; bytes])).collect::<Vec<_>>()
            }
            Memory::Pinned => leases(2 * chunks, bytes)?.into_iter().map(Buffer::Leased).collect(),
        };
        let targets = buffers.split_off(chunks);
        let mut host = Self { memory, sources: buffers, targets };
        for (chunk, source) in host.sources.iter_mut().enumerate() {
            fill(source.bytes_mut(), |index| number(chunk, index));
        }
        host.wipe();
        Ok(host)
    }

    /// Chunks that there are.
    pub fn chunks(&self) -> usize {
        self.sources.len()
    }

    /// The source and the target of a chunk.
    pub(super) fn ends(&mut self, chunk: usize) -> (&[u8], &mut [u8]) {
        (self.sources[chunk].bytes(), self.targets[chunk].bytes_mut())
    }

    /// Makes all targets wrong.
    pub(super) fn wipe(&mut self) {
        for target in &mut self.targets {
            target.bytes_mut().fill(0xff);
        }
    }

    /// Looks at every number that came back: an odd number of steps leaves one less the number.
    pub(super) fn verify(&self) -> Result<(), BenchError> {
        for (chunk, target) in self.targets.iter().enumerate() {
            for (index, bytes) in target.bytes().chunks_exact(size_of::<f32>()).enumerate() {
                let wanted = 1.0 - number(chunk, index);
                if bytes != wanted.to_ne_bytes() {
                    let text = format!(
                        "{}: number {index} of chunk {chunk} came back wrong",
                        self.memory.name()
                    );
                    return Err(BenchError::Failed(text));
                }
            }
        }
        Ok(())
    }
}

fn leases(count: usize, bytes: usize) -> Result<Vec<Lease>, BenchError> {
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .device(0)
        .lock(LockMode::Require)
        .class("chunk", bytes, count)
        .open()
        .map_err(|cause| BenchError::opening_pool(&cause))?;
    let leases = (0..count).map(|_| pool.try_lease(bytes)).collect::<Result<_, _>>();
    leases.map_err(|cause| BenchError::failed("leasing a chunk", cause))
}

/// A whole number that is small enough to be exact, and different in neighbouring places and chunks.
fn number(chunk: usize, index: usize) -> f32 {
    let place = (index * 7 + chunk * 12_347) % 65_521;
    // It fits: it is below 2^16.
    u16::try_from(place).map_or(0.0, f32::from)
}

fn fill(bytes: &mut [u8], number: impl Fn(usize) -> f32) {
    for (index, place) in bytes.chunks_exact_mut(size_of::<f32>()).enumerate() {
        place.copy_from_slice(&number(index).to_ne_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_came_back_wrong_or_not_at_all_is_found() {
        let mut host = Host::open(Memory::Pageable, 3, 4096).unwrap();
        assert!(host.verify().unwrap_err().to_string().contains("number 0 of chunk 0"));
        for chunk in 0..host.chunks() {
            let (source, target) = host.ends(chunk);
            for (from, to) in source.chunks_exact(4).zip(target.chunks_exact_mut(4)) {
                let number = f32::from_ne_bytes(from.try_into().unwrap());
                to.copy_from_slice(&(1.0 - number).to_ne_bytes());
            }
        }
        host.verify().unwrap();
        // The right numbers of another chunk are wrong ones.
        let other = host.targets[1].bytes().to_vec();
        host.targets[2].bytes_mut().copy_from_slice(&other);
        let error = host.verify().unwrap_err().to_string();
        assert!(error.contains("pageable: number 0 of chunk 2"), "{error}");
    }
}
