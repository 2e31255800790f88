//! The kernel's names for the bits of `gfp_t`, from the `print fmt` line of a `format` file.
//!
//! The bits have moved between kernels; their names have not. A trace carries the numbers and this table.

use serde::{Deserialize, Serialize};

/// Names of sets of bits, the widest first, as the kernel prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagTable {
    entries: Vec<(u64, String)>,
}

impl Default for FlagTable {
    /// Returns the names of Linux 6.18, for traces without a table, mostly text.
    fn default() -> FlagTable {
        const BITS: [(u32, &str); 25] = [
            (0, "__GFP_DMA"),
            (1, "__GFP_HIGHMEM"),
            (2, "__GFP_DMA32"),
            (3, "__GFP_MOVABLE"),
            (4, "__GFP_RECLAIMABLE"),
            (5, "__GFP_HIGH"),
            (6, "__GFP_IO"),
            (7, "__GFP_FS"),
            (8, "__GFP_ZERO"),
            (10, "__GFP_DIRECT_RECLAIM"),
            (11, "__GFP_KSWAPD_RECLAIM"),
            (12, "__GFP_WRITE"),
            (13, "__GFP_NOWARN"),
            (14, "__GFP_RETRY_MAYFAIL"),
            (15, "__GFP_NOFAIL"),
            (16, "__GFP_NORETRY"),
            (17, "__GFP_MEMALLOC"),
            (18, "__GFP_COMP"),
            (19, "__GFP_NOMEMALLOC"),
            (20, "__GFP_HARDWALL"),
            (21, "__GFP_THISNODE"),
            (22, "__GFP_ACCOUNT"),
            (23, "__GFP_ZEROTAGS"),
            (24, "__GFP_NO_OBJ_EXT"),
            // Removed in 6.3.
            (9, "__GFP_ATOMIC"),
        ];
        let compound = [
            (0x1c_24ca, "GFP_TRANSHUGE"),
            (0x1c_20ca, "GFP_TRANSHUGE_LIGHT"),
            (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
            (0x10_0cc2, "GFP_HIGHUSER"),
            (0x10_0cc0, "GFP_USER"),
            (0x40_0cc0, "GFP_KERNEL_ACCOUNT"),
            (0xcc0, "GFP_KERNEL"),
            (0xc40, "GFP_NOFS"),
            (0x820, "GFP_ATOMIC"),
            (0xc00, "GFP_NOIO"),
            (0x2800, "GFP_NOWAIT"),
            (0x1, "GFP_DMA"),
            (0x4, "GFP_DMA32"),
            (0xc00, "__GFP_RECLAIM"),
        ];
        let bits = BITS.iter().map(|&(bit, name)| (1_u64 << bit, name));
        let entries = compound.into_iter().chain(bits);
        FlagTable { entries: entries.map(|(bits, name)| (bits, name.to_owned())).collect() }
    }
}

impl FlagTable {
    /// Reads the table in a `print fmt` line with `__print_flags`; `None` without one, or where it cannot be evaluated.
    #[must_use]
    pub fn from_print_fmt(print: &str) -> Option<FlagTable> {
        let list = print.split_once("__print_flags")?.1.split_once("\"|\"")?.1;
        named_values(list).map(|entries| FlagTable { entries })
    }

    /// Returns the bits as the kernel prints them: names joined by `|`, bits without a name as a number, `none` for 0.
    #[must_use]
    pub fn render(&self, flags: u64) -> String {
        if flags == 0 {
            return "none".to_owned();
        }
        let mut left = flags;
        let mut parts = Vec::new();
        for (bits, name) in &self.entries {
            if *bits != 0 && left & bits == *bits {
                left &= !bits;
                parts.push(name.clone());
            }
        }
        if left != 0 {
            parts.push(format!("0x{left:x}"));
        }
        parts.join("|")
    }

    /// Returns the bits of a text such as `GFP_KERNEL|__GFP_ZERO`; `None` if a name is not in the table.
    #[must_use]
    pub fn value(&self, text: &str) -> Option<u64> {
        let (value, unknown) = self.known_value(text);
        (unknown == 0).then_some(value)
    }

    /// Returns the bits of the names in a text such as `GFP_KERNEL|__GFP_ZERO` that the table has, and the number of
    /// other names.
    #[must_use]
    pub fn known_value(&self, text: &str) -> (u64, usize) {
        if text == "none" {
            return (0, 0);
        }
        text.split('|').fold((0, 0), |(sum, unknown), part| {
            let value = match part.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => self.bits(part),
            };
            value.map_or((sum, unknown + 1), |value| (sum | value, unknown))
        })
    }

    /// Returns all names, the widest first, as the kernel tries them.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &str)> {
        self.entries.iter().map(|(bits, name)| (*bits, name.as_str()))
    }

    /// Returns the bits of one name; `None` if the table lacks it.
    #[must_use]
    pub fn bits(&self, name: &str) -> Option<u64> {
        self.entries.iter().find(|(_, known)| known == name).map(|(bits, _)| *bits)
    }
}

