//! What can go wrong, said so that the user knows what happened, which limit or key, and what to do.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::fence::FenceError;
use crate::memory::huge::Supply;
use crate::memory::{BackendKind, Headroom, MemoryError};
use crate::size_class::ClassId;
use crate::tag::Tag;

/// Why a pool could not be configured or opened, or why a copy failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration file, environment variable, argument or builder call is wrong. Nothing was
    /// pinned.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The requested backend cannot work here. Nothing was pinned.
    #[error("the {backend} backend is not available: {reason}; {remedy}")]
    BackendUnavailable {
        /// The backend that was asked for.
        backend: BackendKind,
        /// What the probe found.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },

    /// The locked-memory limit of this process is too small. Everything was rolled back.
    #[error(
        "cannot lock {needed} bytes of host memory ({already} of them were locked when it failed, \
         and {elsewhere} bytes are locked by the rest of this process): RLIMIT_MEMLOCK is {} soft and {} hard, for each process by itself; raise it with `ulimit -l` (KiB), \
         `LimitMEMLOCK=` in the systemd unit, `--ulimit memlock=-1` for a container, or give the \
         process CAP_IPC_LOCK; or set `lock = \"try\"` in [pool] to run unlocked",
        Limit(*.soft), Limit(*.hard)
    )]
    MemlockLimit {
        /// Bytes that the configuration locks in total.
        needed: u64,
        /// Bytes of it that were locked when the limit was hit; they are unlocked again.
        already: u64,
        /// Bytes that this process has locked outside this pool.
        elsewhere: u64,
        /// The soft limit in bytes, `None` for unlimited.
        soft: Option<u64>,
        /// The hard limit in bytes, `None` for unlimited.
        hard: Option<u64>,
        /// The system's answer.
        source: Box<MemoryError>,
    },

    /// Huge pages are required and could not be had. Everything was rolled back.
    #[error(
        "class '{class}': {source}; {}{}, or set huge_pages = \"try\" in [pool]",
        Reserve { needed: *.needed, free: *.free, page_bytes: *.page_bytes }, Transparent(.transparent)
    )]
    HugePages {
        /// The class whose slab was being made.
        class: String,
        /// Reserved huge pages that the pool needs for all its slabs.
        needed: u64,
        /// Reserved huge pages that are free.
        free: u64,
        /// Bytes of a reserved huge page; 0 where the system has none.
        page_bytes: usize,
        /// Who gets transparent huge pages: `always`, `madvise`, `never`, or nothing if the system does
        /// not tell.
        transparent: String,
        /// The step that failed and its cause.
        source: MemoryError,
    },

    /// A limit of the system leaves too little room for the pool. Everything was rolled back; if
    /// `taken` is 0, nothing was mapped.
    #[error(
        "the pool needs {needed} bytes of host memory ({taken} of them were taken when it failed), but \
         {headroom}; {}", .headroom.remedy()
    )]
    NoRoom {
        /// Bytes that the configuration takes when the pool opens.
        needed: u64,
        /// Bytes of the slabs that were made before it failed; they are given back again.
        taken: u64,
        /// The limit that binds, with its figures.
        headroom: Box<Headroom>,
    },

    /// Host memory could not be obtained or pinned. Everything was rolled back.
    #[error(
        "class '{class}': {source}, at byte {offset} of its slab, with {pinned} of {total} bytes of host \
         RAM pinned before it; this is host memory, not GPU memory: lower `count` or `size` of [[class]] '{class}' \
         (and `max_pinned` in [pool], which caps the sum), or free host RAM"
    )]
    Memory {
        /// The class whose slab was being made.
        class: String,
        /// Bytes this pool had pinned before the failure; they are unpinned again.
        pinned: u64,
        /// Bytes the configuration pins in total.
        total: u64,
        /// Where the part that failed begins within the class's slab, in bytes.
        offset: u64,
        /// The step that failed and its cause.
        source: MemoryError,
    },

    /// The opening was cancelled, or the pool was closed meanwhile. Everything was rolled back.
    #[error(
        "the opening was cancelled at class '{class}', with {pinned} of {total} bytes pinned; all of \
         them are given back"
    )]
    OpenCancelled {
        /// The class that was being made.
        class: String,
        /// Bytes this pool had pinned; they are unpinned again.
        pinned: u64,
        /// Bytes of the configuration.
        total: u64,
    },

    /// Memory of the caller's own panicked while the pool was opened on a thread of its own.
    #[error("memory of the caller's own panicked while it was reserved, populated or pinned")]
    OpenPanicked,

    /// The opening took longer than `open_timeout`. Everything was rolled back.
    #[error(
        "open_timeout of {timeout:?} was over at class '{class}', with {pinned} of {total} bytes pinned; \
         all of them are given back: raise open_timeout in [pool], lower `count` or `size`, or see with \
         `pinpool bench startup` what takes so long"
    )]
    OpenTimeout {
        /// The class that was being made.
        class: String,
        /// The value of `open_timeout`.
        timeout: Duration,
        /// Bytes this pool had pinned; they are unpinned again.
        pinned: u64,
        /// Bytes of the configuration.
        total: u64,
    },

    /// A call into the CUDA driver failed.
    #[error("{call} failed: {code}{}", Advice(.advice))]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's name for the error.
        code: String,
        /// What to do, where it is known.
        advice: &'static str,
    },

    /// A copy's two sides do not match.
    #[error(
        "cannot copy {source_len} elements into a buffer of {target_len}; use a part of the source (of a \
         lease, `set_len`), or a larger buffer or range"
    )]
    CopyLength {
        /// Elements to copy.
        source_len: usize,
        /// Elements there is room for.
        target_len: usize,
    },

    /// Device memory and stream belong to different contexts: the memory could be freed under the copy.
    #[error(
        "the device memory and the stream belong to different contexts: copy on a stream of the \
         memory's own context"
    )]
    OtherContext,

    /// The stream is being captured into a graph, where the copy would run again at each launch,
    /// long after the lease went home.
    #[error(
        "the stream is being captured into a graph, which would read or write the lease at each \
         launch: hold the lease with `hold_for_graph`, copy on another stream, or end the capture"
    )]
    StreamCapturing,

    /// A copy through a [`GraphHold`](crate::cuda::GraphHold) on a stream that is not being captured.
    #[error(
        "the stream is not being captured, so that the copy would run now: begin the capture first, \
         or use `upload` and `download` of the lease"
    )]
    StreamNotCapturing,

    /// A range or a length does not fit the lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),

    /// A fence says that nobody will know whether its work is over. The slot is quarantined.
    #[error("a fence failed: {0}; its slot is never used again")]
    Fence(FenceError),

    /// The pool's background thread could not be started. Everything was rolled back.
    #[error(
        "cannot start the thread that takes slots back after copies: {0}; raise the limit on \
         processes (`ulimit -u`, `TasksMax=` in the systemd unit, `--pids-limit` for a container)"
    )]
    Keeper(#[source] std::io::Error),

    /// The page by which a forked child is told from its parent could not be mapped.
    #[error(
        "cannot map the page that tells a forked child from its parent: {0}; free memory, or let the \
         sandbox allow mmap and madvise"
    )]
    Mark(#[source] std::io::Error),

    /// A stager of a size that is out of range.
    #[error(
        "a stager of {threads} threads with pieces of {chunk_bytes} bytes: use 1 to 64 threads, and pieces \
         of 4096 bytes or more"
    )]
    StagerSize {
        /// Threads asked for.
        threads: usize,
        /// Bytes of a piece asked for.
        chunk_bytes: usize,
    },

    /// The pool cannot spare what a stager holds. Nothing was kept.
    #[error(
        "a stager holds {needed} slots of {chunk_bytes} bytes, two for each thread, as long as it lives, and \
         cannot have them: {error}. For a stager give the pool a [[class]] of that `size` and `count` \
         (`PoolBuilder::stager`), for each stager that lives at once, or lower its threads or chunk"
    )]
    StagerBuffers {
        /// Slots that the stager's threads hold.
        needed: usize,
        /// Bytes of one.
        chunk_bytes: usize,
        /// Why they could not be leased.
        error: LeaseError,
    },

    /// A stager over a pool without a GPU. Nothing was kept.
    #[error(
        "a stager copies to and from a GPU, and the pool is without one: {reason}; see what `pinpool doctor` \
         says of the driver and its devices"
    )]
    StagerWithoutDevice {
        /// Why the pool has no GPU.
        reason: String,
    },

    /// A thread of a stager could not be started. Nothing was kept.
    #[error(
        "cannot start a thread that copies: {0}; raise the limit on processes (`ulimit -u`, `TasksMax=` in the \
         systemd unit, `--pids-limit` for a container)"
    )]
    StagerThread(#[source] std::io::Error),

    /// The pool does not serve this device.
    #[error(
        "device {device} is not one of the pool's, which are: {}; ask for one of them, or add {device} to \
         device in [pool]", Numbers(.devices)
    )]
    UnknownDevice {
        /// The device that was asked for.
        device: u32,
        /// Those that the pool serves.
        devices: Vec<u32>,
    },

    /// The lease's memory cannot be used by the GPU directly.
    #[error(
        "a copy needs memory that the GPU can reach, and this lease is on the {backend} \
             backend; open the pool with `backend = \"cuda\"`"
    )]
    NotDeviceAccessible {
        /// The lease's backend.
        backend: BackendKind,
    },
}

