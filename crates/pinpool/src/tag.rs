//! Names for the holders of leases, kept as numbers; one list for the whole process, so that a name
//! means the same in every pool.

use std::sync::{Arc, PoisonError, RwLock};

/// A name for the holder of a lease, from [`Pool::tag`](crate::Pool::tag).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u32);

/// The names so far; number 1 is the first. They are never freed: a tag names a stage of a
/// pipeline, not a frame.
static NAMES: RwLock<Vec<Arc<str>>> = RwLock::new(Vec::new());

impl Tag {
    /// The tag of a name; the same name always gives the same tag.
    pub(crate) fn new(name: &str) -> Self {
        // A writer only pushes, so the list is whole even if one panicked.
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|known| &**known == name);
        let index = known.unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        Self(u32::try_from(index + 1).unwrap_or(u32::MAX))
    }

    /// What a slot remembers; 0 is no tag.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The name behind a slot's number.
    pub(crate) fn name(number: u32) -> Option<Arc<str>> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        NAMES.read().unwrap_or_else(PoisonError::into_inner).get(index).cloned()
    }
}
