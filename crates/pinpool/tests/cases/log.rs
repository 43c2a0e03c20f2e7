//! What the library logs while these tests run, kept so that a test can look for its own lines.

use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// All lines so far, from the first call of [`lines`] on.
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Begins to listen.
pub(crate) fn listen() {
    static LISTENS: OnceLock<()> = OnceLock::new();
    LISTENS.get_or_init(|| {
        tracing::subscriber::set_global_default(Listener).expect("the only one");
    });
}

/// The lines of this level that name `word`: tests run side by side.
pub(crate) fn lines(level: Level, word: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    let mine = lines.iter().filter(|(of, line)| *of == level && line.contains(word));
    mine.map(|(_, line)| line.clone()).collect()
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pinpool") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
