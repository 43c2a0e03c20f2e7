//! Builds a pool from all sources: builder calls win over the environment, the environment over a
//! file, a file over the defaults, whatever the order of the calls.

use std::ops::ControlFlow;
#[cfg(feature = "config")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::layer::{ClassLayer, Layer};
use crate::config::{
    BackendChoice, ClassConfig, OnPressure, PoolConfig, STAGE_CHUNK_DEFAULT, STAGE_SLOTS_EACH,
    Threads, env,
};
use crate::error::{ConfigError, Error, Origin};
use crate::foreign::tell;
use crate::memory::{ForkPolicy, HugePages, KeepFree, LockMode, Numa, PageLock};
use crate::plan::Plan;
use crate::pool::{OpenProgress, Opening, Pool};

impl Pool {
    /// Starts a configuration.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// Opens a pool from a configuration that was built in code. Reads no environment.
    ///
    /// # Errors
    ///
    /// As [`PoolBuilder::open`].
    pub fn from_config(config: PoolConfig) -> Result<Self, Error> {
        Self::open_plan(Plan::new(config)?, None)
    }

    /// Begins to open a pool from a configuration that was built in code, on a thread of its own. Reads no
    /// environment.
    ///
    /// # Errors
    ///
    /// As [`PoolBuilder::open_async`].
    pub fn open_async(config: PoolConfig) -> Result<Opening, Error> {
        Ok(Opening::begin(Plan::new(config)?, None))
    }

    /// Opens a pool from a TOML file and the `PINPOOL_*` variables.
    ///
    /// # Errors
    ///
    /// As [`PoolBuilder::open`].
    #[cfg(feature = "config")]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        Self::builder().file(path).open()
    }
}

/// Collects options and opens a [`Pool`].
///
/// ```
/// use pinpool::{FrameFormat, LockMode, Pool};
///
/// let pool = Pool::builder()
///     .class("frame", FrameFormat::Nv12.bytes(1280, 720)?, 4)
///     .lock(LockMode::Try)
///     .open()?;
/// let mut frame = pool.try_lease(1_382_400)?;
/// frame.as_mut_slice().fill(128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct PoolBuilder {
    #[cfg(feature = "config")]
    source: Option<Source>,
    read_env: bool,
    layer: Layer,
    memory: Option<Arc<dyn PageLock>>,
}

#[cfg(feature = "config")]
#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
    Text(String),
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self {
            #[cfg(feature = "config")]
            source: None,
            read_env: true,
            layer: Layer::default(),
            memory: None,
        }
    }
}

