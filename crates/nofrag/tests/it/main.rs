//! Tests of the public interface, one module per document or method.

mod linux_rules;
mod vmap_model;
mod vmap_support;
