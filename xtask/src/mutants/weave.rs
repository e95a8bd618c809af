//! Writes many mutants of a file into one text, each behind a switch.
//!
//! `a == b` becomes `(if crate::mutant(7) { a != b } else { a == b })`. A comment before and after each changed part names
//! the mutant, so that an error of the compiler can be attributed to it: [`culprits`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Signature, Type};

use super::list::{Genre, Mutant, Position};

/// A part of the text that gets a switch.
struct Edit<'a> {
    /// In bytes of the original text.
    range: Range<usize>,
    /// The part that a mutant replaces.
    part: Range<usize>,
    genre: Genre,
    mutants: Vec<&'a Mutant>,
}

/// Returns the text with these mutants. Those for which there is no place are left out.
pub(super) fn weave(code: &str, mutants: &[&Mutant], switch: &str) -> Result<String> {
    let file = syn::parse_file(code).context("not Rust")?;
    let mut at: HashMap<Position, Vec<&Mutant>> = HashMap::new();
    for mutant in mutants {
        at.entry(mutant.start).or_default().push(mutant);
    }
    let mut places = Places {
        lines: Lines::new(code),
        at,
        edits: Vec::new(),
    };
    places.visit_file(&file);
    // The outer of two edits that begin at the same place comes first; an edit without width before all of them.
    let mut edits = places.edits;
    edits.sort_by_key(|edit| {
        let width = edit.range.len();
        (edit.range.start, width > 0, usize::MAX - width)
    });
    let weaver = Weaver {
        code,
        edits: &edits,
        switch,
    };
    Ok(weaver.text(0..code.len()))
}

/// Finds the places of the mutants in the syntax tree.
struct Places<'a> {
    lines: Lines<'a>,
    at: HashMap<Position, Vec<&'a Mutant>>,
    edits: Vec<Edit<'a>>,
}

impl<'a> Places<'a> {
    /// The mutants of this genre that begin where the span does.
    fn take(&mut self, span: proc_macro2::Span, genre: Genre) -> Vec<&'a Mutant> {
        let start = span.start();
        let here = self.at.get_mut(&(start.line, start.column + 1));
        here.map_or_else(Vec::new, |here| {
            here.extract_if(.., |mutant| mutant.genre == genre)
                .collect()
        })
    }

    fn add(
        &mut self,
        range: Range<usize>,
        part: Range<usize>,
        genre: Genre,
        mutants: Vec<&'a Mutant>,
    ) {
        if !mutants.is_empty() {
            self.edits.push(Edit {
                range,
                part,
                genre,
                mutants,
            });
        }
    }

    fn body(&mut self, signature: &Signature, block: &syn::Block) {
        let Some(first) = block.stmts.first() else {
            return;
        };
        let mutants = self.take(first.span(), Genre::Body);
        // A constant function cannot read the switch. The values that a function with an opaque type returns must have
        // one type.
        let opaque = matches!(&signature.output, ReturnType::Type(_, of) if matches!(**of, Type::ImplTrait(_)));
        if signature.constness.is_none() && !opaque {
            let start = self.lines.range(first.span()).start;
            self.add(start..start, start..start, Genre::Body, mutants);
        }
    }
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let mutants = self.take(expr.op.span(), Genre::Binary);
        // Neither `||` nor brackets may stand between the parts of a chain with `let`.
        if !has_let(expr) {
            let start = self.lines.range(expr.left.span()).start;
            let end = self.lines.range(expr.right.span()).end;
            let op = self.lines.range(expr.op.span());
            self.add(start..end, op, Genre::Binary, mutants);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let mutants = self.take(expr.op.span(), Genre::Unary);
        let op = self.lines.range(expr.op.span());
        let end = self.lines.range(expr.expr.span()).end;
        self.add(op.start..end, op, Genre::Unary, mutants);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        // cargo-mutants deletes arms if one arm is `_`. If that arm has a guard, what is left does not cover all values.
        let covers = |arm: &syn::Arm| matches!(arm.pat, syn::Pat::Wild(_)) && arm.guard.is_none();
        if !expr.arms.iter().any(covers) {
            for arm in &expr.arms {
                self.take(arm.span(), Genre::Arm);
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            let mutants = self.take(guard.span(), Genre::Guard);
            let range = self.lines.range(guard.span());
            self.add(range.clone(), range, Genre::Guard, mutants);
        }
        let mutants = self.take(arm.span(), Genre::Arm);
        let end = self.lines.range(arm.pat.span()).end;
        self.add(end..end, end..end, Genre::Arm, mutants);
        visit::visit_arm(self, arm);
    }
}