impl PoolBuilder {
    /// Reads a TOML file when the pool is opened.
    #[cfg(feature = "config")]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.source = Some(Source::File(path.as_ref().into()));
        self
    }

    /// Takes TOML text, as [`Self::file`] takes a file; the later of the two calls holds.
    #[cfg(feature = "config")]
    pub fn toml(mut self, text: impl Into<String>) -> Self {
        self.source = Some(Source::Text(text.into()));
        self
    }

    /// Whether `PINPOOL_*` variables are read, once, when the pool is opened. Default: yes.
    pub fn env(mut self, read: bool) -> Self {
        self.read_env = read;
        self
    }

    /// Which memory the pool stands on.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.layer.backend = Some(backend);
        self
    }

    /// The CUDA device by number.
    pub fn device(mut self, device: u32) -> Self {
        self.layer.device = Some(vec![device]);
        self
    }

    /// As [`Self::device`] for the first, and the other devices that use the memory: it lies near all of
    /// them, or near one where a class says so ([`ClassConfig::device`]).
    pub fn devices(mut self, first: u32, others: impl IntoIterator<Item = u32>) -> Self {
        self.layer.device = Some([first].into_iter().chain(others).collect());
        self
    }

    /// The most bytes to pin.
    pub fn max_pinned(mut self, bytes: u64) -> Self {
        self.layer.max_pinned = Some(bytes);
        self
    }

    /// Whether host memory is locked.
    pub fn lock(mut self, lock: LockMode) -> Self {
        self.layer.lock = Some(lock);
        self
    }

    /// Whether slabs lie on huge pages. Default: [`HugePages::Try`]. What they really lie on is in
    /// [`StartupReport::slabs`](crate::StartupReport::slabs).
    pub fn huge_pages(mut self, huge: HugePages) -> Self {
        self.layer.huge_pages = Some(huge);
        self
    }

    /// On which NUMA node slabs lie. Default: [`Numa::Auto`]. A preference: when the node is full, another helps out.
    pub fn numa(mut self, numa: Numa) -> Self {
        self.layer.numa = Some(numa);
        self
    }

    /// How many threads back the memory at start-up, 1 to [`THREADS_MAX`](crate::THREADS_MAX). Default: one
    /// per 64 MiB, at most 16 and at most the processors.
    pub fn prefault_threads(mut self, threads: usize) -> Self {
        self.layer.prefault_threads = Some(Threads::Count(threads));
        self
    }

    /// Threads of a [`Stager`](crate::Stager) over the pool, 1 to [`STAGE_THREADS_MAX`](crate::STAGE_THREADS_MAX).
    /// Default: three quarters of the processors, at most 12.
    pub fn stage_threads(mut self, threads: usize) -> Self {
        self.layer.stage_threads = Some(Threads::Count(threads));
        self
    }

    /// The most bytes that a [`Stager`](crate::Stager) copies in one piece, at least
    /// [`STAGE_CHUNK_MIN`](crate::STAGE_CHUNK_MIN); a slot of the pool must hold them. Default:
    /// [`STAGE_CHUNK_DEFAULT`](crate::STAGE_CHUNK_DEFAULT).
    pub fn stage_chunk(mut self, bytes: u64) -> Self {
        self.layer.stage_chunk = Some(bytes);
        self
    }

    /// Bytes pinned by one call, at least 1; rounded to whole slots and pages. Default:
    /// [`PIN_CHUNK_DEFAULT`](crate::PIN_CHUNK_DEFAULT).
    pub fn pin_chunk(mut self, bytes: u64) -> Self {
        self.layer.pin_chunk = Some(bytes);
        self
    }

    /// How long other threads and processes are let in while the pool pins; zero for never. Default:
    /// [`PIN_PAUSE_DEFAULT`](crate::PIN_PAUSE_DEFAULT).
    pub fn pin_pause(mut self, pause: Duration) -> Self {
        self.layer.pin_pause = Some(pause);
        self
    }

    /// The longest that opening may take, more than zero and at most [`DURATION_MAX`](crate::DURATION_MAX).
    /// Default: no limit. When it is over the opening fails with [`Error::OpenTimeout`], also with
    /// [`Self::min_bytes`].
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.layer.open_timeout = Some(timeout);
        self
    }

    /// Lets the pool open smaller than configured, but with no less than so many bytes, at least 1, and a slot of
    /// each class beyond its `reserve`. Default: all or nothing. Which classes are smaller is in
    /// [`StartupReport::cut`](crate::StartupReport::cut).
    pub fn min_bytes(mut self, bytes: u64) -> Self {
        self.layer.min_bytes = Some(bytes);
        self
    }

    /// What a forked child gets of the slabs.
    pub fn fork(mut self, policy: ForkPolicy) -> Self {
        self.layer.fork = Some(policy);
        self
    }

    /// Whether the pool remembers since when and by which thread each lease is held.
    pub fn track_holders(mut self, track: bool) -> Self {
        self.layer.track_holders = Some(track);
        self
    }

    /// Reports each lease that is held for longer, once; implies [`Self::track_holders`].
    pub fn leak_after(mut self, held: Duration) -> Self {
        self.layer.leak_after = Some(held);
        self
    }

    /// What stays free of the machine's RAM and of the control group's limit. Default: [`KeepFree::Auto`].
    pub fn keep_free(mut self, keep: KeepFree) -> Self {
        self.layer.keep_free = Some(keep);
        self
    }

    /// What grown slabs do while the system is short of memory. Default: [`OnPressure::Trim`].
    pub fn on_pressure(mut self, policy: OnPressure) -> Self {
        self.layer.on_pressure = Some(policy);
        self
    }

    /// Whether the pool keeps canaries, poison and guard pages. Needs the Cargo feature
    /// `debug-checks`.
    pub fn debug_checks(mut self, check: bool) -> Self {
        self.layer.debug_checks = Some(check);
        self
    }

    /// Adds the class `stage` with as many slots as a [`Stager`](crate::Stager) over the pool holds, of the size of its pieces; or
    /// makes a file's class of that name so. By what [`Self::stage_threads`] and [`Self::stage_chunk`] said before, or the defaults.
    pub fn stager(self) -> Self {
        let threads = self.layer.stage_threads.unwrap_or_default().for_a_stager();
        let chunk = self.layer.stage_chunk.unwrap_or(STAGE_CHUNK_DEFAULT);
        let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
        self.class("stage", chunk, threads.saturating_mul(STAGE_SLOTS_EACH))
    }

    /// Adds a class, or changes the size and count of a file's class of that name.
    pub fn class(mut self, name: &str, size: usize, count: usize) -> Self {
        self.layer.classes.push(ClassLayer {
            name: name.into(),
            size: Some(size as u64),
            count: Some(count as u64),
            ..ClassLayer::default()
        });
        self
    }

    /// Adds a class with all its options, the defaults included; it replaces a file's class of that
    /// name.
    pub fn class_config(mut self, class: ClassConfig) -> Self {
        self.layer.classes.push(ClassLayer::whole(class));
        self
    }

    /// Brings its own way to reserve and pin memory, in place of a backend.
    pub fn memory(mut self, memory: impl PageLock + 'static) -> Self {
        self.memory = Some(Arc::new(memory));
        self
    }

    /// The effective configuration, not yet checked as a whole.
    ///
    /// # Errors
    ///
    /// An unreadable file, unknown keys or variables, values out of range, a class given twice.
    pub fn config(&self) -> Result<PoolConfig, Error> {
        self.refuse_duplicates()?;
        let mut layer = self.source_layer()?;
        if self.read_env {
            let classes = layer.classes.iter().chain(&self.layer.classes);
            let mut names: Vec<String> = classes.map(|class| class.name.clone()).collect();
            names.sort_unstable();
            names.dedup();
            // What is no Unicode is no valid name or value either: let it be refused by name.
            let variables = std::env::vars_os().map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            });
            let variables = env::read(variables, &names)?;
            for option in variables.also_set_by(&self.layer) {
                tell!(warn, option, "a PINPOOL_ variable has no effect: the program sets this");
            }
            layer.merge(variables);
        }
        layer.merge(self.layer.clone());
        Ok(layer.into_config())
    }

    /// The configuration turned into exact counts and bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::config`], and everything that [`Plan::new`] refuses.
    pub fn plan(&self) -> Result<Plan, Error> {
        Plan::new(self.config()?)
    }

    /// Opens the pool: everything is allocated and pinned now, nothing later but what classes with
    /// `on_empty = "grow"` or `"pageable"` add.
    ///
    /// # Errors
    ///
    /// As [`Self::plan`], and whatever keeps the machine from giving the memory. Nothing stays
    /// pinned then.
    pub fn open(self) -> Result<Pool, Error> {
        let plan = self.plan()?;
        Pool::open_plan(plan, self.memory)
    }

    /// Opens the pool as [`Self::open`] does, and tells `progress` how far it is: at the beginning, about every 10 ms,
    /// and at the end, in the calling thread. `Break` cancels the opening.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and [`Error::OpenCancelled`].
    pub fn open_with(
        self,
        progress: impl FnMut(OpenProgress) -> ControlFlow<()>,
    ) -> Result<Pool, Error> {
        self.open_async()?.tell(progress)
    }

    /// Begins to open the pool on a thread of its own. Its classes can be leased from as soon as they are
    /// there, in the order of the configuration.
    ///
    /// # Errors
    ///
    /// As [`Self::plan`]; everything else the [`Opening`] tells.
    pub fn open_async(self) -> Result<Opening, Error> {
        Ok(Opening::begin(self.plan()?, self.memory))
    }

    #[cfg(feature = "config")]
    fn source_layer(&self) -> Result<Layer, Error> {
        match &self.source {
            None => Ok(Layer::default()),
            Some(Source::File(path)) => crate::config::file::read(path),
            Some(Source::Text(text)) => crate::config::file::parse(text, None),
        }
    }

    #[cfg(not(feature = "config"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "same shape as with files")]
    fn source_layer(&self) -> Result<Layer, Error> {
        Ok(Layer::default())
    }

    /// The same class twice by builder calls is a slip, as it is in a file.
    fn refuse_duplicates(&self) -> Result<(), ConfigError> {
        let mut names: Vec<_> = self.layer.classes.iter().map(|class| &class.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(ConfigError::new(
                Origin::Argument("class"),
                format!("class '{}' was given twice", pair[0]),
            )
            .help("give each class its own name")),
        }
    }
}
