//! TOML text into a layer, with the key, the line and the nearest valid name in every refusal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layer::{CLASS_KEYS, ClassLayer, Layer, POOL_KEYS};
use super::value::{BadValue, Raw};
use crate::error::{ConfigError, Error, Origin};

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Layer, Error> {
    let refuse = |problem: String| {
        ConfigError::new(Origin::File { path: Some(path.into()), line: 0 }, problem)
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| refuse(format!("cannot read the configuration: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(
            refuse(format!("longer than {FILE_BYTES_MAX} bytes: not a configuration")).into()
        );
    }
    parse(&text, Some(path))
}

/// Reads text; `path` is for messages only.
pub(crate) fn parse(text: &str, path: Option<&Path>) -> Result<Layer, Error> {
    let source = Source { text, path: path.map(Path::to_path_buf) };
    let table = DeTable::parse(text)
        .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message().to_owned()))?;
    source.layer(table.get_ref()).map_err(Error::from)
}

/// The text with its name, for places.
struct Source<'t> {
    text: &'t str,
    path: Option<PathBuf>,
}

impl Source<'_> {
    fn layer(&self, root: &DeTable<'_>) -> Result<Layer, ConfigError> {
        let mut layer = Layer::default();
        for (key, value) in root {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("pool", DeValue::Table(table)) => self.pool(&mut layer, table)?,
                ("pool", _) => {
                    return Err(self.error(key.span(), "'pool' is a table: write [pool]".into()));
                }
                ("class", DeValue::Array(classes)) => {
                    for class in classes {
                        let DeValue::Table(table) = class.get_ref() else {
                            return Err(self.error(class.span(), CLASS_IS_TABLE.into()));
                        };
                        layer.classes.push(self.class(class.span(), table)?);
                    }
                }
                ("class", _) => return Err(self.error(key.span(), CLASS_IS_TABLE.into())),
                (wrong, _) => return Err(self.unknown_section(key.span(), wrong)),
            }
        }
        self.refuse_duplicates(root)?;
        Ok(layer)
    }

    fn pool(&self, layer: &mut Layer, table: &DeTable<'_>) -> Result<(), ConfigError> {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if !POOL_KEYS.contains(&name) && CLASS_KEYS.contains(&name) {
                let problem = format!("key '{name}' does not belong in [pool]");
                return Err(self.error(key.span(), problem).help("move it under a [[class]]"));
            }
            let set = match value.get_ref() {
                DeValue::Array(devices) if name == "device" => {
                    layer.set_devices(devices.iter().map(raw))
                }
                _ => layer.set(name, raw(value)),
            };
            set.map_err(|bad| self.bad_value(key, value, bad))?;
        }
        Ok(())
    }

    fn class(&self, span: Range<usize>, table: &DeTable<'_>) -> Result<ClassLayer, ConfigError> {
        let mut class = ClassLayer::default();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if !CLASS_KEYS.contains(&name) && POOL_KEYS.contains(&name) {
                let problem = format!("key '{name}' does not belong in [[class]]");
                return Err(self.error(key.span(), problem).help("move it under [pool]"));
            }
            class.set(name, raw(value)).map_err(|bad| self.bad_value(key, value, bad))?;
        }
        let missing: Vec<_> = [
            ("name", class.name.is_empty()),
            ("size (or frame)", class.size.is_none()),
            ("count", class.count.is_none()),
        ]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
        if missing.is_empty() {
            Ok(class)
        } else {
            let name = if class.name.is_empty() { "without a name" } else { &class.name };
            let problem = format!("class {name}: missing {}", missing.join(" and "));
            Err(self.error(span, problem).help("a [[class]] needs name, size or frame, and count"))
        }
    }

    fn unknown_section(&self, span: Range<usize>, wrong: &str) -> ConfigError {
        for (keys, place) in [(&POOL_KEYS[..], "[pool]"), (&CLASS_KEYS[..], "[[class]]")] {
            if keys.contains(&wrong) {
                let problem = format!("key '{wrong}' stands outside any table");
                return self.error(span, problem).help(format!("move it under {place}"));
            }
        }
        self.error(span, format!("unknown key '{wrong}'")).nearest(wrong, &["pool", "class"])
    }

    /// Two classes of one name would silently become one.
    fn refuse_duplicates(&self, root: &DeTable<'_>) -> Result<(), ConfigError> {
        let classes = root.iter().find(|(key, _)| key.get_ref() == "class");
        let Some(DeValue::Array(classes)) = classes.map(|(_, value)| value.get_ref()) else {
            return Ok(());
        };
        let mut first_place = BTreeMap::new();
        for class in classes {
            let name = class.get_ref().get("name").and_then(|name| name.get_ref().as_str());
            let Some(name) = name else { continue };
            if let Some(first) = first_place.insert(name.to_owned(), class.span().start) {
                let first = self.line(first);
                let problem = format!("class '{name}' was given already, in line {first}");
                return Err(self.error(class.span(), problem).help("give each class its own name"));
            }
        }
        Ok(())
    }

    fn bad_value(
        &self,
        key: &Spanned<toml::de::DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
        bad: BadValue,
    ) -> ConfigError {
        let name = key.get_ref();
        if bad.problem.starts_with("unknown key") {
            return self.error(key.span(), bad.problem).nearest(&bad.wrong, bad.valid);
        }
        let error = self.error(value.span(), format!("key '{name}': {}", bad.problem));
        if bad.valid.is_empty() { error } else { error.nearest(&bad.wrong, bad.valid) }
    }

    fn error(&self, span: Range<usize>, problem: String) -> ConfigError {
        let line = self.line(span.start);
        ConfigError::new(Origin::File { path: self.path.clone(), line }, problem)
    }

    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        before.split(|byte| *byte == b'\n').count()
    }
}

fn raw<'a>(value: &'a Spanned<DeValue<'_>>) -> Raw<'a> {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text),
        DeValue::Integer(number) => {
            Raw::Integer(i128::from_str_radix(number.as_str(), number.radix()).ok())
        }
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Float(_) => Raw::Other("a number with a fraction"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(_) => Raw::Other("a list"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

/// 255 classes with comments need far less.
const FILE_BYTES_MAX: u64 = 1 << 20;

const CLASS_IS_TABLE: &str = "'class' is a list of tables: write [[class]]";