impl Error {
    /// True when the fault lies in what the user asked for (configuration, arguments, a limit or a
    /// missing device), so that a command line tool exits with code 2.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::BackendUnavailable { .. }
                | Self::MemlockLimit { .. }
                | Self::HugePages { .. }
                | Self::NoRoom { .. }
                | Self::StagerSize { .. }
                | Self::StagerBuffers { .. }
                | Self::UnknownDevice { .. }
        )
    }

    /// Why `class` has no huge pages, and what a pool with such slabs needs.
    pub(crate) fn not_huge(
        class: String,
        slabs: impl Iterator<Item = u64>,
        source: MemoryError,
    ) -> Self {
        let supply = Supply::read();
        let needed = slabs.map(|bytes| supply.pages_for(bytes)).sum();
        let Supply { page_bytes, free, transparent, .. } = supply;
        Self::HugePages { class, needed, free, page_bytes, transparent, source }
    }
}

/// A mistake in the configuration, with its place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    origin: Origin,
    problem: String,
    help: Option<String>,
}

/// Where a configured value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A line of a file, or of text given as such (no path).
    File {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// Line, from 1; 0 when the whole file is meant.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// An argument or a builder call.
    Argument(&'static str),
    /// All sources together.
    Effective,
}

impl ConfigError {
    pub(crate) fn new(origin: Origin, problem: impl Into<String>) -> Self {
        Self { origin, problem: problem.into(), help: None }
    }

    pub(crate) fn argument(name: &'static str, problem: impl Into<String>) -> Self {
        Self::new(Origin::Argument(name), problem)
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the valid name that `wrong` resembles, or all of them.
    pub(crate) fn nearest(self, wrong: &str, valid: &[&str]) -> Self {
        self.nearest_prefixed("", wrong, valid)
    }

    /// As `nearest`, for names that share a prefix which is not part of `wrong` and `valid`.
    pub(crate) fn nearest_prefixed(self, prefix: &str, wrong: &str, valid: &[&str]) -> Self {
        // Backwards, because the last of equals wins: the first name that fits is the one meant.
        let best = valid
            .iter()
            .rev()
            .map(|name| (strsim::jaro_winkler(wrong, name), *name))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((likeness, name)) if likeness > 0.75 => {
                self.help(format!("did you mean '{prefix}{name}'?"))
            }
            _ => {
                let names: Vec<_> = valid.iter().map(|name| format!("{prefix}{name}")).collect();
                self.help(format!("valid: {}", names.join(", ")))
            }
        }
    }

    /// Where the mistake is.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The line of the configuration text, where it is one.
    pub fn line(&self) -> Option<usize> {
        match self.origin {
            Origin::File { line, .. } if line > 0 => Some(line),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { path, line } => {
                match path {
                    Some(path) => write!(f, "{}", path.display())?,
                    None => f.write_str("configuration")?,
                }
                if *line > 0 {
                    write!(f, ", line {line}")?;
                }
                f.write_str(": ")?;
            }
            Origin::Environment(name) => write!(f, "environment variable {name}: ")?,
            Origin::Argument(name) => write!(f, "{name}: ")?,
            Origin::Effective => f.write_str("configuration: ")?,
        }
        f.write_str(&self.problem)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Why a lease was not given, or a view of one not made. A cheap value: no allocation, and no text
/// until it is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError {
    /// Nothing was asked for: zero elements, or elements of zero size.
    ZeroLen,
    /// No class holds so much.
    TooLarge {
        /// Bytes asked for, or `usize::MAX` if they exceed the address space.
        requested: usize,
        /// Slot size of the largest class that the handle leases from, in bytes.
        largest: usize,
    },
    /// Every slot of the class is out.
    Exhausted(Exhausted),
    /// Every slot of the class was out until the deadline.
    Timeout {
        /// The class and its counts at the deadline.
        exhausted: Exhausted,
        /// How long was waited.
        waited: Duration,
    },
    /// The pool is closed.
    Closed,
    /// The pool is opening, and this class is not there yet. Whoever waits for a lease waits for it, too.
    NotReady,
    /// The pool belongs to the process that this one was forked from.
    Forked,
    /// The class can never give so many slots at once.
    TooMany {
        /// The class.
        name: ClassName,
        /// Slots asked for.
        wanted: usize,
        /// The most that this kind of lease can get of the class, growth included.
        most: usize,
    },
    /// A range or length goes past the end.
    OutOfRange {
        /// First element asked for.
        start: usize,
        /// Element after the last.
        end: usize,
        /// Elements there are.
        len: usize,
    },
    /// The memory does not have the alignment or size that the element type needs.
    Misaligned {
        /// The alignment needed.
        align: usize,
        /// Bytes that do not divide into whole elements, if that is the reason, else 0.
        leftover: usize,
    },
}

/// Which class was empty, and where its slots were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exhausted {
    /// The class.
    pub class: ClassId,
    /// Its name in the configuration.
    pub name: ClassName,
    /// Bytes in one slot.
    pub slot_bytes: usize,
    /// All slots of the class.
    pub slots: u32,
    /// Slots with a copy in flight.
    pub in_flight: u32,
    /// Slots that are out of use for good after a fault.
    pub quarantined: u32,
    /// Free slots that are kept for `lease_priority`.
    pub reserved: u32,
    /// Threads and tasks that wait for a slot of the class.
    pub waiting: u32,
    /// Who has held a slot for the longest, where the pool keeps track (`track_holders`).
    pub oldest: Option<OldestHolder>,
    pub(crate) remedy: Remedy,
}

/// What would help an empty class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// To wait, or more slots.
    Count,
    /// The class lets nobody wait.
    Policy,
    /// It is growing.
    Growth,
    /// It may not grow any more: by its own limit, or by the pool's.
    GrowMax,
    MaxPinned,
    /// The system is short of memory.
    Pressure,
    /// It may lend no more pageable buffers.
    PageableMax,
}

