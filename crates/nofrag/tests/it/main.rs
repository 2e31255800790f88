//! Tests of the public interface, one module per document or method.

mod linux_rules;
