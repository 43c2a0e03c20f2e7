//! Names for the holders of leases, kept as numbers; one list for the whole process, so that a name
//! means the same in every pool.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::sync::plain::{AtomicPtr, Ordering};

/// A name for the holder of a lease, from [`Pool::tag`](crate::Pool::tag).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u32);

/// The last name given, which leads to all others. They are never freed: a tag names a stage of a
/// pipeline, not a frame.
///
/// No lock guards them: a fork may catch another thread in the middle, and the child would wait for ever
/// (I12). `Release` in `new` pairs with `Acquire` in `last`: publishes a name whole.
static LAST: AtomicPtr<Named> = AtomicPtr::new(null_mut());

/// One name.
struct Named {
    name: Arc<str>,
    /// One more than that of the name before; the first is 1.
    number: u32,
    before: Option<&'static Named>,
}

impl Tag {
    /// The tag of a name; the same name always gives the same tag.
    pub(crate) fn new(name: &str) -> Self {
        let mut fresh: Option<Box<Named>> = None;
        loop {
            let last = last();
            let known = all(last).find(|known| &*known.name == name);
            if let Some(known) = known {
                return Self(known.number);
            }
            let number = last.map_or(0, |last| last.number).saturating_add(1);
            let name = fresh.map_or_else(|| name.into(), |fresh| fresh.name);
            let ours = Box::into_raw(Box::new(Named { name, number, before: last }));
            let seen = last.map_or(null_mut(), |last| std::ptr::from_ref(last).cast_mut());
            match LAST.compare_exchange(seen, ours, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Self(number),
                // SAFETY: made above, and not published.
                Err(_) => fresh = Some(unsafe { Box::from_raw(ours) }),
            }
        }
    }

    /// What a slot remembers; 0 is no tag.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The name behind a slot's number.
    pub(crate) fn name(number: u32) -> Option<Arc<str>> {
        if number == 0 {
            return None;
        }
        let named = all(last()).find(|named| named.number == number)?;
        Some(Arc::clone(&named.name))
    }
}

/// The last name given.
fn last() -> Option<&'static Named> {
    // SAFETY: a name is published whole, read-only from then on, and never freed.
    unsafe { LAST.load(Ordering::Acquire).as_ref() }
}

/// This name and all before it.
fn all(last: Option<&'static Named>) -> impl Iterator<Item = &'static Named> {
    std::iter::successors(last, |named| named.before)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_name_at_once_agree() {
        let names: Vec<_> = (0..40).map(|name| format!("stage {name}")).collect();
        let tags: Vec<Vec<Tag>> = std::thread::scope(|scope| {
            let name = || names.iter().map(|name| Tag::new(name)).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(name)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        assert_eq!(tags.len(), 4);
        for (place, name) in names.iter().enumerate() {
            assert!(tags.iter().all(|own| own[place] == tags[0][place]), "one tag a name");
            assert_eq!(Tag::name(tags[0][place].number()).as_deref(), Some(name.as_str()));
        }
        assert_eq!(Tag::name(0), None);
        assert_eq!(Tag::name(u32::MAX), None);
    }
}
