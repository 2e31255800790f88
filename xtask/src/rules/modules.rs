//! Inside the core, `page`, `vmap` and `mmap` never import each other: what they share lies beside them.

use proc_macro2::{TokenStream, TokenTree};
use syn::UseTree;
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "modules";
const CORE: &str = "crates/nofrag/src/";
const APART: &[&str] = &["page", "vmap", "mmap"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some(module) = file.path.strip_prefix(CORE).map(module_of) else { continue };
        let Some(own) = module.first().and_then(|first| APART.iter().find(|m| *m == first)) else {
            continue;
        };
        let mut seen = Mentions { module: module.clone(), mentions: Vec::new() };
        seen.visit_file(&file.syntax);
        for (line, other) in seen.mentions {
            if other != **own {
                findings.push(Finding::new(
                    RULE,
                    &file.path,
                    line,
                    format!("`{own}` uses `{other}`"),
                    "move what both need into a module beside them",
                ));
            }
        }
    }
    findings
}

/// Returns the path of the module that the file defines: `vmap/area.rs` is `[vmap, area]`.
fn module_of(path: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if stem == "lib" { Vec::new() } else { stem.split('/').map(str::to_owned).collect() }
}

/// Collects the modules that must stay apart and that a file names, with the lines.
struct Mentions {
    module: Vec<String>,
    mentions: Vec<(usize, String)>,
}

impl Mentions {
    /// Notes the path `parts` if, seen from the current module, it leads into one of the modules that stay apart.
    fn note(&mut self, line: usize, parts: &[String]) {
        let mut base = self.module.clone();
        let mut rest = parts;
        match parts.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                rest = &parts[1..];
            }
            Some("self") => rest = &parts[1..],
            Some("super") => {}
            _ => return,
        }
        while rest.first().is_some_and(|part| part == "super") {
            base.pop();
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        if let Some(first) = base.first().filter(|first| APART.contains(&first.as_str())) {
            self.mentions.push((line, first.clone()));
        }
    }

    fn note_use(&mut self, prefix: &[String], tree: &UseTree) {
        let extended = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.note_use(&extended(&path.ident), &path.tree),
            UseTree::Name(name) => {
                self.note(name.ident.span().start().line, &extended(&name.ident));
            }
            UseTree::Rename(name) => {
                self.note(name.ident.span().start().line, &extended(&name.ident));
            }
            UseTree::Group(group) => {
                for item in &group.items {
                    self.note_use(prefix, item);
                }
            }
            UseTree::Glob(glob) => self.note(glob.star_token.spans[0].start().line, prefix),
        }
    }

    /// Macro arguments are tokens: looks for `crate::name` among them.
    fn note_tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.note_tokens(group.stream()),
                TokenTree::Ident(word) if word == "crate" => {
                    if let Some(TokenTree::Ident(next)) = tokens.get(at + 3) {
                        let parts = ["crate".to_owned(), next.to_string()];
                        self.note(next.span().start().line, &parts);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.note(first.ident.span().start().line, &parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.note_tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(path: &str, text: &str, expected: usize) {
        let findings = check(&Tree::of(&[(path, text)]));
        assert_eq!(findings.len(), expected, "{path} {text}: {findings:?}");
    }

    #[test]
    fn imports_between_the_three_are_found() {
        let area = "crates/nofrag/src/vmap/area.rs";
        check_count(area, "use crate::page::Zone;", 1);
        check_count(area, "use crate::{ranges::Span, page::Zone as Z};", 1);
        check_count(area, "use super::super::mmap::*;", 1);
        check_count(area, "fn f(zone: &crate::page::Zone) {}", 1);
        check_count(area, "fn f() { assert!(crate::mmap::ready()); }", 1);
        check_count(area, "mod inner { use super::super::super::page::Zone; }", 1);
    }

    #[test]
    fn own_and_shared_modules_are_free_to_use() {
        check_count("crates/nofrag/src/vmap/area.rs", "use super::block::Block;", 0);
        check_count("crates/nofrag/src/vmap/mod.rs", "use self::area::Area;", 0);
        check_count("crates/nofrag/src/vmap/area.rs", "use crate::vmap::block;", 0);
        check_count("crates/nofrag/src/vmap/area.rs", "use crate::ranges::Span;", 0);
        check_count("crates/nofrag/src/lib.rs", "use crate::page::Zone;", 0);
        check_count("crates/nofrag/tests/it/main.rs", "use crate::page::Zone;", 0);
    }
}
