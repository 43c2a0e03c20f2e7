//! The options of one size class, their defaults and why.

use std::fmt;
use std::time::Duration;

/// One size class as configured. [`ClassConfig::new`] has the defaults, which the methods change.
///
/// ```
/// use pinpool::{ClassConfig, OnEmpty, Plan, Pool};
///
/// let class = ClassConfig::new("frame", 6_220_800, 8).on_empty(OnEmpty::Grow).grow_max(24);
/// let plan: Plan = Pool::builder().class_config(class).max_pinned(1 << 30).plan()?;
/// assert_eq!(plan.classes[0].grow.map(|grow| (grow.by, grow.slabs)), Some((2, 12)));
/// # Ok::<(), pinpool::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassConfig {
    /// A name of letters, digits, `-`, `_` and `.`, at most 31 bytes.
    pub name: String,
    /// Bytes in one slot.
    pub size: usize,
    /// How many slots.
    pub count: usize,
    /// Slot sizes are rounded up to a multiple of this power of two. Default: [`ALIGN_DEFAULT`].
    pub align: usize,
    /// What a lease does when every slot is out. Default: [`OnEmpty::Wait`].
    pub on_empty: OnEmpty,
    /// So many slots, the last free ones, go to leases with priority only; fewer than `count`.
    /// Default: 0.
    pub reserve: usize,
    /// An empty class takes a slot of a larger class whose slots are at most so many times as large
    /// as its own; 1 to [`SPILL_MAX`]. A class that scrubs takes only slots that are scrubbed alike.
    /// Default: 1, it takes none.
    pub max_spill: u32,
    /// What happens to the bytes of a slot before its next owner sees it. Default: [`Scrub::None`].
    pub scrub: Scrub,
    /// With [`OnEmpty::Grow`]: the most slots that growth adds, rounded up to whole steps of
    /// `grow_by`. Default: `count`.
    pub grow_max: Option<usize>,
    /// With [`OnEmpty::Grow`]: slots per grown slab, at most `grow_max`. Default: a quarter of
    /// `count`, rounded up, so that growth comes in few steps that each cost milliseconds.
    pub grow_by: Option<usize>,
    /// With [`OnEmpty::Grow`]: the class grows ahead of need when so many or fewer slots are free
    /// that are not reserved; 0 is when the last is taken. Less than `count`. Default: an eighth of
    /// `count`.
    pub grow_at: Option<usize>,
    /// With [`OnEmpty::Grow`] or [`OnEmpty::Pageable`]: for how long a grown slab or a pageable
    /// buffer is unused before it is given back; a slab that would be added again at once stays.
    /// Default: [`IDLE_AFTER_DEFAULT`].
    pub idle_after: Option<Duration>,
    /// With [`OnEmpty::Pageable`]: the most pageable buffers at once. Default: `count`.
    pub pageable_max: Option<usize>,
    /// One of the pool's devices: only its handle ([`Pool::on`](crate::Pool::on)) leases from the class,
    /// whose slabs lie near it. Default: none, all handles lease from it and it lies near all devices.
    pub device: Option<u32>,
}

impl ClassConfig {
    /// A class with the defaults.
    pub fn new(name: impl Into<String>, size: usize, count: usize) -> Self {
        Self {
            name: name.into(),
            size,
            count,
            align: ALIGN_DEFAULT,
            on_empty: OnEmpty::default(),
            reserve: 0,
            max_spill: 1,
            scrub: Scrub::default(),
            grow_max: None,
            grow_by: None,
            grow_at: None,
            idle_after: None,
            pageable_max: None,
            device: None,
        }
    }

    /// Sets [`Self::align`](field@Self::align), in bytes.
    pub fn align(mut self, bytes: usize) -> Self {
        self.align = bytes;
        self
    }

    /// Sets [`Self::on_empty`](field@Self::on_empty).
    pub fn on_empty(mut self, policy: OnEmpty) -> Self {
        self.on_empty = policy;
        self
    }

    /// Sets [`Self::reserve`](field@Self::reserve), in slots.
    pub fn reserve(mut self, slots: usize) -> Self {
        self.reserve = slots;
        self
    }

    /// Sets [`Self::max_spill`](field@Self::max_spill), a factor.
    pub fn max_spill(mut self, factor: u32) -> Self {
        self.max_spill = factor;
        self
    }

    /// Sets [`Self::scrub`](field@Self::scrub).
    pub fn scrub(mut self, scrub: Scrub) -> Self {
        self.scrub = scrub;
        self
    }

    /// Sets [`Self::grow_max`](field@Self::grow_max), in slots.
    pub fn grow_max(mut self, slots: usize) -> Self {
        self.grow_max = Some(slots);
        self
    }

    /// Sets [`Self::grow_by`](field@Self::grow_by), in slots.
    pub fn grow_by(mut self, slots: usize) -> Self {
        self.grow_by = Some(slots);
        self
    }

    /// Sets [`Self::grow_at`](field@Self::grow_at), in slots.
    pub fn grow_at(mut self, slots: usize) -> Self {
        self.grow_at = Some(slots);
        self
    }

    /// Sets [`Self::idle_after`](field@Self::idle_after).
    pub fn idle_after(mut self, idle: Duration) -> Self {
        self.idle_after = Some(idle);
        self
    }

    /// Sets [`Self::pageable_max`](field@Self::pageable_max), in buffers.
    pub fn pageable_max(mut self, buffers: usize) -> Self {
        self.pageable_max = Some(buffers);
        self
    }

    /// Sets [`Self::device`](field@Self::device), by its number.
    pub fn device(mut self, device: u32) -> Self {
        self.device = Some(device);
        self
    }
}

/// What a lease does when every slot of its class is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnEmpty {
    /// It waits for a slot, where the call may wait.
    #[default]
    Wait,
    /// It fails at once.
    Fail,
    /// The class adds pinned slabs, up to `grow_max` slots, and gives them back when idle.
    Grow,
    /// It gets ordinary memory that is not pinned, up to `pageable_max` buffers.
    Pageable,
}

impl fmt::Display for OnEmpty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Wait => "wait",
            Self::Fail => "fail",
            Self::Grow => "grow",
            Self::Pageable => "pageable",
        })
    }
}

/// What happens to the bytes of a slot between two owners, once the work on it is over.
///
/// The pool's own thread does it, or a lessee who finds nothing else. A slot whose work failed or whose
/// lease was forgotten is never used again, and its bytes stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Scrub {
    /// Nothing: the next owner finds the bytes of the one before.
    #[default]
    None,
    /// They are set to zero.
    Zero,
    /// They are overwritten with a pattern that is easily told from data.
    Poison,
}

impl fmt::Display for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Zero => "zero",
            Self::Poison => "poison",
        })
    }
}

/// 64: slots share no cache line. Sizes that are a multiple of a page are page-aligned as well.
pub const ALIGN_DEFAULT: usize = 64;
/// 10 s: longer than the pauses between the bursts of a pipeline, so that a burst does not pin anew.
pub const IDLE_AFTER_DEFAULT: Duration = Duration::from_secs(10);
/// The most that `max_spill` may be.
pub const SPILL_MAX: u32 = 1024;
/// The most slabs that one class may grow by.
pub const GROWN_SLABS_MAX: u32 = 64;
