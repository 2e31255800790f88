//! Writes many breaks into one text, each behind a switch that the environment turns on.
//!
//! The smallest expression that holds a whole chain of operators becomes a `match`: an arm for each break, with the
//! text of the chain as the break makes it, and a last one with the chain as it stands. Breaks of parts of the chain
//! stand in that last arm alone, since one break is on at a time. So a break means the same as in a text of its own,
//! and the text grows with the depth of its nesting, not with its power. Bodies get `return`s before their first
//! statement, arms of a `match` a guard, fields of a `struct` expression the value that the rest of the `struct` has.
//!
//! A constant cannot ask the environment. Breaks in one have no switch, nor have those of what `impl Trait` returns
//! (its type is that of the body), and those that are no expression any more. In a constant function the switch works
//! at run time; when a constant calls it, the switch is off. `||` beside a `let` needs no try: no compiler takes it.

use std::collections::HashMap;
use std::ops::Range;

use syn::Expr;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Genre, Mutant};

/// Module of the switches. Before `main` it reads which break is on; with none, each says at the end whether it was
/// asked for.
const MODULE: &str = r#"
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

const NONE: u32 = u32::MAX;
static ON: AtomicU32 = AtomicU32::new(NONE);
/// For the first break of a switch, the end of them, if the switch was reached.
static REACHED: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];

/// Returns the number of the break that is on; the caller has those from `first` to `last`.
#[inline(always)]
pub(crate) const fn among(first: u32, last: u32) -> u32 {
    core::intrinsics::const_eval_select((first, last), unasked, asked)
}

const fn unasked(_: u32, _: u32) -> u32 {
    NONE
}

#[inline(always)]
fn asked(first: u32, last: u32) -> u32 {
    let on = ON.load(Relaxed);
    if on == NONE {
        reach(first, last);
    }
    on
}

#[cold]
#[inline(never)]
fn reach(first: u32, last: u32) {
    REACHED[first as usize].store(last + 1, Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let number = std::env::var("BREAK").ok().and_then(|number| number.parse().ok());
    ON.store(number.unwrap_or(NONE), Relaxed);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    let Some(path) = std::env::var_os("REACHED") else { return };
    let ends = (0..).zip(REACHED.iter().map(|end| end.load(Relaxed)));
    let lines: String = ends.flat_map(|(first, end)| first..end).map(|number| format!("{number}\n")).collect();
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, lines.as_bytes())).unwrap();
}
"#;

/// Returns the text of the module of `count` switches.
pub(super) fn module(count: usize) -> String {
    format!("const COUNT: usize = {count};\n{MODULE}")
}

/// Returns the root of a crate with the module.
pub(super) fn with_module(root: &str) -> String {
    let features =
        "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n";
    format!("{features}{root}\nmod mutants;\n")
}

/// Returns a text with one break.
pub(super) fn broken(text: &str, mutant: &Mutant) -> String {
    let span = mutant.span.bytes(text);
    format!("{}{}{}", &text[..span.start], mutant.replacement, &text[span.end..])
}

/// A text with switches.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) text: String,
    /// The breaks that have one, by their places in the list; their numbers follow each other.
    pub(super) held: Vec<usize>,
    /// Of these, those in constant functions.
    pub(super) constant: Vec<usize>,
    /// Those that no compiler takes: `||` beside a `let`.
    pub(super) refused: Vec<usize>,
    /// Parts of the text that one break has written.
    alternatives: Vec<(Range<usize>, usize)>,
    /// Parts of the text under a switch, with its breaks.
    switched: Vec<(Range<usize>, Vec<usize>)>,
    /// Number of bytes of the old text that stand in the new one.
    done: usize,
    /// Switches around the end of the text, the inner ones last.
    inside: Vec<Inside>,
}

/// The breaks that a message of the compiler is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// This one: the message is about its text.
    One(usize),
    /// The switch of these breaks, or something near it.
    Some(Vec<usize>),
}

impl Written {
    /// Returns what a message at a byte of the text is about.
    pub(super) fn blame(&self, at: usize) -> Option<Blame> {
        if let Some((_, one)) = self.alternatives.iter().find(|(part, _)| part.contains(&at)) {
            return Some(Blame::One(*one));
        }
        let around = self.switched.iter().filter(|(part, _)| part.contains(&at));
        around.min_by_key(|(part, _)| part.len()).map(|(_, some)| Blame::Some(some.clone()))
    }
}

