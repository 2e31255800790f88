//! Named bugs.
