//! Every public function of the library that takes numbers stands in the test of their ends.
//!
//! Sizes, counts, page numbers and addresses come from callers, and the last of them overflow first. A function is
//! named in the crate's `tests/it/extremes.rs`, one without `self` with its type: what is tested there is for the test
//! to say. Left out are unsafe functions, whose callers promise what they pass, the methods of traits, and lists of
//! bytes: they are what a file says, which the fuzz targets try.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{FnArg, GenericArgument, ImplItem, Item, PathArguments, Signature, Type, Visibility};

use crate::finding::Finding;
use crate::tree::{RustFile, Tree};

const RULE: &str = "extremes";
const CRATES: &[&str] = &["crates/nofrag/", "crates/nofrag-backing/", "crates/nofrag-host/"];
const TEST: &str = "tests/it/extremes.rs";

/// Types whose values are numbers that a caller chooses.
const NUMBERS: &[&str] = &[
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "isize",
    "Nanos",
    "PageCount",
    "Pfn",
    "Va",
    "Vpn",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    CRATES.iter().flat_map(|folder| check_crate(tree, folder)).collect()
}

fn check_crate(tree: &Tree, folder: &str) -> Vec<Finding> {
    let source = format!("{folder}src/");
    let text = tree.text(&format!("{folder}{TEST}")).unwrap_or_default();
    let tokens: TokenStream = text.parse().unwrap_or_default();
    let mut words = BTreeSet::new();
    collect_words(tokens, &mut words);
    let files = tree.rust().iter().filter(|file| file.path.starts_with(&source));
    files.flat_map(|file| check_file(file, text, &words)).collect()
}

/// Collects all identifiers among the tokens.
fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => _ = words.insert(word.to_string()),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn check_file(file: &RustFile, text: &str, words: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut look = |owner: Option<&str>, signature: &Signature| {
        let name = signature.ident.to_string();
        let path = owner.filter(|_| signature.receiver().is_none());
        let path = path.map(|owner| format!("{owner}::{name}"));
        let is_named = path.as_ref().map_or(words.contains(&name), |path| text.contains(path));
        if takes_numbers(signature) && !is_named {
            let wrong =
                format!("`{}` is not tried at the ends of its numbers", path.unwrap_or(name));
            let remedy = format!("call it with 0, 1 and the last numbers in {TEST}");
            let line = signature.ident.span().start().line;
            findings.push(Finding::new(RULE, &file.path, line, wrong, remedy));
        }
    };
    for item in &file.syntax.items {
        match item {
            Item::Fn(one) if is_public(&one.vis) => look(None, &one.sig),
            Item::Impl(block) if block.trait_.is_none() => {
                let Type::Path(owner) = &*block.self_ty else { continue };
                let owner = owner.path.segments.last().map(|last| last.ident.to_string());
                for inner in &block.items {
                    if let ImplItem::Fn(method) = inner
                        && is_public(&method.vis)
                    {
                        look(owner.as_deref(), &method.sig);
                    }
                }
            }
            _ => {}
        }
    }
    findings
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn takes_numbers(signature: &Signature) -> bool {
    let is_number = |argument: &FnArg| match argument {
        FnArg::Typed(argument) => has_number(&argument.ty),
        FnArg::Receiver(_) => false,
    };
    signature.unsafety.is_none() && signature.inputs.iter().any(is_number)
}

/// Returns true if values of the type hold numbers; those that a function gets are not the caller's.
fn has_number(of: &Type) -> bool {
    let mut numbers = Numbers(false);
    numbers.visit_type(of);
    numbers.0
}

fn is_byte(of: &Type) -> bool {
    matches!(of, Type::Path(path) if path.path.is_ident("u8"))
}

/// True once a type of numbers was seen.
struct Numbers(bool);

impl<'a> Visit<'a> for Numbers {
    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        let is_bytes = |argument: &GenericArgument| matches!(argument, GenericArgument::Type(of) if is_byte(of));
        if let PathArguments::AngleBracketed(of) = &segment.arguments
            && segment.ident == "Vec"
            && of.args.iter().any(is_bytes)
        {
            return;
        }
        self.0 |= NUMBERS.iter().any(|number| segment.ident == number);
        visit::visit_path_segment(self, segment);
    }

    fn visit_type_impl_trait(&mut self, _: &'a syn::TypeImplTrait) {}

    fn visit_type_trait_object(&mut self, _: &'a syn::TypeTraitObject) {}

    fn visit_type_slice(&mut self, list: &'a syn::TypeSlice) {
        if !is_byte(&list.elem) {
            visit::visit_type_slice(self, list);
        }
    }

    fn visit_type_bare_fn(&mut self, _: &'a syn::TypeBareFn) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_named(source: &str, test: &str, expected: usize) {
        let files =
            [("crates/nofrag/src/a.rs", source), ("crates/nofrag/tests/it/extremes.rs", test)];
        let findings = check(&Tree::of(&files));
        assert_eq!(findings.len(), expected, "{source}: {findings:?}");
    }

    #[test]
    fn functions_that_take_numbers_are_named() {
        let source = "impl Space { pub fn new(bytes: u64) -> Space {} pub fn map(&self, at: Option<Vpn>) {} }";
        check_named(source, "", 2);
        check_named(source, "fn f() { Other::new(1).map(2) }", 1);
        check_named(source, "fn f() { Space::new(1).map(2) }", 0);
        check_named("pub fn ring(bytes: usize) {}", "", 1);
        check_named("pub fn ring(bytes: usize) {}", "fn f() { assert!(ring(0)) }", 0);
    }

    #[test]
    fn what_takes_none_or_is_not_public_is_left_out() {
        check_named("pub fn f(a: &str, b: impl Fn(u64), c: fn(u64)) {} fn g(a: u64) {}", "", 0);
        check_named("impl A { pub(crate) fn f(a: u64) {} pub unsafe fn g(a: u64) {} }", "", 0);
        check_named("impl T for A { fn f(a: u64) {} }", "", 0);
        check_named("pub fn f(a: &[u8], b: Vec<u8>, c: &mut dyn FnMut(u64)) {}", "", 0);
        check_named("pub fn f(a: &[u64]) {} pub fn g(a: Vec<u16>) {} pub fn h(a: u8) {}", "", 3);
    }
}
