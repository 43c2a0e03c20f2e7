//! Copies of borrowed memory while the caller goes on: a scope waits for all of them.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::error::StageError;
use super::job::{Host, Job};
use super::open::Stager;
use super::staged::StagedCopy;
use crate::cuda::DeviceMemory;
use crate::sync::Mutex;

/// Where copies of borrowed memory can be begun: from [`Stager::scope`].
pub struct StageScope<'scope, 'env: 'scope> {
    stager: &'env Stager,
    /// Copies that may not be over.
    open: Mutex<Vec<Arc<Job>>>,
    /// What is lent is lent for exactly this long.
    scope: PhantomData<&'scope mut &'scope ()>,
}

impl Stager {
    /// Lets `work` begin copies of memory that it borrows, and go on while they run. Returns when all of them are over,
    /// also those whose handles were dropped, and also if `work` panics.
    ///
    /// As with `std::thread::scope`, what is lent stays lent until the scope ends, also once a copy is over: make sources, targets and
    /// views before the scope (`let mut part = device.slice_mut(..10)`), and take no `move` closure. Where the closure ends in
    /// `Ok(())`, name its result: `|scope| -> Result<(), StageError> { .. }`. Not for `async` closures, which cannot wait: use
    /// [`Self::upload_owned`].
    ///
    /// ```no_run
    /// # fn up(stager: pinpool::Stager, stream: std::sync::Arc<pinpool::cudarc::driver::CudaStream>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let (first, second) = (vec![1_u8; 1 << 30], vec![2_u8; 1 << 30]);
    /// let mut on_device = (stream.alloc_zeros(1 << 30)?, stream.alloc_zeros(1 << 30)?);
    /// stager.scope(|scope| {
    ///     let first = scope.upload(&first, &stream, &mut on_device.0)?;
    ///     let second = scope.upload(&second, &stream, &mut on_device.1)?;
    ///     println!("{} bytes so far", first.progress().done + second.progress().done);
    ///     first.wait()?;
    ///     second.wait()
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If `work` does.
    pub fn scope<'env, R>(
        &'env self,
        work: impl for<'scope> FnOnce(&'scope StageScope<'scope, 'env>) -> R,
    ) -> R {
        let scope = StageScope { stager: self, open: Mutex::new(Vec::new()), scope: PhantomData };
        let done = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        for job in scope.open.lock().drain(..) {
            job.tally.wait_quietly();
        }
        match done {
            Ok(done) => done,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> StageScope<'scope, '_> {
    /// Copies all elements to the start of `target`, as [`Stager::upload`], and returns at once. Both stay borrowed until
    /// the scope ends.
    ///
    /// # Errors
    ///
    /// As [`Stager::upload`].
    pub fn upload<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &'scope self,
        source: &'scope [T],
        stream: &Arc<CudaStream>,
        target: &'scope mut D,
    ) -> Result<StagedCopy, StageError> {
        let lens = (source.len(), target.len());
        let bytes = self.stager.check::<T>(lens, target.stream(), stream)?;
        let (address, _recorded) = target.device_ptr_mut(stream);
        self.put(Host::from_bytes(source.as_ptr().cast()), bytes, address, stream)
    }

    /// Fills all of `target` from a file, from `offset` bytes on, as [`Stager::upload_file`], and returns at once. Both
    /// stay borrowed until the scope ends.
    ///
    /// # Errors
    ///
    /// As [`Stager::upload_file`].
    pub fn upload_file<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &'scope self,
        file: &'scope impl AsFd,
        offset: u64,
        stream: &Arc<CudaStream>,
        target: &'scope mut D,
    ) -> Result<StagedCopy, StageError> {
        let lens = (target.len(), target.len());
        let bytes = self.stager.check::<T>(lens, target.stream(), stream)?;
        let (address, _recorded) = target.device_ptr_mut(stream);
        self.put(Host::from_file(file.as_fd(), offset), bytes, address, stream)
    }

    /// Copies all elements of `source` to the start of `target`, as [`Stager::download`], and returns at once. Both stay
    /// borrowed until the scope ends.
    ///
    /// # Errors
    ///
    /// As [`Stager::download`].
    pub fn download<T: Pod, S: DevicePtr<T> + DeviceMemory>(
        &'scope self,
        source: &'scope S,
        stream: &Arc<CudaStream>,
        target: &'scope mut [T],
    ) -> Result<StagedCopy, StageError> {
        let lens = (source.len(), target.len());
        let bytes = self.stager.check::<T>(lens, source.stream(), stream)?;
        let (address, _recorded) = source.device_ptr(stream);
        self.put(Host::to_bytes(target.as_mut_ptr().cast()), bytes, address, stream)
    }

    /// What `host` borrows is borrowed for the scope.
    fn put(
        &self,
        host: Host,
        bytes: Option<usize>,
        address: u64,
        stream: &CudaStream,
    ) -> Result<StagedCopy, StageError> {
        let Some(bytes) = bytes else { return Ok(StagedCopy::over(0)) };
        // SAFETY: I18, the scope waits for the copy, and what it borrows is borrowed for longer.
        let job = unsafe { self.stager.put(host, bytes, address, stream, None) }?;
        let mut open = self.open.lock();
        // First: whatever comes next, the scope waits for it.
        let copy = StagedCopy::of_crew(&job);
        open.push(job);
        open.retain(|job| !job.tally.is_over());
        Ok(copy)
    }
}

impl fmt::Debug for StageScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageScope").field("stager", self.stager).finish_non_exhaustive()
    }
}
