//! `cargo xtask book`: the pages of docs/ as one site.
//!
//! mdBook knows only what is below its source folder, and our pages link to programs and manifests elsewhere in the
//! repository. So we copy the pages and everything that they link to, each at its place, and build from the copy.

mod pages;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::pages::{Link, Page, is_page};
use crate::sh::{self, root};
use crate::tools;

const SUMMARY: &str = "docs/SUMMARY.md";
const DECISIONS: &str = "docs/decisions";
const SETTINGS: &str = "[book]\ntitle = \"tidelock\"\nlanguage = \"en\"\nsrc = \"src\"\n\n\
    [build]\nbuild-dir = \"site\"\ncreate-missing = false\n\n[output.html]\nno-section-label = true\n";

pub(crate) fn run() -> Result<()> {
    let pages = build()?;
    println!("target/book/site/index.html has {pages} pages");
    Ok(())
}

/// Builds the site, and returns how many pages it has.
pub(crate) fn build() -> Result<usize> {
    let book = Book::read(&root())?;
    let wrong = book.wrong(&root())?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let folder = root().join("target/book");
    // A page that has been removed must not stay in the site.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    book.copy(&root(), &folder)?;
    let mdbook = tools::mdbook()?;
    let folder = folder.to_string_lossy();
    sh::quiet(sh::command(&mdbook.to_string_lossy(), &["build", &folder]))?;
    Ok(book.pages.len())
}

/// The pages of the book, by their paths in the repository, and its table of contents.
struct Book {
    summary: String,
    pages: Vec<Page>,
}

impl Book {
    fn read(root: &Path) -> Result<Self> {
        let mut summary = Page::read(root, SUMMARY)?;
        let decisions = decisions(root)?;
        summary.text += &decisions.text;
        let pages = summary.links().into_iter().map(|link| link.path);
        let pages: Vec<Page> = pages
            .map(|path| Page::read(root, &path).with_context(|| format!("a page of {SUMMARY}")))
            .collect::<Result<_>>()?;
        Ok(Self {
            // mdBook wants the table of contents at the head of the source folder.
            summary: summary
                .text
                .replace("](", "](docs/")
                .replace("](docs/../", "]("),
            pages,
        })
    }

    /// The pages of docs/ that are not in the book, and the links that lead nowhere.
    fn wrong(&self, root: &Path) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let named: BTreeSet<&str> = self.pages.iter().map(|page| &*page.path).collect();
        for path in pages::below(root, "docs")? {
            if path != SUMMARY && !named.contains(&*path) {
                wrong.push(format!("{path} is not in {SUMMARY}"));
            }
        }
        for page in &self.pages {
            for link in page.links() {
                let why = if !root.join(&link.path).exists() {
                    "is not there"
                } else if is_page(&link.path) && !link.is_found(root)? {
                    "has no such heading"
                } else {
                    continue;
                };
                let heading = link.heading.map(|it| format!("#{it}")).unwrap_or_default();
                wrong.push(format!("{}: {}{heading} {why}", page.path, link.path));
            }
        }
        Ok(wrong)
    }

    /// Writes the source of the site: the pages, the files that they link to, and mdBook's settings.
    fn copy(&self, root: &Path, to: &Path) -> Result<()> {
        let source = to.join("src");
        let put = |path: &str, text: &[u8]| -> Result<()> {
            let file = source.join(path);
            fs::create_dir_all(file.parent().unwrap_or(&source))?;
            fs::write(file, text).with_context(|| path.to_owned())
        };
        let named: BTreeSet<&str> = self.pages.iter().map(|page| &*page.path).collect();
        // Neither a folder nor a page that is not in the book has a place in the site.
        let is_file = |path: &str| !is_page(path) && root.join(path).is_file();
        let is_there = |link: &Link| named.contains(&*link.path) || is_file(&link.path);
        for page in &self.pages {
            put(&page.path, page.for_site(is_there).as_bytes())?;
            for link in page.links().iter().filter(|link| is_file(&link.path)) {
                put(&link.path, &fs::read(root.join(&link.path))?)?;
            }
        }
        put("SUMMARY.md", self.summary.as_bytes())?;
        fs::write(to.join("book.toml"), SETTINGS)?;
        Ok(())
    }
}

/// The last part of the table of contents. Nobody has to write it: the names of the files are in order.
fn decisions(root: &Path) -> Result<Page> {
    let mut text = "\n# Decisions\n\n".to_owned();
    for path in pages::below(root, DECISIONS)? {
        let page = Page::read(root, &path)?;
        let title = page.text.lines().next().unwrap_or_default();
        let file = path.trim_start_matches("docs/");
        let _ = writeln!(text, "- [{}]({file})", title.trim_start_matches("# "));
    }
    Ok(Page {
        path: SUMMARY.to_owned(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_in_the_book_and_no_link_is_dead() {
        let book = Book::read(&root()).unwrap();
        let wrong = book.wrong(&root()).unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(book.summary.contains("](docs/tutorial.md)"));
        assert!(book.summary.contains("](README.md)"));
    }
}
