//! Reads the tags of a page as strictly as XML, so that a browser has nothing to mend.

/// Tags that have no end.
const VOID: [&str; 2] = ["meta", "link"];

/// A tag's name and its attributes.
#[derive(Debug)]
pub(crate) struct Tag<'a> {
    pub(crate) name: &'a str,
    pub(crate) attributes: Vec<(&'a str, &'a str)>,
}

impl Tag<'_> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

/// All tags of a page that begin something, after checking that each ends where it should.
pub(crate) fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    while let Some((text, behind)) = rest.split_once('<') {
        assert!(open.last() == Some(&"style") || !text.contains('>'), "a stray > in {text:?}");
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;", "apos;"];
            assert!(known.iter().any(|known| entity.starts_with(known)), "a stray & in {text:?}");
        }
        let (tag, behind) = behind.split_once('>').expect("an end of each tag");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "an end of another tag");
            continue;
        }
        let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split_whitespace().next().expect("a name of each tag");
        if !is_closed && !VOID.contains(&name) {
            open.push(name);
        }
        tags.push(Tag { name, attributes: attributes(tag[name.len()..].trim()) });
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "not ended: {open:?}, {rest:?}");
    tags
}

fn attributes(mut text: &str) -> Vec<(&str, &str)> {
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    while let Some((name, behind)) = text.split_once("=\"") {
        let (value, behind) = behind.split_once('"').expect("an end of each value");
        assert!(!attributes.iter().any(|(other, _)| *other == name), "{name} twice");
        attributes.push((name, value));
        text = behind.trim_start();
    }
    assert_eq!(text, "", "an attribute without a value");
    attributes
}