pub(crate) type NamedValues = Vec<(u64, String)>;

/// Returns the names that a `print fmt` line has for the values of a field in `__print_symbolic`, in its order; `None`
/// without such a list.
pub(crate) fn symbols(print: &str, field: &str) -> Option<NamedValues> {
    let list = print.split("__print_symbolic(").skip(1).find_map(|call| {
        let (value, list) = call.split_once(',')?;
        (value.trim().strip_prefix("REC->")? == field).then_some(list)
    })?;
    named_values(list)
}

/// Returns the entries `{ EXPRESSION, "NAME" }` up to the end of a list, which is a bracket or an entry without a name;
/// `None` where there are none, or one cannot be evaluated.
fn named_values(list: &str) -> Option<NamedValues> {
    let mut entries = Vec::new();
    let mut rest = list.trim_start().trim_start_matches(',');
    while let Some(open) = rest.trim_start().strip_prefix('{') {
        let (expression, name) = open.split_once(',')?;
        let Some(name) = name.trim_start().strip_prefix('"') else { break };
        let (name, after) = name.split_once('"')?;
        entries.push((evaluate(expression)?, name.to_owned()));
        let after = after.trim_start().strip_prefix('}')?;
        let Some(more) = after.trim_start().strip_prefix(',') else { break };
        rest = more;
    }
    (!entries.is_empty()).then_some(entries)
}

/// Returns the value of a C constant: numbers, casts, `~`, `-`, `<<`, `&`, `|` and brackets.
fn evaluate(text: &str) -> Option<u64> {
    let mut parser = Constant { text: text.as_bytes(), at: 0, depth: 0 };
    let value = parser.or()?;
    parser.blanks();
    (parser.at == parser.text.len()).then_some(value)
}

struct Constant<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Constant<'_> {
    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.blanks();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.and()?;
        while self.eat(b"|") {
            value |= self.and()?;
        }
        Some(value)
    }

    fn and(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.eat(b"&") {
            value &= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.unary()?;
        while self.eat(b"<<") {
            value = value.checked_shl(u32::try_from(self.unary()?).ok()?)?;
        }
        Some(value)
    }

    fn unary(&mut self) -> Option<u64> {
        const DEEPEST: usize = 64;
        self.depth += 1;
        let value = if self.depth > DEEPEST { None } else { self.operand() };
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<u64> {
        if self.eat(b"~") {
            return self.unary().map(|value| !value);
        }
        if self.eat(b"-") {
            return self.unary().map(u64::wrapping_neg);
        }
        if self.eat(b"(") {
            let inside = self.at;
            if self.cast() {
                return self.unary();
            }
            self.at = inside;
            let value = self.or()?;
            return self.eat(b")").then_some(value);
        }
        self.number()
    }

    /// Reads the rest of a cast behind its opening bracket: words and a closing bracket. Returns false if it is no
    /// cast.
    fn cast(&mut self) -> bool {
        self.blanks();
        let word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b' ');
        let begins = self.text.get(self.at).is_some_and(word);
        while self.text.get(self.at).is_some_and(|byte| word(byte) || byte.is_ascii_digit()) {
            self.at += 1;
        }
        begins && self.eat(b")")
    }

    fn number(&mut self) -> Option<u64> {
        self.blanks();
        let from = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_alphanumeric) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[from..self.at]).ok()?;
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        assert_eq!(
            evaluate("( unsigned long)(( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11))))"),
            Some(0xc00)
        );
        assert_eq!(evaluate("(0x400u|0x800u) & ~(( gfp_t)0x400u)"), Some(0x800));
        assert_eq!(evaluate("-1"), Some(u64::MAX));
        assert_eq!(evaluate("1 <<"), None);
        assert_eq!(evaluate(&"(".repeat(10_000)), None);
    }

    #[test]
    fn lists_of_symbols() {
        let print = r#""%s %s", __print_symbolic(REC->mode, {0, "A"}), "#.to_owned()
            + r#"__print_symbolic(REC->reason, {-1, "x"}, {2, "y"})"#;
        let reason = vec![(u64::MAX, "x".to_owned()), (2, "y".to_owned())];
        assert_eq!(symbols(&print, "reason"), Some(reason));
        assert_eq!(symbols(&print, "mode"), Some(vec![(0, "A".to_owned())]));
        assert_eq!(symbols(&print, "status"), None);
    }

    #[test]
    fn names_are_those_that_the_kernel_prints() {
        let table = FlagTable::default();
        assert_eq!(table.render(0x10_0cca), "GFP_HIGHUSER_MOVABLE");
        assert_eq!(table.render(0xdc0), "GFP_KERNEL|__GFP_ZERO");
        assert_eq!(table.value("GFP_KERNEL|__GFP_ZERO"), Some(0xdc0));
        assert_eq!((table.render(0), table.value("none")), ("none".to_owned(), Some(0)));
        assert_eq!(table.value("GFP_KERNEL|x"), None);
    }
}
