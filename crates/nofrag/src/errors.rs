//! Macros that write error types: each variant stands beside its text.

/// Errors that can be copied, compared and shown: enums whose variants each have a text, or the text of a struct.
///
/// ```text
/// errors! {
///     /// Why there is no tea.
///     #[non_exhaustive]
///     pub enum TeaError {
///         /// The pot is empty.
///         Empty => "the pot is empty",
///         /// The pot is too hot.
///         Hot {
///             /// Its temperature.
///             degrees: u32,
///         } => "wait: it has {degrees} degrees",
///         /// There is no pot.
///         NoPot(why: PotError) => "no pot: {why}",
///     }
/// }
/// errors!(NoKettle => "there is no kettle");
/// ```
///
/// A text is a format string. It sees the variant's fields and the constants in scope; `with` gives it an expression.
/// Fields of a tuple are named for it alone: the variant is `NoPot(PotError)`.
macro_rules! errors {
    ($(
        $(#[$about:meta])*
        pub enum $name:ident $(<$inner:ident>)? {$(
            $(#[$variant_about:meta])*
            $variant:ident
                $({ $($(#[$field_about:meta])* $field:ident: $field_type:ty,)+ })?
                $(( $($part:ident: $part_type:ty),+ ))?
                => $text:literal $(with $value:expr)?,
        )+}
    )+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name $(<$inner>)? {$(
            $(#[$variant_about])*
            $variant $({ $($(#[$field_about])* $field: $field_type,)+ })? $(($($part_type),+))?,
        )+}

        impl $(<$inner: core::fmt::Display>)? core::fmt::Display for $name $(<$inner>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {$(
                    Self::$variant $({ $($field),+ })? $(($($part),+))? => {
                        write!(f, $text $(, $value)?)
                    }
                )+}
            }
        }

        impl $(<$inner: core::fmt::Debug + core::fmt::Display>)? core::error::Error
            for $name $(<$inner>)? {}
    )+};
    ($name:ident $({ $($field:ident),+ })? => $text:literal) => {
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let $name $({ $($field),+ })? = self;
                write!(f, $text)
            }
        }

        impl core::error::Error for $name {}
    };
}

/// Lets `?` turn an error without details into the variant of an operation's error that stands for it.
macro_rules! turns_into {
    ($($cause:ident => $name:ident::$answer:ident $(($inner:expr))?),+ $(,)?) => {$(
        impl From<$cause> for $name {
            fn from(_: $cause) -> $name {
                $name::$answer $(($inner))?
            }
        }
    )+};
}

pub(crate) use {errors, turns_into};
