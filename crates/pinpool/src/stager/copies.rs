//! Copies for which the caller's thread waits: until the source has been read, or the target is written.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::error::{StageCause, StageError};
use super::job::{Device, Host, Job, Kept};
use super::open::Stager;
use super::staged::{StagedCopy, bytes_of, refused};
use super::tally::Tally;
use crate::cuda::DeviceMemory;
use crate::cuda::lane::{Mark, order_behind};
use crate::cuda::straight;
use crate::cuda::transfer::{check_context, check_len};

impl Stager {
    /// Copies all elements to the start of `target`. Returns when `source` has been read, which can then be written or
    /// freed; `stream` comes behind the copy, so that work queued on it later sees the data.
    ///
    /// That is not before the work is over that `stream` has queued already. Small copies, and those of memory that is
    /// pinned, are over when this returns.
    ///
    /// Use views of device memory to copy elsewhere, and [`Self::scope`] to do something else meanwhile.
    ///
    /// # Errors
    ///
    /// `target` is too short or of another context than the stream, the stream is being captured into a graph, or a
    /// driver call failed. `target` may be partly written then.
    pub fn upload<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        source: &[T],
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<StagedCopy, StageError> {
        let lens = (source.len(), target.len());
        let Some(bytes) = self.check::<T>(lens, target.stream(), stream)? else {
            return Ok(StagedCopy::over(0));
        };
        let straight = bytes <= self.straight.up || straight::is_pinned(source, stream.context());
        let (address, recorded) = target.device_ptr_mut(stream);
        if straight {
            // SAFETY: checked above: the target is long enough and of the stream's context, and gives its
            // memory back behind what the stream has queued.
            unsafe { straight::upload(source, stream, address) }
                .map_err(|error| refused(error, bytes as u64))?;
            return Ok(StagedCopy::over(bytes as u64));
        }
        let host = Host::from_bytes(source.as_ptr().cast());
        // SAFETY: I18, below this waits until the source has been read; the target as above, and the
        // stream comes behind the copy before it is given back.
        let job = unsafe { self.put(host, bytes, address, stream, None) }?;
        self.read_out(&job, stream)?;
        drop(recorded);
        Ok(StagedCopy::of_crew(&job))
    }

    /// Fills all of `target` from a file, from `offset` bytes on. Returns when it has been read; `stream` comes behind
    /// the copy.
    ///
    /// All threads of the crew read, straight into the pool's slots: from the page cache what lies there, and past it
    /// what does not, if the file system can and `offset` is a multiple of 4096.
    ///
    /// # Errors
    ///
    /// As [`Self::upload`]; [`StageCause::Truncated`] when the file ends before the target does;
    /// [`StageCause::Read`].
    pub fn upload_file<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        file: impl AsFd,
        offset: u64,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<StagedCopy, StageError> {
        self.fill_from(Host::from_file(file.as_fd(), offset), stream, target)
    }

    /// Fills all of `target` from a reader. Returns when it has been read; `stream` comes behind the copy.
    ///
    /// One thread of the crew reads, while the device copies what it has read before. Other copies go on meanwhile on
    /// the other threads, also while the reader waits for something. Readers and writers that wait for each other
    /// need a thread each: no more of them at once than the crew has threads.
    ///
    /// # Errors
    ///
    /// As [`Self::upload_file`], and [`StageCause::Panicked`].
    pub fn upload_from<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        mut reader: impl Read + Send,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<StagedCopy, StageError> {
        self.fill_from(Host::from_reader(&mut reader), stream, target)
    }

    /// The caller holds what `host` borrows until this returns.
    fn fill_from<T: Pod, D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        host: Host,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<StagedCopy, StageError> {
        let lens = (target.len(), target.len());
        let Some(bytes) = self.check::<T>(lens, target.stream(), stream)? else {
            return Ok(StagedCopy::over(0));
        };
        let (address, recorded) = target.device_ptr_mut(stream);
        // SAFETY: as in `upload`.
        let job = unsafe { self.put(host, bytes, address, stream, None) }?;
        self.read_out(&job, stream)?;
        drop(recorded);
        Ok(StagedCopy::of_crew(&job))
    }

