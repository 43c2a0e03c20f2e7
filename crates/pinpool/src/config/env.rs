//! `PINPOOL_*` variables into a layer. A misspelled one is refused like a misspelled key.

use super::layer::{CLASS_KEYS, ClassLayer, Layer, POOL_KEYS};
use super::value::Raw;
use crate::error::{ConfigError, Origin};

/// Reads the variables: `PINPOOL_<KEY>` for a key of `[pool]`, and `PINPOOL_CLASS_<NAME>_<KEY>`
/// for one of an existing class, its name in capitals with every other character than letters and
/// digits written as `_`.
pub(crate) fn read(
    variables: impl Iterator<Item = (String, String)>,
    class_names: &[String],
) -> Result<Layer, ConfigError> {
    let mut layer = Layer::default();
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        let raw = Raw::Text(value.trim());
        let result = match name.strip_prefix("CLASS_") {
            Some(rest) => {
                let (class, key) = class_and_key(&variable, rest, class_names)?;
                if !layer.classes.iter().any(|known| known.name == class) {
                    layer.classes.push(ClassLayer { name: class.clone(), ..ClassLayer::default() });
                }
                let known = layer.classes.iter_mut().find(|known| known.name == class);
                known.map_or(Ok(()), |known| known.set(key, raw))
            }
            // A variable in other letters is another variable, and two must not mean one key.
            None if name == name.to_ascii_uppercase() => layer.set(&name.to_ascii_lowercase(), raw),
            None => return Err(unknown(&variable)),
        };
        result.map_err(|bad| {
            if bad.problem.starts_with("unknown key") {
                return unknown(&variable);
            }
            let error = ConfigError::new(Origin::Environment(variable.clone()), bad.problem);
            if bad.valid.is_empty() { error } else { error.nearest(&bad.wrong, bad.valid) }
        })?;
    }
    Ok(layer)
}

/// Which class and key `PINPOOL_CLASS_<rest>` means.
fn class_and_key(
    variable: &str,
    rest: &str,
    class_names: &[String],
) -> Result<(String, &'static str), ConfigError> {
    let key = CLASS_KEYS[1..]
        .iter()
        .find(|key| rest.ends_with(&format!("_{}", key.to_ascii_uppercase())))
        .ok_or_else(|| unknown(variable))?;
    let wanted = &rest[..rest.len() - key.len() - 1];
    let matching: Vec<_> = class_names.iter().filter(|name| spelled(name) == wanted).collect();
    match matching[..] {
        [class] => Ok((class.clone(), key)),
        [] => {
            let spellings: Vec<_> = class_names.iter().map(|name| spelled(name)).collect();
            let valid: Vec<_> = spellings.iter().map(String::as_str).collect();
            let problem = format!("there is no class '{wanted}'");
            let error = ConfigError::new(Origin::Environment(variable.into()), problem);
            Err(if valid.is_empty() {
                error.help("a variable changes a class that the file or the builder defines")
            } else {
                error.nearest(wanted, &valid)
            })
        }
        _ => Err(ConfigError::new(
            Origin::Environment(variable.into()),
            format!(
                "it means several classes: {}",
                matching.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" and ")
            ),
        )
        .help("rename one of them")),
    }
}

/// A class name as a variable spells it.
fn spelled(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

fn unknown(variable: &str) -> ConfigError {
    // Compared without the prefix, which all of them share.
    let keys: Vec<String> = POOL_KEYS
        .iter()
        .map(|key| key.to_ascii_uppercase())
        .chain(
            CLASS_KEYS[1..].iter().map(|key| format!("CLASS_<NAME>_{}", key.to_ascii_uppercase())),
        )
        .collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    ConfigError::new(Origin::Environment(variable.into()), "unknown variable").nearest_prefixed(
        PREFIX,
        variable.strip_prefix(PREFIX).unwrap_or(variable),
        &keys,
    )
}

const PREFIX: &str = "PINPOOL_";
