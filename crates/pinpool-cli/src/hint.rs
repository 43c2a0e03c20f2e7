//! What to do about a command line that clap refuses, where clap itself cannot know.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::cmd::bench::all;

/// Adds how to run several scenarios where more than one was named.
pub(crate) fn of(mut error: Error) -> Error {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(refused)) = error.get(ContextKind::InvalidArg)
        && let Some(command) = several(&words, refused)
    {
        let tip = format!("to run several scenarios, use '{command}'");
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The command for all scenarios among the words, where the refused one is a scenario's name too.
fn several(words: &[String], refused: &str) -> Option<String> {
    let names = all::names();
    let is_name = |word: &str| names.contains(&word);
    if !is_name(refused) || !words.iter().any(|word| word == "bench") {
        return None;
    }
    let mut chosen: Vec<&str> = Vec::new();
    // Behind an option it could be that option's value.
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    for (before, word) in before.zip(words) {
        let is_argument = word == refused || !before.starts_with("--");
        if is_name(word) && is_argument && !chosen.contains(&word.as_str()) {
            chosen.push(word);
        }
    }
    let chosen = chosen.join(",");
    let size = words.iter().map(String::as_str).filter(|word| ["--quick", "--full"].contains(word));
    let command = ["pinpool bench all --only", &chosen].into_iter().chain(size);
    Some(command.collect::<Vec<&str>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_scenarios_are_one_command() {
        let of = |line: &str, refused| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            several(&words, refused)
        };
        let command = |line: &str, refused| of(line, refused).unwrap_or_default();
        assert_eq!(
            command("pinpool bench copy alloc copy --quick", "alloc"),
            "pinpool bench all --only copy,alloc --quick"
        );
        assert_eq!(command("pinpool bench all lease", "lease"), "pinpool bench all --only lease");
        assert_eq!(
            command("pinpool bench copy --json frames alloc", "alloc"),
            "pinpool bench all --only copy,alloc"
        );
        assert_eq!(
            command("pinpool bench copy --quick alloc", "alloc"),
            "pinpool bench all --only copy,alloc --quick"
        );
        assert_eq!(of("pinpool bench copy dance", "dance"), None);
        assert_eq!(of("pinpool plan copy alloc", "alloc"), None);
    }
}