/// Writes switches for those of `mutants` that `wanted` names, with numbers from `first` on.
pub(super) fn write(
    text: &str,
    mutants: &[&Mutant],
    wanted: impl Fn(usize) -> bool,
    first: usize,
) -> anyhow::Result<Written> {
    let mut places = Places::default();
    places.visit_file(&syn::parse_file(text)?);
    let mut switches = HashMap::<(Range<usize>, Kind), Vec<(usize, String)>>::new();
    let mut written = Written::default();
    for (at, mutant) in mutants.iter().enumerate().filter(|(at, _)| wanted(*at)) {
        let span = mutant.span.bytes(text);
        if places.beside_let.contains(&span) {
            written.refused.push(at);
            continue;
        }
        let Some((part, kind, alternative)) = places.switch(mutant, &span, text) else { continue };
        if !alternative.is_empty() && syn::parse_str::<Expr>(&alternative).is_err() {
            continue;
        }
        if within(&places.constant_functions, &span) {
            written.constant.push(at);
        }
        if let (Genre::MatchArm, Some(arm)) = (mutant.genre, places.arms.get(&span.start)) {
            switches.entry((arm.2.clone(), Kind::Matched)).or_default().push((at, String::new()));
        }
        switches.entry((part, kind)).or_default().push((at, alternative));
    }
    let mut switches: Vec<_> = switches.into_iter().collect();
    switches.sort_by_key(|((part, kind), _)| (part.start, usize::MAX - part.end, *kind));
    for ((part, kind), breaks) in switches {
        written.open(text, part, kind, breaks, first);
    }
    written.close(text, text.len());
    written.text += &text[written.done..];
    Ok(written)
}

impl Written {
    /// Writes what stands before a switch, and its head.
    fn open(
        &mut self,
        text: &str,
        part: Range<usize>,
        kind: Kind,
        breaks: Vec<(usize, String)>,
        first: usize,
    ) {
        self.close(text, part.start);
        self.text += &text[self.done..part.start];
        self.done = part.start;
        let begin = self.text.len();
        if kind != Kind::Matched {
            let number = first + self.held.len();
            self.text += &kind.head(number, number + breaks.len() - 1);
            for (number, (at, alternative)) in (number..).zip(&breaks) {
                self.held.push(*at);
                let arm = self.text.len();
                if !alternative.is_empty() {
                    self.text += &format!("{number} => {{ {alternative} }}\n");
                }
                self.alternatives.push((arm..self.text.len(), *at));
            }
            self.text += kind.middle();
        }
        let breaks = breaks.into_iter().map(|(at, _)| at).collect();
        self.inside.push(Inside { end: part.end, kind, begin, breaks });
    }

    /// Writes the ends of the switches that end by a byte of the old text.
    fn close(&mut self, text: &str, by: usize) {
        while let Some(last) = self.inside.pop_if(|it| it.end <= by) {
            self.text += &text[self.done..last.end];
            self.done = last.end;
            self.text += last.kind.tail();
            self.switched.push((last.begin..self.text.len(), last.breaks));
        }
    }
}

/// A switch whose end is not yet written.
#[derive(Debug)]
struct Inside {
    /// In the old text.
    end: usize,
    kind: Kind,
    /// In the new text.
    begin: usize,
    breaks: Vec<usize>,
}

/// The form of a switch; of switches for the same part the former is the outer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    /// Nothing: what arms that are to be deleted match. The compiler says there that an arm is missing.
    Matched,
    /// Before the statements of a body.
    Body,
    /// Where an arm has no guard.
    NewGuard,
    /// Around the guard of an arm, which is to be deleted.
    Guard,
    /// Around an expression.
    Around,
}

impl Kind {
    fn head(self, first: usize, last: usize) -> String {
        let among = format!("crate::mutants::among({first}, {last})");
        match self {
            Kind::Matched => String::new(),
            Kind::Body => format!("match {among} {{\n"),
            Kind::NewGuard => format!(" if {among} != {first}"),
            Kind::Guard => format!("{among} != {first} && ("),
            Kind::Around => format!("(match {among} {{\n"),
        }
    }

    fn middle(self) -> &'static str {
        match self {
            Kind::Body => "_ => {} }\n",
            Kind::Matched | Kind::NewGuard | Kind::Guard => "",
            Kind::Around => "_ => { ",
        }
    }

    fn tail(self) -> &'static str {
        match self {
            Kind::Matched | Kind::Body | Kind::NewGuard => "",
            Kind::Guard => ")",
            Kind::Around => " } })",
        }
    }
}

