//! No list is allocated at a size that a caller or a file chose, unless want of memory is an error.
//!
//! `Vec::with_capacity(n)`, `vec![x; n]`, `reserve(n)` and `reserve_exact(n)` end the process when there is no memory.
//! In the crates that others embed they stand only with a size that is a constant, or under a comment that says what
//! bounds it (`// Bounded: ..`); else `try_reserve` is the way. Tests are left out. What grows one by one (`push`,
//! `collect`) is not seen by this rule.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::{RustFile, Tree};

const RULE: &str = "allocations";
const CRATES: &[&str] =
    &["crates/nofrag/src/", "crates/nofrag-backing/src/", "crates/nofrag-host/src/"];
const ARGUMENT: &str = "Bounded:";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let files =
        || tree.rust().iter().filter(|file| CRATES.iter().any(|own| file.path.starts_with(own)));
    let tests: BTreeSet<String> = files().flat_map(test_modules).collect();
    let is_test = |path: &str| tests.iter().any(|test| is_inside(path, test));
    files().filter(|file| !is_test(&file.path)).flat_map(check_file).collect()
}

/// The modules, as paths without an ending, that the file declares for tests alone.
fn test_modules(file: &RustFile) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    };
    let modules = file.syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    });
    let for_tests = modules.filter(|module| module.attrs.iter().any(is_for_tests));
    for_tests.map(|module| format!("{folder}/{}", module.ident)).collect()
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && matches!(&attribute.meta, syn::Meta::List(list) if names_tests(list.tokens.clone()))
}

/// Whether `test` stands among the conditions, and not below `not`.
fn names_tests(condition: TokenStream) -> bool {
    let mut negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(word) => {
            negated = word == "not";
            word == "test"
        }
        TokenTree::Group(group) => !negated && names_tests(group.stream()),
        _ => false,
    })
}

/// Whether the file is the module `module`, or lies inside it.
fn is_inside(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let stream: TokenStream = file.text.parse().expect("the file has been parsed before");
    let mut uses = Vec::new();
    collect_uses(stream, &mut uses);
    uses.retain(|&(line, _)| !is_argued(&file.text, line));
    let found = |(line, what): (usize, &str)| {
        let wrong = format!("`{what}` of a size that is no constant");
        let remedy =
            "reserve with `try_reserve`, or say above it what bounds the size (`Bounded:`)";
        Finding::new(RULE, &file.path, line, wrong, remedy)
    };
    uses.into_iter().map(found).collect()
}

/// The lines of allocations that are not of a constant size, with what they are.
fn collect_uses(stream: TokenStream, uses: &mut Vec<(usize, &'static str)>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = behind_item(&tokens, at + 2);
            continue;
        }
        if let Some((line, what)) = allocation(&tokens, at) {
            uses.push((line, what));
        }
        if let TokenTree::Group(group) = &tokens[at] {
            collect_uses(group.stream(), uses);
        }
        at += 1;
    }
}

/// Whether an attribute for tests alone begins here.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return false };
    let mut inside = group.stream().into_iter();
    hash.as_char() == '#'
        && matches!(inside.next(), Some(TokenTree::Ident(word)) if word == "cfg")
        && matches!(inside.next(), Some(TokenTree::Group(of)) if names_tests(of.stream()))
}

/// Where the item ends that begins at `at`: behind its body, or its semicolon.
fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |end| at + end + 1)
}

/// The allocation whose name stands at `at`, unless its size is a constant.
fn allocation(tokens: &[TokenTree], at: usize) -> Option<(usize, &'static str)> {
    let TokenTree::Ident(name) = &tokens[at] else { return None };
    let line = name.span().start().line;
    let group = |at: usize| match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group.stream()),
        _ => None,
    };
    let is_mark = |at: Option<usize>, mark: char| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == mark)
    };
    match name.to_string().as_str() {
        "vec" if is_mark(Some(at + 1), '!') => {
            let repeated: Vec<TokenTree> = group(at + 2)?.into_iter().collect();
            let split = repeated.iter().position(is_semicolon)?;
            let count = repeated[split + 1..].iter().cloned().collect();
            (!is_constant(count)).then_some((line, "vec![..; n]"))
        }
        "with_capacity" if is_mark(at.checked_sub(1), ':') => {
            (!is_constant(first_argument(group(at + 1)?))).then_some((line, "with_capacity"))
        }
        "reserve" | "reserve_exact" if is_mark(at.checked_sub(1), '.') => {
            // One of ours says whether it succeeded, and somebody uses the answer.
            let is_dropped = is_mark(Some(at + 2), ';') && !is_bound(&tokens[..at]);
            (is_dropped && !is_constant(group(at + 1)?)).then_some((line, "reserve"))
        }
        _ => None,
    }
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';')
}