fn has_let(expr: &syn::ExprBinary) -> bool {
    let of = |side: &Expr| match side {
        Expr::Let(_) => true,
        Expr::Binary(inner) => matches!(inner.op, BinOp::And(_)) && has_let(inner),
        _ => false,
    };
    of(&expr.left) || of(&expr.right)
}

/// Where the lines of a text begin.
struct Lines<'a> {
    code: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(code: &'a str) -> Self {
        let ends = code.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            code,
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// The bytes of a span.
    fn range(&self, span: proc_macro2::Span) -> Range<usize> {
        self.byte(span.start())..self.byte(span.end())
    }

    fn byte(&self, at: proc_macro2::LineColumn) -> usize {
        let start = self.starts.get(at.line - 1).copied().unwrap_or_default();
        let line = self.code.get(start..).unwrap_or_default();
        let column = line.char_indices().nth(at.column);
        start + column.map_or(line.len(), |(byte, _)| byte)
    }
}

struct Weaver<'a> {
    code: &'a str,
    /// By their start, the outer before the inner.
    edits: &'a [Edit<'a>],
    switch: &'a str,
}

impl Weaver<'_> {
    /// The text of this range, with the edits inside it.
    fn text(&self, range: Range<usize>) -> String {
        self.text_from(0, range)
    }

    /// As [`Self::text`], with the edits from this index on.
    fn text_from(&self, first: usize, range: Range<usize>) -> String {
        let mut text = String::new();
        let mut at = range.start;
        for (index, edit) in self.edits.iter().enumerate().skip(first) {
            if edit.range.start > range.end {
                break;
            }
            let inside = edit.range.start >= at && edit.range.end <= range.end;
            if inside {
                text.push_str(&self.code[at..edit.range.start]);
                self.write(&mut text, index, edit);
                at = edit.range.end;
            }
        }
        text.push_str(&self.code[at..range.end]);
        text
    }

    fn write(&self, text: &mut String, index: usize, edit: &Edit<'_>) {
        let ids: Vec<String> = edit.mutants.iter().map(|it| it.id.to_string()).collect();
        let switch = self.switch;
        let _ = write!(text, "/*#{}*/", ids.join(","));
        match edit.genre {
            Genre::Body => {
                for Mutant {
                    id, replacement, ..
                } in &edit.mutants
                {
                    let _ = write!(
                        text,
                        "if {switch}({id}) {{ return /*@{id}*/{replacement}/*@*/; }} "
                    );
                }
            }
            Genre::Arm => {
                let all = ids.iter().map(|id| format!("!{switch}({id})"));
                let _ = write!(text, " if {} ", all.collect::<Vec<_>>().join(" && "));
            }
            Genre::Binary | Genre::Unary | Genre::Guard | Genre::Other => {
                text.push('(');
                for Mutant {
                    id, replacement, ..
                } in &edit.mutants
                {
                    let before = &self.code[edit.range.start..edit.part.start];
                    let after = &self.code[edit.part.end..edit.range.end];
                    let _ = write!(
                        text,
                        "if {switch}({id}) {{ /*@{id}*/{before}{replacement}{after}/*@*/ }} else "
                    );
                }
                let original = self.text_from(index + 1, edit.range.clone());
                let _ = write!(text, "{{ {original} }})");
            }
        }
        text.push_str("/*#*/");
    }
}

/// The mutants to which an error at this place of a woven text belongs: of the innermost switch around it, or else of the
/// last one before it.
pub(super) fn culprits(woven: &str, place: Range<usize>) -> Vec<u32> {
    let mut open: Vec<(usize, Vec<u32>)> = Vec::new();
    let mut best: Option<(usize, Vec<u32>)> = None;
    let mut last = Vec::new();
    for (at, _) in woven.match_indices("/*") {
        let mark = &woven[at + 2..];
        let Some(kind) = mark.chars().next().filter(|kind| "#@".contains(*kind)) else {
            continue;
        };
        let Some((ids, _)) = mark[1..].split_once("*/") else {
            continue;
        };
        let ids: Vec<u32> = ids.split(',').filter_map(|id| id.parse().ok()).collect();
        if ids.is_empty() {
            let Some((start, ids)) = open.pop() else {
                continue;
            };
            let around = start <= place.start && place.end <= at + 5;
            // Inner ones end first, so the first that fits is the innermost.
            if around && best.as_ref().is_none_or(|(width, _)| at - start < *width) {
                best = Some((at - start, ids));
            }
        } else {
            if at <= place.start && kind == '#' {
                last.clone_from(&ids);
            }
            open.push((at, ids));
        }
    }
    best.map_or(last, |(_, ids)| ids)
}

#[cfg(test)]
#[path = "weave_tests.rs"]
mod tests;
