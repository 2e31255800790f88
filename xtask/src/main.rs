//! Repository tasks: `cargo xtask tidy`, `ci`, `figures`, `wrap`, `counts`, `fuzz`, `deep`, `campaign`, `nightly`,
//! `mutants`, `deb`, `dist`, `packages`, `python`, `readme`, `book`, `guests`, `states`, `recordings`, `same-figures`.
//!
//! `tidy` holds the rules that the compiler and clippy cannot hold (`rules`). `figures` rewrites figures in prose from
//! the files that they come from; `wrap` fills paragraphs that are too wide. `counts` holds instructions to limits.
//! `fuzz` runs the fuzz targets, the canary among them; `deep` runs sanitizers and Miri, `campaign` adds up slices of
//! random tries, `mutants` breaks the core and asks its tests. `deb` makes the Debian package, `dist` all that a
//! release hands out; `packages` uses the crates as from a registry, `python` builds and tests the Python package,
//! `readme` runs what README tells people to type. `book` builds the pages of `docs` and follows their links. `guests`
//! measures kernels of Debian under the document's workload, `states` lets them label states of memory, `recordings`
//! records them under settings. `same-figures` holds what all commands say equal over a change. `ci` runs what must
//! hold before a change lands and prints what each check took (`.ci/run` installs what it needs and then calls it);
//! `nightly` runs the rest.

mod book;
mod campaign;
mod ci;
mod counts;
mod deb;
mod deep;
mod dist;
mod emulator;
mod figures;
mod finding;
mod fuzz;
mod guests;
mod mutants;
mod packages;
mod python;
mod readme;
mod recordings;
mod results;
mod rules;
mod same_figures;
mod states;
mod tree;
mod wrap;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::tree::{TextFile, Tree};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Repository tasks of nofrag", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules of the repository that no compiler checks
    Tidy,
    /// Run what must hold before a change lands, as continuous integration does after its set-up
    Ci,
    /// Run the checks that take hours, and write results/nightly/DATE.md; goes on where it was cut short
    Nightly(ci::Night),
    /// Rewrite the figures in prose from the files that they are taken from
    Figures,
    /// Fill paragraphs of Markdown and comments again that have a line which is too wide
    Wrap,
    /// Count the instructions of the hottest operations by callgrind; fails above the limits in xtask/src/counts.toml
    Counts(counts::Request),
    /// Run each fuzz target for a while; fails if a target crashes or the canary survives
    Fuzz {
        /// Seconds that each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Build with little optimisation: for a look at whether they hold at all
        #[arg(long)]
        quick_build: bool,
    },
    /// Run what touches memory, what threads share and what reads files of strangers under a sanitizer or Miri
    Deep {
        /// The tool that looks for faults
        finder: deep::Finder,
        /// Only tests that have one of these in their names
        filters: Vec<String>,
    },
    /// Go on with the campaign: slices with fresh seeds, whose sums add up in results/campaign; resumable
    Campaign(campaign::Request),
    /// Break the files that decide, one operator at a time, and see whether their tests notice; resumable, its lines
    /// add up in results/mutants; needs cargo-mutants, which lists the breaks
    Mutants(mutants::Request),
    /// Make the Debian package of the command, with its manual and completions; needs cargo-deb
    Deb,
    /// Make what a release hands out, in target/dist: static programs for two architectures, Debian packages, sums
    Dist,
    /// Pack the crates, test and install them as from a registry, and run README's commands with what was installed
    Packages(packages::Request),
    /// Build and test the Python package, in target/python; needs python3 with venv, and fetches tools by pip
    Python,
    /// Run the commands of README with a program that is built, but for what takes minutes
    Readme {
        /// The program
        #[arg(long, default_value = "target/debug/nofrag")]
        program: PathBuf,
    },
    /// Build the pages of docs as a book, in target/book, and follow its links; needs mdbook
    Book,
    /// Hold what all commands say equal over a change: figure by figure, and line by line for what people see
    SameFigures(same_figures::Request),
    /// Bring guests with kernels of Debian into states of memory, and let the kernel label each by requests; resumable
    States(states::Request),
    /// Measure kernels of Debian under mmtests' thpfioscale, in guests that QEMU emulates; resumable
    Guests(guests::Request),
    /// Record kernels of Debian under settings that matter, in guests that QEMU emulates; resumable
    Recordings(recordings::Request),
}

fn main() -> ExitCode {
    let root = repository_root();
    let outcome = match Cli::parse().task {
        Task::Tidy => tidy(&root),
        Task::Ci => ci::run(&root),
        Task::Nightly(night) => ci::nightly(&root, &night),
        Task::Figures => rewrite(&root, |tree, file| match file.path.as_str() {
            results::INDEX => results::refresh(tree, &file.text),
            _ => figures::refresh(tree, file),
        }),
        Task::Wrap => rewrite(&root, |_, file| wrap::wrap(&file.path, &file.text)),
        Task::Counts(request) => counts::run(&root, &request),
        Task::Fuzz { seconds, quick_build } => {
            let profile = if quick_build { fuzz::Profile::Dev } else { fuzz::Profile::Release };
            fuzz::run(&root, seconds, profile)
        }
        Task::Deep { finder, filters } => deep::run(&root, finder, &filters),
        Task::Campaign(request) => campaign::run(&root, &request),
        Task::Mutants(request) => mutants::run(&root, &request),
        Task::Deb => deb::run(&root),
        Task::Dist => dist::run(&root),
        Task::Packages(request) => packages::run(&root, &request),
        Task::Python => python::run(&root),
        Task::Book => book::run(&root),
        Task::Readme { program } => readme::run(&root, &program),
        Task::SameFigures(request) => same_figures::run(&root, &request),
        Task::Guests(request) => guests::run(&root, &request),
        Task::States(request) => states::run(&root, &request),
        Task::Recordings(request) => recordings::run(&root, &request),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints all findings; true if there are none.
fn tidy(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::read(root)?;
    let findings = rules::check_all(root, &tree)?;
    for finding in &findings {
        println!("{finding}");
    }
    for rules in rules::uncited(&tree) {
        println!("{rules}");
    }
    println!("tidy: {} files, {} findings", tree.files().len(), findings.len());
    Ok(findings.is_empty())
}

/// Rewrites each Markdown and Rust file, except the results themselves, as `change` wants it.
fn rewrite(root: &Path, change: impl Fn(&Tree, &TextFile) -> String) -> anyhow::Result<bool> {
    let tree = Tree::read(root)?;
    let of_people = |file: &&TextFile| {
        let is_result = file.path.starts_with("results/") && file.path != results::INDEX;
        file.is_prose_or_code() && !is_result
    };
    for file in tree.files().iter().filter(of_people) {
        let text = change(&tree, file);
        if text != file.text {
            std::fs::write(root.join(&file.path), text)?;
            println!("rewrote {}", file.path);
        }
    }
    Ok(true)
}

/// Returns the folder above this crate's, wherever the command was called.
fn repository_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("this crate lies in a folder of the repository").to_path_buf()
}