/// Whether the statement that ends with these tokens keeps its value.
fn is_bound(tokens: &[TokenTree]) -> bool {
    let statement = tokens.iter().rev().take_while(|token| {
        !is_semicolon(token)
            && !matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    });
    statement.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "let" || word == "return",
        TokenTree::Punct(mark) => mark.as_char() == '=',
        _ => false,
    })
}

fn first_argument(arguments: TokenStream) -> TokenStream {
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
    arguments.into_iter().take_while(|token| !is_comma(token)).collect()
}

/// Whether an expression is made of literals and constants: of names only such as are written in capitals, types, and
/// what makes a number of them.
fn is_constant(expression: TokenStream) -> bool {
    expression.into_iter().all(|token| match token {
        TokenTree::Ident(word) => {
            let word = word.to_string();
            let is_known = ["as", "usize", "u64", "u32", "size_of", "super", "crate"];
            is_known.contains(&word.as_str()) || word.starts_with(char::is_uppercase)
        }
        TokenTree::Group(group) => is_constant(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => true,
    })
}

/// Whether the comment lines directly above `line`, or the line itself, say what bounds the size.
fn is_argued(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let above = lines[..line - 1].iter().rev().map(|line| line.trim_start());
    let attached = above.take_while(|line| line.starts_with("//"));
    attached.chain([lines[line - 1]]).any(|line| line.contains(ARGUMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(body: &str, expected: usize) {
        let text = format!("fn f(n: usize) {{\n{body}\n}}\n");
        let findings = check(&Tree::of(&[("crates/nofrag-host/src/a.rs", &text)]));
        assert_eq!(findings.len(), expected, "{body}: {findings:?}");
    }

    #[test]
    fn sizes_that_are_no_constants_are_found() {
        check_count("let v = Vec::with_capacity(n);", 1);
        check_count("let v = Vec::<u8>::with_capacity(2 * n + MOST);", 1);
        check_count("let v = BufReader::with_capacity(n, file);", 1);
        check_count("let v = vec![0; n];", 1);
        check_count("let v = f(vec![vec![0; 3]; v.len()]);", 1);
        check_count("if true { v.reserve(n); }", 1);
        check_count("v.reserve_exact(n as usize);", 1);
    }

    #[test]
    fn constants_and_what_can_fail_are_not() {
        check_count("let v = Vec::with_capacity(GROUP + super::BATCH * size_of::<u64>());", 0);
        check_count("let v = BufReader::with_capacity(1 << 16, file);", 0);
        check_count("let v = vec![0; Order::COUNT];", 0);
        check_count("let v = vec![n, n];", 0);
        check_count("v.try_reserve(n)?; v.try_reserve_exact(n)?;", 0);
        check_count("self.books.reserve(n)?; let kept = tree.reserve(n);", 0);
        check_count("tree.reserve(n)", 0);
    }

    #[test]
    fn an_argument_lets_them_pass() {
        check_count("// Bounded: one per node.\nlet v = vec![0; n];", 0);
        check_count("let v = vec![0; n]; // Bounded: one per node.", 0);
        check_count("// Bounded: one per node.\n\nlet v = vec![0; n];", 1);
    }

    #[test]
    fn tests_are_left_out() {
        check_count("} #[cfg(test)] mod tests { fn g() { let v = vec![0; n]; }", 0);
        check_count("} #[cfg(all(test, unix))] use a::b; fn g() { let v = vec![0; n];", 1);
        check_count("} #[cfg(not(test))] fn g() { let v = vec![0; n];", 1);
        let files = [
            ("crates/nofrag/src/page/mod.rs", "#[cfg(test)]\nmod model;\nmod zone;\n"),
            ("crates/nofrag/src/page/model.rs", "fn f(n: usize) { g(vec![0; n]); }\n"),
            ("crates/nofrag/src/page/zone.rs", "fn f(n: usize) { g(vec![0; n]); }\n"),
            ("crates/nofrag-lab/src/lib.rs", "fn f(n: usize) { g(vec![0; n]); }\n"),
        ];
        let findings = check(&Tree::of(&files));
        let found: Vec<&str> = findings.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!(found, ["crates/nofrag/src/page/zone.rs"]);
    }
}