fn within(parts: &[Range<usize>], span: &Range<usize>) -> bool {
    parts.iter().any(|part| part.start <= span.start && span.end <= part.end)
}

/// Parts of a file that breaks are about.
#[derive(Default)]
struct Places {
    /// Operators, with the chains that they stand in.
    operators: HashMap<Range<usize>, Range<usize>>,
    /// Operators of which a side has a `let`: each is `&&`, and would be `||`.
    beside_let: Vec<Range<usize>>,
    guards: Vec<Range<usize>>,
    /// First bytes of arms, with their guards or the ends of their patterns, and with what they match.
    arms: HashMap<usize, (Range<usize>, Kind, Range<usize>)>,
    /// First bytes of fields, with their values, and texts of what the rest of the struct has for them.
    fields: HashMap<usize, (Range<usize>, [Range<usize>; 2])>,
    constants: Vec<Range<usize>>,
    constant_functions: Vec<Range<usize>>,
    /// The chain whose operand is visited next.
    chain: Option<Range<usize>>,
}

impl Places {
    /// Returns the part of the text that a break's switch is about, and what the break makes of it; nothing if it can
    /// have no switch.
    fn switch(
        &self,
        mutant: &Mutant,
        span: &Range<usize>,
        text: &str,
    ) -> Option<(Range<usize>, Kind, String)> {
        if within(&self.constants, span) {
            return None;
        }
        let with = mutant.replacement.as_str();
        Some(match mutant.genre {
            Genre::BinaryOperator | Genre::UnaryOperator => {
                let chain = self.operators.get(span)?.clone();
                let [before, after] = [chain.start..span.start, span.end..chain.end];
                let alternative = format!("{}{with}{}", &text[before], &text[after]);
                (chain, Kind::Around, alternative)
            }
            Genre::MatchArmGuard if self.guards.contains(span) => {
                (span.clone(), Kind::Around, with.to_owned())
            }
            Genre::MatchArmGuard => return None,
            Genre::MatchArm => {
                let (part, kind, _) = self.arms.get(&span.start)?.clone();
                (part, kind, String::new())
            }
            Genre::StructField => {
                let (value, [name, rest]) = self.fields.get(&span.start)?.clone();
                (value, Kind::Around, format!("({}).{}", &text[rest], &text[name]))
            }
            Genre::FnValue => {
                if mutant.function.as_ref()?.return_type.contains("impl ") {
                    return None;
                }
                (span.clone(), Kind::Body, format!("return {with}"))
            }
        })
    }

    fn note_constant<T: Spanned>(&mut self, it: &T) {
        self.constants.push(it.span().byte_range());
    }

    fn note_function<T: Spanned>(&mut self, signature: &syn::Signature, it: &T) {
        if signature.constness.is_some() {
            self.constant_functions.push(it.span().byte_range());
        }
    }
}

