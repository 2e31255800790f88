//! `unsafe` stands only in the crates that may have it, and each use says why it is sound.
//!
//! The rule reads tokens, not syntax, so that it also sees what macros hide.

use proc_macro2::{TokenStream, TokenTree};

use crate::finding::Finding;
use crate::tree::{RustFile, Tree};

const RULE: &str = "unsafe";

/// Files in which `unsafe` may stand, and the reasons.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/nofrag-backing/", "turns numbers into memory"),
    ("crates/nofrag-lab/src/apparatus/", "measures real memory"),
    ("crates/nofrag-capi/", "is called from C"),
    ("crates/nofrag/tests/it/memory.rs", "is a heap that tests make refuse"),
    ("crates/nofrag-bench/examples/vmalloc_pairs.rs", "maps and touches memory as a peer"),
    ("crates/nofrag-bench/src/gpu/", "calls the driver of a GPU"),
    ("crates/nofrag-bench/src/heaps/", "calls allocators of C, and touches what they give"),
    ("crates/nofrag-bench/src/peers/free_list.rs", "calls a peer whose only free is unsafe"),
    ("crates/nofrag-bench/src/peers/tlsf.rs", "gives a peer its pool, and calls its unsafe free"),
    ("crates/nofrag-bench/src/peers/vmem.rs", "gives a peer the memory of its tags"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().iter().flat_map(check_file).collect()
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let stream: TokenStream = file.text.parse().expect("the file has been parsed before");
    let mut uses = Vec::new();
    collect_uses(stream, &mut uses);
    let allowed = ALLOWED.iter().any(|(folder, _)| file.path.starts_with(folder));
    let mut findings = Vec::new();
    for (line, kind) in uses {
        if !allowed {
            findings.push(Finding::new(
                RULE,
                &file.path,
                line,
                "`unsafe` outside the crates that may have it",
                "write it safely, or move it to the backing crate",
            ));
        } else if !is_argued(&file.text, line, kind) {
            findings.push(Finding::new(
                RULE,
                &file.path,
                line,
                format!("no `{}` above the unsafe {}", kind.argument(), kind.noun()),
                "name the check that makes it sound",
            ));
        }
    }
    findings
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A block or an implementation: we promise.
    Promise,
    /// A function or a trait: the caller promises.
    Contract,
}

impl Kind {
    fn argument(self) -> &'static str {
        match self {
            Kind::Promise => "SAFETY:",
            Kind::Contract => "# Safety",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Kind::Promise => "block or implementation",
            Kind::Contract => "function or trait",
        }
    }
}

/// Collects the lines of all `unsafe` tokens, with the kind of item that each begins.
fn collect_uses(stream: TokenStream, uses: &mut Vec<(usize, Kind)>) {
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => {
                let kind = match tokens.peek() {
                    Some(TokenTree::Group(_)) => Kind::Promise,
                    Some(TokenTree::Ident(next)) if next == "impl" => Kind::Promise,
                    _ => Kind::Contract,
                };
                uses.push((word.span().start().line, kind));
            }
            TokenTree::Group(group) => collect_uses(group.stream(), uses),
            _ => {}
        }
    }
}

/// Returns true if the comment and attribute lines directly above `line`, or the line itself, hold the argument.
fn is_argued(text: &str, line: usize, kind: Kind) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let above = lines[..line - 1].iter().rev().map(|l| l.trim_start());
    let attached = above.take_while(|l| l.starts_with("//") || l.starts_with("#["));
    attached.chain([lines[line - 1]]).any(|l| l.contains(kind.argument()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(path: &str, text: &str, expected: usize) {
        let findings = check(&Tree::of(&[(path, text)]));
        assert_eq!(findings.len(), expected, "{text}: {findings:?}");
    }

    #[test]
    fn unsafe_is_refused_outside_its_crates() {
        check_count("crates/nofrag/src/lib.rs", "#![forbid(unsafe_code)]\nfn f() {}\n", 0);
        let block = "fn f() {\n    // SAFETY: a reason\n    unsafe { g() }\n}\n";
        check_count("crates/nofrag/src/lib.rs", block, 1);
        check_count("crates/nofrag/src/lib.rs", "m! { unsafe { g() } }\n", 1);
    }

    #[test]
    fn unsafe_says_why_it_is_sound() {
        let path = "crates/nofrag-backing/src/lib.rs";
        check_count(path, "fn f() {\n    // SAFETY: a reason\n    unsafe { g() }\n}\n", 0);
        check_count(path, "fn f() {\n    unsafe { g() }\n}\n", 1);
        check_count(path, "// SAFETY: a reason\nunsafe impl Send for S {}\n", 0);
        check_count(path, "unsafe impl Send for S {}\n", 1);
        check_count(path, "/// # Safety\n/// The caller must.\nunsafe fn f() {}\n", 0);
        check_count(path, "/// Words.\nunsafe fn f() {}\n", 1);
    }
}