impl Remedy {
    /// What to do, for one who waited or did not.
    fn text(self, waited: bool) -> &'static str {
        match self {
            Self::Count if waited => "drop a lease, or raise its `count`",
            Self::Count => "drop a lease, wait with lease_timeout, or raise its `count`",
            Self::Policy => {
                "its on_empty is \"fail\": drop a lease, raise its `count`, or set on_empty = \"wait\""
            }
            Self::Growth if waited => {
                "it is growing: wait longer, or raise its `count` or `grow_at`"
            }
            Self::Growth => {
                "it is growing: wait with lease_timeout, or raise its `count` or `grow_at`"
            }
            Self::GrowMax => "drop a lease, or raise its `grow_max`",
            Self::MaxPinned => {
                "drop a lease, or raise `max_pinned` in [pool], which keeps it from growing"
            }
            Self::Pressure => {
                "nothing grows while the system is short of memory (`on_pressure`): drop a lease, free \
                 host RAM, or raise its `count`"
            }
            Self::PageableMax => "drop a lease, or raise its `pageable_max` or `count`",
        }
    }
}

/// The holder that has had a slot for the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestHolder {
    /// The slot.
    pub slot: u32,
    /// For how long.
    pub held: Duration,
    /// Slots of the class that the calling thread leased itself and that are still held.
    pub own_slots: u32,
    pub(crate) tag: u32,
}

