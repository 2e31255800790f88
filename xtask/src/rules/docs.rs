//! Doc comments: public modules, types, traits and functions have one; none opens with a word that stands for a noun.
//!
//! A field or a variant that explains itself is left bare, which the compiler's `missing_docs` does not allow.

use std::ops::Range;

use syn::visit::{self, Visit};
use syn::{Attribute, Visibility};

use crate::finding::Finding;
use crate::tree::{RustFile, Tree};

const RULE: &str = "docs";

/// Openings of a sentence whose reader has to guess the noun.
const RIDDLES: &[&str] = &["What", "How", "Who", "Which", "It", "That", "Whether"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().iter().flat_map(|file| [missing(file), riddles(file)].concat()).collect()
}

/// Finds public items without a doc comment, in what is compiled for users.
fn missing(file: &RustFile) -> Vec<Finding> {
    let in_a_crate = file.path.starts_with("crates/") && file.path.contains("/src/");
    let mut items = Items { path: &file.path, findings: Vec::new() };
    if in_a_crate {
        items.visit_file(&file.syntax);
    }
    items.findings
}

struct Items<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Items<'_> {
    fn ask(&mut self, visibility: &Visibility, attributes: &[Attribute], name: &syn::Ident) {
        if matches!(visibility, Visibility::Public(_)) {
            self.ask_of_all(attributes, name);
        }
    }

    fn ask_of_all(&mut self, attributes: &[Attribute], name: &syn::Ident) {
        // The attribute of a macro's argument writes the docs.
        if !attributes.iter().any(|it| it.path().is_ident("doc")) {
            self.findings.push(Finding::new(
                RULE,
                self.path,
                name.span().start().line,
                format!("`{name}` is public and has no docs"),
                "say in a sentence what it is or does",
            ));
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let of_tests = |it: &Attribute| {
        it.path().is_ident("cfg")
            && it.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    };
    attributes.iter().any(of_tests)
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        // The docs of a module in a file stand there.
        if item.content.is_some() {
            self.ask(&item.vis, &item.attrs, &item.ident);
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.ask(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.ask(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.ask(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.ask(&item.vis, &item.attrs, &item.ident);
        if matches!(item.vis, Visibility::Public(_)) {
            visit::visit_item_trait(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.ask_of_all(&item.attrs, &item.sig.ident);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.ask(&item.vis, &item.attrs, &item.sig.ident);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.ask(&item.vis, &item.attrs, &item.sig.ident);
    }
}

/// Finds doc comments that open with one of [`RIDDLES`].
fn riddles(file: &RustFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let opens = |block: Range<usize>| {
        let first = lines[block.clone()].iter().find_map(|line| words(line).next())?;
        let word = first.trim_end_matches([',', ':', '\'']);
        RIDDLES.contains(&word).then(|| {
            Finding::new(
                RULE,
                &file.path,
                block.start + 1,
                format!("a doc comment opens with `{word}`"),
                "begin with the noun that it stands for, or with the verb of a function",
            )
        })
    };
    blocks(&lines).into_iter().filter_map(opens).collect()
}

/// Returns the words of a line of a doc comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.trim_start().trim_start_matches(['/', '!']).split_whitespace()
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    (line.starts_with("///") && !line.starts_with("////")) || line.starts_with("//!")
}

/// Returns the runs of adjacent lines of doc comments, by index.
fn blocks(lines: &[&str]) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for at in (0..lines.len()).filter(|at| is_doc(lines[*at])) {
        match blocks.last_mut() {
            Some(block) if block.end == at => block.end += 1,
            _ => blocks.push(at..at + 1),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, expected: &[&str]) {
        let findings = check(&Tree::of(&[("crates/a/src/lib.rs", text)]));
        let found: Vec<String> =
            findings.iter().map(|it| format!("{}: {}", it.line, it.wrong)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn public_items_have_docs_and_fields_need_none() {
        check_text("pub fn f() {}\n", &["1: `f` is public and has no docs"]);
        check_text("/// Frees.\npub fn f() {}\nfn g() {}\npub(crate) struct P;\n", &[]);
        check_text("/// A cell.\npub struct S { pub a: u8 }\n", &[]);
        check_text("/// One.\npub enum E { A, B { c: u8 } }\n", &[]);
        check_text("pub trait T {\n/// Goes.\nfn g(); }", &["1: `T` is public and has no docs"]);
        check_text("/// A way.\npub trait T {\nfn g(); }", &["3: `g` is public and has no docs"]);
        check_text("impl S {\npub fn g() {}\n}", &["2: `g` is public and has no docs"]);
        check_text("#[cfg(test)]\nmod tests { pub fn g() {} }", &[]);
        check_text("pub type A = u8;\npub mod m;\n", &["1: `A` is public and has no docs"]);
        check_text("pub mod m { fn f() {} }\n", &["1: `m` is public and has no docs"]);
        let findings = check(&Tree::of(&[("crates/a/tests/it/main.rs", "pub fn f() {}\n")]));
        assert_eq!(findings, []);
    }

    #[test]
    fn a_doc_comment_opens_with_its_noun() {
        for word in RIDDLES {
            check_text(
                &format!("/// {word} happens.\nfn f() {{}}\n"),
                &[&format!("1: a doc comment opens with `{word}`")],
            );
        }
        check_text("/// Frees a run.\n/// What is left stays.\nfn f() {}\n", &[]);
        check_text("//!\n//! It, too.\n", &["1: a doc comment opens with `It`"]);
        check_text("// What is this\nfn f() {}\n//// What\n", &[]);
    }
}
