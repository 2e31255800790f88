//! A result as JSON: what it is, then its fields.

use serde::Serialize;

/// The name of the form of a result: `nofrag schema` prints the form of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name of the form, such as `nofrag.replay`.
    pub name: &'static str,
    /// Version of the form: a field that is removed or changes its meaning raises it; a new one does not.
    pub version: u32,
}

impl Schema {
    /// The form of what `nofrag host` finds.
    pub const HOST: Schema = Schema { name: "nofrag.host", version: 1 };
    /// The form of what `nofrag replay` finds.
    pub const REPLAY: Schema = Schema { name: "nofrag.replay", version: 1 };

    /// Returns `content` with this form's name and version before its fields.
    pub fn of<T: Serialize>(self, content: &T) -> Document<'_, T> {
        Document { schema: self.name, version: self.version, content }
    }
}

/// A result under its schema.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Document<'a, T> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}