impl OldestHolder {
    /// The holder's tag.
    pub fn tag(&self) -> Option<Arc<str>> {
        Tag::name(self.tag)
    }
}

impl fmt::Display for OldestHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the oldest holder")?;
        if let Some(tag) = self.tag() {
            write!(f, ", '{tag}',")?;
        }
        write!(f, " has had slot {} for {:.1?}", self.slot, self.held)?;
        match self.own_slots {
            0 => Ok(()),
            own => write!(f, "; this thread itself leased {own} of them"),
        }
    }
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLen => f.write_str("a lease of zero bytes: ask for at least one element"),
            Self::TooLarge { requested, largest } => write!(
                f,
                "no class holds {requested} bytes: the largest slot is {largest} bytes; add a \
                 [[class]] of that size"
            ),
            Self::Exhausted(exhausted) if exhausted.quarantined == exhausted.slots => {
                write!(f, "{exhausted}; none can come back: open a new pool")
            }
            Self::Exhausted(exhausted) => {
                write!(f, "{exhausted}; {}", exhausted.remedy.text(false))
            }
            Self::Timeout { exhausted, waited } => {
                write!(f, "no slot within {waited:.1?}: {exhausted}; {}", exhausted.remedy.text(true))
            }
            Self::Closed => f.write_str("the pool is closed"),
            Self::NotReady => f.write_str(
                "the pool is still opening and this class is not ready: wait for the opening, or lease with \
                 a call that waits",
            ),
            Self::Forked => f.write_str(
                "this process was forked from the pool's: open a pool of its own here, after the fork",
            ),
            Self::TooMany { name, wanted, most } => write!(
                f,
                "class '{name}' can never give {wanted} slots at once, at most {most} (its `count` less \
                 its `reserve`, and what it may add); raise its `count`, or ask for fewer"
            ),
            Self::OutOfRange { start, end, len } => {
                write!(f, "elements {start}..{end} are not within the {len} there are")
            }
            Self::Misaligned { align, leftover: 0 } => {
                write!(f, "the memory is not aligned to the {align} bytes that the type needs")
            }
            Self::Misaligned { leftover, .. } => {
                write!(f, "the bytes do not divide into whole elements: {leftover} are left over")
            }
        }
    }
}

