//! Pages in Markdown: their links and headings.

use std::fs;
use std::path::{Component, Path};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page, by its path in the repository.
pub(super) struct Page {
    pub(super) path: String,
    pub(super) text: String,
}

/// A link to a file of the repository, perhaps to a heading in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) path: String,
    pub(super) heading: Option<String>,
}

impl Page {
    pub(super) fn read(root: &Path, path: &str) -> Result<Self> {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }

    /// The links and images of the page that are files of the repository.
    pub(super) fn links(&self) -> Vec<Link> {
        let targets = parse(&self.text).filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url)
            }
            _ => None,
        });
        let inside = targets.filter(|target| !target.contains(':'));
        inside.map(|target| self.resolve(&target)).collect()
    }

    /// The text for mdBook: links whose target is not in the site are only their text, and those to a README name the
    /// page that mdBook makes of it.
    pub(super) fn for_site(&self, is_there: impl Fn(&Link) -> bool) -> String {
        let mut text = String::new();
        let mut copied = 0;
        for (event, range) in parse(&self.text).into_offset_iter() {
            let Event::Start(Tag::Link { dest_url, .. }) = event else {
                continue;
            };
            let link = &self.text[range.clone()];
            let Some((label, _)) = link.split_once("](").filter(|_| !dest_url.contains(':')) else {
                continue;
            };
            text += &self.text[copied..range.start];
            text += &if is_there(&self.resolve(&dest_url)) {
                link.replace("README.md", "index.md")
            } else {
                label[1..].to_owned()
            };
            copied = range.end;
        }
        text + &self.text[copied..]
    }

    fn resolve(&self, target: &str) -> Link {
        let (file, heading) = match target.split_once('#') {
            Some((file, heading)) => (file, Some(heading.to_owned())),
            None => (target, None),
        };
        let path = if file.is_empty() {
            self.path.clone()
        } else {
            let folder = Path::new(&self.path).parent().unwrap_or(Path::new(""));
            normal(&folder.join(file))
        };
        Link { path, heading }
    }

    /// The headings as a link names them: in lower case, with `-` for spaces, and without punctuation.
    fn headings(&self) -> Vec<String> {
        let mut headings: Vec<String> = Vec::new();
        let mut heading: Option<String> = None;
        for event in parse(&self.text) {
            match (event, &mut heading) {
                (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
                (Event::End(TagEnd::Heading(_)), _) => headings.extend(heading.take()),
                (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
                _ => {}
            }
        }
        let as_name = |heading: String| {
            let named = heading.trim().to_lowercase().replace(' ', "-");
            named
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
                .collect()
        };
        headings.into_iter().map(as_name).collect()
    }
}

impl Link {
    /// Whether the page has the heading that the link names.
    pub(super) fn is_found(&self, root: &Path) -> Result<bool> {
        match &self.heading {
            None => Ok(true),
            Some(heading) => Ok(Page::read(root, &self.path)?.headings().contains(heading)),
        }
    }
}

pub(super) fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "md")
}

/// The pages of a folder and of the folders below it, in order.
pub(super) fn below(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(below(root, &path)?);
        } else if is_page(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// The path without `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_of_a_page_are_found() {
        let text = "# A *b* `c_d`: e\n\n[x](../README.md#see-it) [y](#a-b-c_d-e) [z](https://h) `[no](code.md)`\n\n\
                    ```text\n[no](block.md)\n# no\n```\n\n| [t](stores/x.md) |\n| --- |\n| ![i](i.svg) |\n";
        let page = Page {
            path: "docs/page.md".to_owned(),
            text: text.to_owned(),
        };
        let links = page.links();
        let links: Vec<(&str, Option<&str>)> = links
            .iter()
            .map(|link| (&*link.path, link.heading.as_deref()))
            .collect();
        assert_eq!(
            links,
            [
                ("README.md", Some("see-it")),
                ("docs/page.md", Some("a-b-c_d-e")),
                ("docs/stores/x.md", None),
                ("docs/i.svg", None),
            ]
        );
        assert_eq!(page.headings(), ["a-b-c_d-e"]);
        let for_site = page.for_site(|link| link.path == "README.md");
        assert!(for_site.contains("[x](../index.md#see-it) y [z](https://h) `[no](code.md)`"));
        assert!(for_site.contains("| t |\n| --- |\n| ![i](i.svg) |"));
    }
}