/// Returns true if a condition has a `let` of its own.
fn has_let(it: &Expr) -> bool {
    match it {
        Expr::Let(_) => true,
        Expr::Binary(it) => has_let(&it.left) || has_let(&it.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        let outer = self.chain.take();
        let is_plain = !has_let(&it.left) && !has_let(&it.right);
        let chain = is_plain.then(|| outer.unwrap_or_else(|| it.span().byte_range()));
        match &chain {
            Some(chain) => {
                self.operators.insert(it.op.span().byte_range(), chain.clone());
            }
            None => self.beside_let.push(it.op.span().byte_range()),
        }
        for side in [&it.left, &it.right] {
            self.chain = chain.clone().filter(|_| matches!(**side, Expr::Binary(_)));
            self.visit_expr(side);
        }
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        self.operators.insert(it.op.span().byte_range(), it.span().byte_range());
        visit::visit_expr_unary(self, it);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let matched = it.expr.span().byte_range();
        for arm in &it.arms {
            let start = arm.span().byte_range().start;
            let end = arm.pat.span().byte_range().end;
            match arm.guard.as_ref().map(|(_, guard)| guard) {
                None => {
                    self.arms.insert(start, (end..end, Kind::NewGuard, matched.clone()));
                }
                Some(guard) if !has_let(guard) => {
                    let guard = guard.span().byte_range();
                    self.guards.push(guard.clone());
                    self.arms.insert(start, (guard, Kind::Guard, matched.clone()));
                }
                Some(_) => {}
            }
        }
        visit::visit_expr_match(self, it);
    }

    fn visit_expr_struct(&mut self, it: &'ast syn::ExprStruct) {
        if let Some(rest) = &it.rest {
            for field in it.fields.iter().filter(|field| field.colon_token.is_some()) {
                let [whole, value] = [field.span(), field.expr.span()].map(|it| it.byte_range());
                let texts = [field.member.span().byte_range(), rest.span().byte_range()];
                self.fields.insert(whole.start, (value, texts));
            }
        }
        visit::visit_expr_struct(self, it);
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.note_function(&it.sig, it);
        visit::visit_item_fn(self, it);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.note_function(&it.sig, it);
        visit::visit_impl_item_fn(self, it);
    }

    fn visit_item_const(&mut self, it: &'ast syn::ItemConst) {
        self.note_constant(it);
        visit::visit_item_const(self, it);
    }

    fn visit_impl_item_const(&mut self, it: &'ast syn::ImplItemConst) {
        self.note_constant(it);
        visit::visit_impl_item_const(self, it);
    }

    fn visit_trait_item_const(&mut self, it: &'ast syn::TraitItemConst) {
        self.note_constant(it);
        visit::visit_trait_item_const(self, it);
    }

    fn visit_item_static(&mut self, it: &'ast syn::ItemStatic) {
        self.note_constant(it);
        visit::visit_item_static(self, it);
    }

    fn visit_item_enum(&mut self, it: &'ast syn::ItemEnum) {
        self.note_constant(it);
        visit::visit_item_enum(self, it);
    }

    fn visit_expr_const(&mut self, it: &'ast syn::ExprConst) {
        self.note_constant(it);
        visit::visit_expr_const(self, it);
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.note_constant(&it.len);
        visit::visit_expr_repeat(self, it);
    }

    fn visit_type(&mut self, it: &'ast syn::Type) {
        self.note_constant(it);
        visit::visit_type(self, it);
    }

    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        it: &'ast syn::AngleBracketedGenericArguments,
    ) {
        self.note_constant(it);
        visit::visit_angle_bracketed_generic_arguments(self, it);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::super::{Function, Place, Span};
    use super::*;

    /// A program with a break of each kind, nested ones among them.
    const PROGRAM: &str = "
#[derive(Clone, Copy)]
struct Pair { left: u32, right: u32 }
const TWO: u32 = 1 + 1;
fn sum(a: u32, b: u32) -> u32 { a + b * (a + b) / TWO }
fn chosen(a: u32, b: u32) -> u32 {
    match a {
        0 => b,
        1 if b < 5 && !(b == 3) => b + 1,
        _ => 9,
    }
}
const fn twice(a: u32) -> u32 { a * 2 }
fn swapped(pair: Pair) -> Pair { Pair { left: pair.right + 1, ..pair } }
fn counted(mut a: u32) -> u32 { a += TWO; a }
fn each(n: u32) -> impl Iterator<Item = u32> { 0..n }
fn last(pair: Option<u32>) -> bool { if let Some(it) = pair && it > 2 { true } else { false } }
fn main() {
    let pair = swapped(Pair { left: 1, right: 2 });
    let some = [(0, 1), (1, 2), (1, 3), (1, 6), (2, 0)].map(|(a, b)| chosen(a, b));
    let text = format!(\"{} {some:?} {} {}\", sum(40, 4), twice(3), counted(1));
    println!(\"{text} {} {} {} {}\", pair.left, pair.right, each(2).count(), last(Some(3)));
}
";

    /// Breaks by the texts around them: what is before the part, the part, and what it becomes.
    const BREAKS: [(Genre, &str, &str, &str); 17] = [
        (Genre::BinaryOperator, "{ a ", "+", "*"),
        (Genre::BinaryOperator, "{ a + b ", "*", "+"),
        (Genre::BinaryOperator, "{ a + b * (a ", "+", "-"),
        (Genre::BinaryOperator, "{ a + b * (a + b) ", "/", "%"),
        (Genre::MatchArm, "match a {\n        ", "0 => b,", ""),
        (Genre::MatchArm, "0 => b,\n        ", "1 if b < 5 && !(b == 3) => b + 1,", ""),
        (Genre::MatchArmGuard, "1 if ", "b < 5 && !(b == 3)", "true"),
        (Genre::BinaryOperator, "1 if b ", "<", ">"),
        (Genre::BinaryOperator, "1 if b < 5 ", "&&", "||"),
        (Genre::UnaryOperator, "1 if b < 5 && ", "!", ""),
        (Genre::FnValue, "twice(a: u32) -> u32 { ", "a * 2", "7"),
        (Genre::StructField, "Pair { ", "left: pair.right + 1, ", ""),
        (Genre::BinaryOperator, "mut a: u32) -> u32 { a ", "+=", "*="),
        (Genre::BinaryOperator, "&& it ", ">", "<"),
        // Without a switch.
        (Genre::BinaryOperator, "const TWO: u32 = 1 ", "+", "*"),
        (Genre::FnValue, "Iterator<Item = u32> { ", "0..n", "::std::iter::empty()"),
        (Genre::BinaryOperator, "Some(it) = pair ", "&&", "||"),
    ];
    const SWITCHED: usize = 14;

    fn mutant(genre: Genre, before: &str, part: &str, replacement: &str) -> Mutant {
        let start = PROGRAM.find(&format!("{before}{part}")).expect("it is there") + before.len();
        let place = |at: usize| {
            let line = PROGRAM[..at].matches('\n').count();
            let column = at - PROGRAM[..at].rfind('\n').map_or(0, |end| end + 1);
            Place { line: line + 1, column: column + 1 }
        };
        let span = Span { start: place(start), end: place(start + part.len()) };
        let returns = if part == "0..n" { "-> impl Iterator<Item = u32>" } else { "-> u32" };
        let function = Function { return_type: returns.to_owned() };
        Mutant {
            name: format!("{before}{part}"),
            file: "main.rs".to_owned(),
            genre,
            span,
            replacement: replacement.to_owned(),
            function: Some(function).filter(|_| !before.starts_with("const TWO")),
        }
    }

    fn compiled(folder: &Path, text: &str) -> Command {
        std::fs::write(folder.join("main.rs"), text).unwrap();
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "--cap-lints=allow", "main.rs"]).env("RUSTC_BOOTSTRAP", "1");
        let output = rustc.current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        Command::new(folder.join("main"))
    }

    fn said(program: &mut Command) -> (bool, String) {
        let output = program.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_switch_does_what_the_break_does_alone() {
        let folder = std::env::temp_dir().join(format!("switches-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mutants = BREAKS.map(|(genre, before, part, to)| mutant(genre, before, part, to));
        let all: Vec<&Mutant> = mutants.iter().collect();
        let written = write(PROGRAM, &all, |_| true, 0).unwrap();
        assert_eq!(written.held.len(), SWITCHED, "{:?}", written.held);
        assert_eq!((written.constant, written.refused), (vec![10], vec![16]));
        std::fs::write(folder.join("mutants.rs"), module(SWITCHED)).unwrap();
        let unbroken = said(&mut compiled(&folder, PROGRAM));
        assert!(unbroken.0, "{}", unbroken.1);
        let mut switched = compiled(&folder, &with_module(&written.text));
        let reached = folder.join("reached");
        assert_eq!(said(switched.env("REACHED", &reached)), unbroken);
        assert_eq!(std::fs::read_to_string(&reached).unwrap().lines().count(), SWITCHED);
        switched.env_remove("REACHED");
        let by_switch: Vec<_> =
            (0..SWITCHED).map(|number| said(switched.env("BREAK", number.to_string()))).collect();
        for (&at, by_switch) in written.held.iter().zip(&by_switch) {
            let alone = said(&mut compiled(&folder, &broken(PROGRAM, all[at])));
            assert_ne!(alone, unbroken, "{}", all[at].name);
            assert_eq!(*by_switch, alone, "{}", all[at].name);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn messages_are_about_what_a_break_has_written() {
        let [less, both] = [7, 8]
            .map(|at| BREAKS[at])
            .map(|(genre, before, part, to)| mutant(genre, before, part, to));
        let written = write(PROGRAM, &[&less, &both], |_| true, 0).unwrap();
        let at = |text: &str| written.text.find(text).expect("it is written");
        assert_eq!(written.blame(at("b > 5")), Some(Blame::One(0)));
        assert_eq!(written.blame(at("b < 5 || ")), Some(Blame::One(1)));
        assert_eq!(
            written.blame(at("{ b < 5 && !(b == 3) } }") + 2),
            Some(Blame::Some(vec![0, 1]))
        );
        assert_eq!(written.blame(0), None);
    }
}