impl std::error::Error for LeaseError {}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.in_flight + self.quarantined + self.reserved;
        let leased = self.slots.saturating_sub(others);
        write!(
            f,
            "class '{}' is empty: of {} slots of {} bytes {leased} are leased, {} in flight",
            self.name, self.slots, self.slot_bytes, self.in_flight
        )?;
        if self.quarantined > 0 {
            write!(f, ", {} quarantined after failed work", self.quarantined)?;
        }
        if self.reserved > 0 {
            write!(f, ", {} kept for lease_priority", self.reserved)?;
        }
        if self.waiting > 0 {
            write!(f, "; {} wait for one", self.waiting)?;
        }
        match &self.oldest {
            None => Ok(()),
            Some(oldest) => write!(f, "; {oldest}"),
        }
    }
}

/// Whether the `count`th failure of a kind is worth a line in the log: the first ones, then fewer and
/// fewer, because a lost device fails every call.
pub(crate) fn is_told(count: usize) -> bool {
    count <= 4 || count.is_power_of_two()
}

/// The name of a class, held inline so that an error stays a plain value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassName {
    len: u8,
    bytes: [u8; Self::LEN_MAX],
}

impl ClassName {
    /// The longest name in bytes.
    pub const LEN_MAX: usize = 31;

    /// Takes the name, cut at [`Self::LEN_MAX`]; the plan refuses longer ones.
    pub(crate) fn new(name: &str) -> Self {
        let mut end = name.len().min(Self::LEN_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; Self::LEN_MAX];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        #[allow(clippy::cast_possible_truncation, reason = "at most LEN_MAX")]
        Self { len: end as u8, bytes }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl AsRef<str> for ClassName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for ClassName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ClassName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A limit in bytes, or its absence.
struct Limit(Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes} bytes"),
            None => f.write_str("unlimited"),
        }
    }
}

/// `0, 1`.
struct Numbers<'a>(&'a [u32]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(", "))
    }
}

/// What to reserve, where huge pages can be.
struct Reserve {
    needed: u64,
    free: u64,
    page_bytes: usize,
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, free, page_bytes } = self;
        if *page_bytes == 0 {
            return Ok(());
        }
        write!(
            f,
            "reserve {needed} huge pages of {page_bytes} bytes ({free} are free) with `sysctl \
             vm.nr_hugepages`, which need fork = \"deny\", no debug_checks and Linux 5.14; or "
        )
    }
}

/// What to do for transparent huge pages, by who gets them now.
struct Transparent<'a>(&'a str);

impl fmt::Display for Transparent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        match self.0 {
            "" => f.write_str("use a kernel that has transparent ones"),
            "always" | "madvise" => write!(
                f,
                "free or compact memory (`sysctl vm.compact_memory=1`): {ENABLED} is '{}', but too few \
                 transparent ones were given",
                self.0
            ),
            mode => write!(f, "set {ENABLED} to madvise, it is '{mode}'"),
        }
    }
}

/// `; advice`, or nothing.
struct Advice<'a>(&'a str);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}