    /// Copies all elements of `source` to the start of `target`, and returns when they are there.
    ///
    /// # Errors
    ///
    /// As [`Self::upload`]. `target` may be partly written then.
    pub fn download<T: Pod, S: DevicePtr<T> + DeviceMemory>(
        &self,
        source: &S,
        stream: &Arc<CudaStream>,
        target: &mut [T],
    ) -> Result<(), StageError> {
        let lens = (source.len(), target.len());
        let Some(bytes) = self.check::<T>(lens, source.stream(), stream)? else { return Ok(()) };
        let target = &mut target[..source.len()];
        let (address, recorded) = source.device_ptr(stream);
        if bytes <= self.straight.down || straight::is_pinned(target, stream.context()) {
            // SAFETY: checked above, as for uploads; it waits.
            return unsafe { straight::download(address, stream, target) }
                .map_err(|error| refused(error, bytes as u64));
        }
        let host = Host::to_bytes(target.as_mut_ptr().cast());
        // SAFETY: I18, this waits until the copy is over.
        let job = unsafe { self.put(host, bytes, address, stream, None) }?;
        let ended = job.tally.wait_over();
        drop(recorded);
        ended
    }

    /// Writes all elements of `source` to a writer, in their order, and returns when they are written.
    ///
    /// One thread of the crew writes, while the device copies what comes next.
    ///
    /// # Errors
    ///
    /// As [`Self::download`]; [`StageCause::Write`] and [`StageCause::Panicked`].
    pub fn download_to<T: Pod, S: DevicePtr<T> + DeviceMemory>(
        &self,
        source: &S,
        stream: &Arc<CudaStream>,
        mut writer: impl Write + Send,
    ) -> Result<(), StageError> {
        let lens = (source.len(), source.len());
        let Some(bytes) = self.check::<T>(lens, source.stream(), stream)? else { return Ok(()) };
        let (address, recorded) = source.device_ptr(stream);
        let host = Host::to_writer(&mut writer);
        // SAFETY: I18, this waits until the copy is over.
        let job = unsafe { self.put(host, bytes, address, stream, None) }?;
        let ended = job.tally.wait_over();
        drop(recorded);
        ended
    }

    /// The bytes of a copy of so many elements into room for so many, from or to device memory that is of this
    /// stream; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Why the copy cannot be begun.
    pub(super) fn check<T: Pod>(
        &self,
        (count, room): (usize, usize),
        memory: &CudaStream,
        stream: &CudaStream,
    ) -> Result<Option<usize>, StageError> {
        let bytes = bytes_of::<T>(count);
        let cause = if self.home.is_here() {
            let fits = check_len(count, room).and_then(|()| check_context(memory, stream));
            fits.err().map(StageCause::Failed)
        } else {
            Some(StageCause::Forked)
        };
        match cause {
            Some(cause) => Err(StageError { done: 0, total: bytes as u64, cause }),
            None => Ok((bytes > 0).then_some(bytes)),
        }
    }

    /// Gives the crew a copy of more than no bytes.
    ///
    /// # Safety
    ///
    /// As [`Job::new`].
    pub(super) unsafe fn put(
        &self,
        host: Host,
        bytes: usize,
        address: u64,
        stream: &CudaStream,
        kept: Option<Kept>,
    ) -> Result<Arc<Job>, StageError> {
        let start = Mark::behind(self.class, stream);
        let start = start.map_err(|error| refused(error, bytes as u64))?;
        let piece_bytes = self.piece_bytes(bytes);
        let tally = Tally::new(self.home, bytes.div_ceil(piece_bytes), bytes as u64);
        let device = Device { address, context: Arc::clone(stream.context()), start };
        // SAFETY: the caller's word.
        let job = unsafe { Job::new(tally, host, device, (bytes, piece_bytes), kept) };
        let job = Arc::new(job);
        self.board.put(Arc::clone(&job));
        Ok(job)
    }

    /// Waits until a copy's source has been read, and has the stream come behind it.
    fn read_out(&self, job: &Job, stream: &CudaStream) -> Result<(), StageError> {
        let read = job.tally.wait_sent();
        // Where the stream cannot wait, the host does.
        if !read || order_behind(&job.lanes(), self.class, stream).is_err() {
            return job.tally.wait_over();
        }
        Ok(())
    }
}
