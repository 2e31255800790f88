//! Breaking text into lines of a width.

use crate::Look;

impl Look {
    /// Breaks `lead` and `text` at spaces; the lines after the first are indented as far as `lead`.
    #[must_use]
    pub fn wrapped(self, lead: &str, text: &str) -> String {
        self.hanging(lead, lead.chars().count(), text)
    }

    /// Breaks `lead` and `text` at spaces; the lines after the first are indented by `indent`.
    #[must_use]
    pub fn hanging(self, lead: &str, indent: usize, text: &str) -> String {
        hanging(lead, indent, text, self.width)
    }
}

/// Returns `text` with a full stop.
#[must_use]
pub fn sentence(text: &str) -> String {
    format!("{text}.")
}

/// Breaks `text` at spaces into lines of at most `columns` characters, if its words allow.
#[must_use]
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Breaks `lead` and `text` at spaces into lines of at most `columns` characters; the lines after the first are
/// indented by `indent`.
fn hanging(lead: &str, indent: usize, text: &str, columns: usize) -> String {
    let mut out = lead.to_owned();
    let mut column = lead.chars().count();
    let mut first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !first && column + 1 + length > columns {
            out += "\n";
            out += &" ".repeat(indent);
            column = indent;
        } else if !first {
            out += " ";
            column += 1;
        }
        out += word;
        column += length;
        first = false;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_the_width() {
        let text = "one two three four five";
        assert_eq!(hanging("So: ", 4, text, 20), "So: one two three\n    four five\n");
        let word = "averyverylongwordthatfitsnowhere";
        assert_eq!(hanging("", 0, word, 20), format!("{word}\n"));
        assert_eq!(wrapped(text, 13), ["one two three", "four five"]);
    }
}
