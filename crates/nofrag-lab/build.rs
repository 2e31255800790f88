//! Tells whether this is a package, and not the repository.

use std::path::Path;

fn main() {
    // Tests that read data and results of the repository are left out where only the package is.
    println!("cargo::rustc-check-cfg=cfg(packed)");
    if Path::new("Cargo.toml.orig").exists() {
        println!("cargo::rustc-cfg=packed");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
