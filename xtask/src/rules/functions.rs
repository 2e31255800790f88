//! A function ends by its line 70, counted from its signature to its closing brace.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "functions";
const LONGEST: usize = 70;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let mut lengths = Lengths { path: &file.path, findings: &mut findings };
        lengths.visit_file(&file.syntax);
    }
    findings
}

struct Lengths<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Lengths<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > LONGEST {
            self.findings.push(Finding::new(
                RULE,
                self.path,
                first,
                format!("`{}` has {lines} lines, more than {LONGEST}", signature.ident),
                "move a step that can be named into a function of its own",
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Lengths<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lines(open: &str, close: &str, lines: usize, expected: usize) {
        let text = format!("{open}{}{close}\n", "\n".repeat(lines - 1));
        let findings = check(&Tree::of(&[("crates/a/src/lib.rs", &text)]));
        assert_eq!(findings.len(), expected, "{findings:?}");
    }

    #[test]
    fn seventy_lines_are_allowed_and_one_more_is_not() {
        for (open, close) in [
            ("fn f() {", "}"),
            ("impl S { fn f() {", "} }"),
            ("trait T { fn f() {", "} }"),
            ("fn outer() { fn inner() {", "} }"),
        ] {
            check_lines(open, close, 70, 0);
        }
        check_lines("fn f() {", "}", 71, 1);
        check_lines("impl S { fn f() {", "} }", 71, 1);
        check_lines("trait T { fn f() {", "} }", 71, 1);
        check_lines("#[test]\n#[ignore]\n\nfn f() {", "}", 70, 0);
    }
}
