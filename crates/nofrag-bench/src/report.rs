//! Tables for people, lines for machines, and the folder of a saved result.

use crate::origin::Origin;
use crate::record::{Group, Measure, Record, Records};
use crate::targets::{Target, TargetVerdict};
use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use nofrag_lab::saved;
use nofrag_show::Spread;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Everything that a run found, with its origin.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub origin: Origin,
    pub targets: Vec<Target>,
    pub records: Records,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Line<'a> {
    Origin(&'a Origin),
    Target(&'a Target),
    Record(&'a Record),
}

impl Report {
    /// Renders all tables as text.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.origin.facts() {
            let _ = writeln!(text, "{name:<13} {value}");
        }
        for warning in self.warnings() {
            let _ = writeln!(text, "WARNING: {warning}");
        }
        for group in Group::value_variants() {
            self.write_group(&mut text, *group);
        }
        let _ = writeln!(text, "\n== Targets\n\n{}", self.targets_table().trim_fmt());
        text.push_str(&self.left_out());
        text
    }

    /// Returns the reasons why the result is weak, if it is.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.origin.made.profile != "measured" {
            let profile = &self.origin.made.profile;
            warnings
                .push(format!("built with profile {profile}, not measured: times are too long"));
        }
        if self.origin.effort != "full" {
            let less = "fewer rounds, seeds and replacements than the protocol asks for";
            warnings.push(format!("a {} run: {less}", self.origin.effort));
        }
        if self.origin.pinned_to.is_none() {
            warnings.push("not pinned to a CPU: rounds may have moved between CPUs".to_owned());
        }
        let loads = [&self.origin.load.0, &self.origin.load.1].map(|load| load.parse::<f64>());
        if loads.into_iter().flatten().any(|load| load > 1.5) {
            let (before, after) = &self.origin.load;
            let load = format!("load {before} before and {after} after");
            warnings.push(format!("the host did other work ({load}): ranges are wide"));
        }
        warnings
    }

    fn write_group(&self, text: &mut String, group: Group) {
        let workloads = self.records.distinct(group, |record| record.workload.as_str());
        if workloads.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n== {}", group.title());
        for workload in workloads {
            let _ =
                writeln!(text, "\n{workload}\n{}", self.workload_table(group, workload).trim_fmt());
        }
    }

    fn workload_table(&self, group: Group, workload: &str) -> Table {
        let of_workload = |record: &&Record| record.group == group && record.workload == workload;
        let records: Vec<&Record> = self.records.0.iter().filter(of_workload).collect();
        let mut measures: Vec<Measure> = records.iter().filter_map(|r| r.measure).collect();
        measures.sort();
        measures.dedup();
        let mut names: Vec<&str> = Vec::new();
        for record in records {
            if !names.contains(&record.contestant.as_str()) {
                names.push(&record.contestant);
            }
        }
        let mut table = empty_table();
        let titles = measures.iter().map(|measure| measure.shown().0);
        table.set_header(["contestant"].into_iter().chain(titles).chain(["note"]));
        for name in names {
            let mut row = vec![name.to_owned()];
            row.extend(measures.iter().map(|&measure| self.cell(workload, name, measure)));
            row.push(self.records.note(workload, name).unwrap_or_default().to_owned());
            table.add_row(row);
        }
        for column in 1..=measures.len() {
            let column = table.column_mut(column).expect("each measure has a column");
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn cell(&self, workload: &str, name: &str, measure: Measure) -> String {
        let Some(spread) = self.records.spread(workload, name, measure) else {
            return "-".to_owned();
        };
        let Spread { median, min, max, .. } = spread;
        let digits = measure.shown().1;
        match measure {
            Measure::Disjoint | Measure::Aligns | Measure::WholeAgain => {
                let answer = if median == 1.0 { "yes" } else { "no" };
                answer.to_owned()
            }
            _ if min == max => format!("{median:.digits$}"),
            _ => format!("{median:.digits$} ({min:.digits$}..{max:.digits$})"),
        }
    }

    fn targets_table(&self) -> Table {
        let mut table = empty_table();
        table.set_header(["target", "bound", "reached", "verdict"]);
        for Target { what, bound, reached, verdict } in self.judged() {
            table.add_row([what, bound, reached, verdict.word()]);
        }
        table
    }

    /// Returns the targets that this run says something about.
    fn judged(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.verdict != TargetVerdict::NotMeasured)
    }

    /// Returns the number of targets of tables that were not made, as a sentence; nothing if there are none.
    fn left_out(&self) -> String {
        match self.targets.len() - self.judged().count() {
            0 => String::new(),
            count => format!("{count} more targets belong to tables that were not made.\n"),
        }
    }

    /// Writes `README.md`, `raw.jsonl` and `summary.txt` into a folder of `root/compare` named after date and tables.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, root: &Path, tables: &str) -> io::Result<PathBuf> {
        let name = format!("{}-{tables}", self.origin.made.date());
        let folder = saved::new_folder(&root.join("compare"), &name)?;
        fs::write(folder.join("README.md"), self.readme())?;
        fs::write(folder.join("summary.txt"), self.summary())?;
        let mut lines = vec![Line::Origin(&self.origin)];
        lines.extend(self.targets.iter().map(Line::Target));
        lines.extend(self.records.0.iter().map(Line::Record));
        let mut raw = String::new();
        for line in lines {
            raw.push_str(&serde_json::to_string(&line)?);
            raw.push('\n');
        }
        fs::write(folder.join("raw.jsonl"), raw)?;
        Ok(folder)
    }

    fn readme(&self) -> String {
        let mut text = String::from(
            "# Side by side\n\nnofrag's range allocator against published crates and the standard library, its small \
             mappings against Linux's rules for them, its address spaces against Linux's design and what others \
             write, and its page frames against published crates, in one run: interleaved rounds, the same \
             operations for all, median (lowest..highest). \
             Contestants that fail or are too slow keep their row, with the reason.\n\n",
        );
        for (name, value) in self.origin.facts() {
            let _ = writeln!(text, "* {name}: {value}");
        }
        for warning in self.warnings() {
            let _ = writeln!(text, "* **{warning}**");
        }
        text.push_str(
            "\n`summary.txt` has all tables; `raw.jsonl` has the origin, each target and each measure with all its \
             samples, one per line.\n\n## Targets\n\n| target | bound | reached | verdict |\n|---|---|---|---|\n",
        );
        for Target { what, bound, reached, verdict } in self.judged() {
            let _ = writeln!(text, "| {what} | {bound} | {reached} | {} |", verdict.word());
        }
        let _ = write!(text, "\n{}", self.left_out());
        text
    }
}

fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}
