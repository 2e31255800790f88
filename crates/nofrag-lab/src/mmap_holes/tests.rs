use super::catalogue::{End, ends_of, named};
use super::*;
use crate::key::Key;
use crate::oracle::{ClaimKind, Oracle};
use crate::scenario::{Extent, Mode, Silent};

/// Returns the options of a run that ends at once.
fn small(mask: &str) -> Options {
    let mask = Some(mask.to_owned());
    Options { mask, repeat: Some(2), loops: Some(3_000), threads: Some(2), ..Options::default() }
}

fn run(options: &Options) -> Report {
    let report = SCENARIO.run(options, &Silent).unwrap();
    let broken: Vec<_> = report.broken().map(|oracle| oracle.id.as_str()).collect();
    assert_eq!(broken, [""; 0]);
    let text = text_of(&report);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    report
}

fn text_of(report: &Report) -> String {
    nofrag_show::text(&(SCENARIO.present)(report))
}

fn among(designs: &[&str], options: Options) -> Options {
    Options { designs: designs.iter().map(|design| (*design).to_owned()).collect(), ..options }
}

fn count(report: &Report, program: &str, design: &str, key: Key) -> f64 {
    report.measurement(program, design).unwrap().count(key).unwrap()
}

fn oracle<'a>(report: &'a Report, id: &str) -> &'a Oracle {
    report.oracles.iter().find(|oracle| oracle.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn the_published_maps_of_leakme4_are_met_address_for_address() {
    let report = run(&small("leakme4"));
    let designs = ["linux-2.4", "linux-2.5.44", "chen-2005", "wander-2005", "linux-2.6.13"];
    let counted = designs.map(|design| count(&report, "leakme4", design, names::COUNTED));
    assert_eq!(counted, [2.0, 17.0, 17.0, 2.0, 2.0]);
    for design in designs {
        assert!(oracle(&report, &format!("leakme4-map/{design}")).holds);
    }
    assert!(text_of(&report).contains("leakme4: areas between the program and the stack"));
}

/// A misspelt program, row or quantity would make no claim, and nobody would see it.
#[test]
fn every_published_figure_is_of_a_row_that_runs_and_is_judged_or_shown() {
    let shown = [
        names::ALIGNED_PERCENT,
        names::VISITS_OF_A_WALK,
        names::SECONDS,
        names::SECONDS_AT_LEAST,
        Key::number("its ratio"),
    ];
    let known =
        |key: &Key| claims::JUDGED.iter().any(|(judged, _)| judged == key) || shown.contains(key);
    let figures = figures::wander_2005();
    let rows =
        figures.tables.iter().flat_map(|table| table.rows.keys().map(|row| (&table.program, row)));
    let maps =
        figures.maps.iter().flat_map(|map| map.designs.iter().map(|row| (&map.program, row)));
    for (program, row) in rows.chain(maps) {
        let program = program.parse().unwrap();
        let design = row.strip_suffix(names::DOWNWARDS).unwrap_or(row);
        let preset = Placement::preset(design).unwrap();
        let runs = |end: &End| *row == named(design, *end);
        assert!(ends_of(program, &preset).iter().any(runs), "{program:?} {row}");
    }
    for (_, key, _) in figures.tables.iter().flat_map(|table| table.figures()) {
        assert!(known(key), "{key}");
    }
}

#[test]
fn a_claim_about_areas_can_fail() {
    let options = among(&["linux-2.5.44", "linux-2.4"], small("leakme4"));
    let mut report = SCENARIO.run(&options, &Silent).unwrap();
    // Exchange the maps of two designs.
    let [one, other] = [0, 1].map(|at| report.measurements[at].series.clone());
    report.measurements[0].series = other;
    report.measurements[1].series = one;
    report.oracles.clear();
    claims::judge(&plan(&options).unwrap(), &mut report);
    assert!(report.broken().any(|oracle| oracle.id == "leakme4-map/linux-2.4"));
}

#[test]
fn the_document_and_the_coded_rule_take_different_regions() {
    let report = run(&small("five_regions"));
    let taken = |design| count(&report, "five_regions", design, names::AFTER_4_2_3);
    assert_eq!(
        [taken("last-unmapped"), taken("linux-2.5.44"), taken("linux-2.4")],
        [3.0, 2.0, 2.0]
    );
    let larger = |design| count(&report, "five_regions", design, names::LARGER_BETWEEN);
    assert_eq!([larger("linux-2.5.44"), larger("linux-2.5.44, down")], [3.0, 3.0]);
    assert_eq!([larger("linux-2.4"), larger("linux-6.12, down")], [2.0, 2.0]);
    assert!(report.notes.iter().any(|note| note.contains("The rule as it was coded")));
}

#[test]
fn n_stacks_cost_first_fit_n_squared_visits() {
    let report = run(&among(&["linux-2.4", "linux-2.6.11"], small("test_str02")));
    assert_eq!(count(&report, "test_str02", "linux-2.4", names::VISITS_IN_ALL), 3_600.0);
    assert_eq!(count(&report, "test_str02", "linux-2.4", names::AREAS), 120.0);
    assert!(count(&report, "test_str02", "linux-2.5.44", names::VISITS_IN_ALL) < 200.0);
}

#[test]
fn the_first_hole_gives_the_addresses_of_first_fit_and_the_cache_others() {
    let designs = ["linux-2.4", "molnar-2002", "linux-2.5.44"];
    let options = Options { extent: Extent::Full, ..small("leakme,leakme_libs,mix1") };
    let report = run(&among(&designs, options));
    for program in ["leakme", "leakme_libs", "mix1"] {
        let digest = |design| &report.measurement(program, design).unwrap().digest;
        assert_eq!(digest("linux-2.4"), digest("molnar-2002"));
        assert_ne!(digest("linux-2.4"), digest("linux-2.5.44"));
    }
}

#[test]
fn every_claim_can_be_read_in_the_list_of_claims() {
    let report = run(&small("leakme4,five_regions,test_str02"));
    for oracle in &report.oracles {
        assert!(oracle.id.chars().count() <= 36, "{}", oracle.id);
    }
    assert_eq!(oracle(&report, "leakme4-order/molnar-2002").kind, ClaimKind::Exact);
}

#[test]
fn a_picture_shows_the_window_at_several_times() {
    let report = run(&small("leakme,leakme_3g"));
    let rows = &report.measurement("leakme", "linux-2.4").unwrap().series;
    assert_eq!(rows[&names::OCCUPANCY_AT], [600.0, 3_000.0]);
    assert_eq!(rows[&names::OCCUPANCY].len(), 2 * turns::PARTS);
    let used: f64 = rows[&names::OCCUPANCY][turns::PARTS..].iter().sum();
    let live = used / turns::PARTS as f64 * 2730.7;
    assert!((2_490.0..2_515.0).contains(&live), "{live} MiB are live");
    let text = text_of(&report);
    for part in ["█", "linux-2.4: ", "nofrag: ", "0x55555000", "3 GiB of a 64-bit space"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn multiples_of_a_huge_page_are_aligned_where_a_design_aligns_them() {
    let report = run(&small("leakme_64"));
    let share = |design| {
        let multiples = count(&report, "leakme_64", design, names::MULTIPLES);
        count(&report, "leakme_64", design, names::ALIGNED) / multiples
    };
    assert_eq!(
        [share("linux-6.12, down"), share("exact-aligned, down"), share("nofrag")],
        [1.0; 3]
    );
    assert_eq!(share("linux-3.8, down"), 0.0);
}

#[test]
fn written_memory_merges_less() {
    let options = Options { extent: Extent::Full, ..small("touched,leakme") };
    let report = run(&among(&["linux-2.4", "linux-2.5.44", "exact-aligned"], options));
    let mut more = 0;
    for row in &report.settings.designs {
        let areas = |program| count(&report, program, row, names::PEAK_AREAS);
        assert!(areas("touched") >= areas("leakme"), "{row}");
        more += u64::from(areas("touched") > areas("leakme"));
    }
    assert!(more > 0, "somewhere a bridge does not merge");
}

#[test]
fn a_window_that_is_too_small_is_not_survived() {
    let options = among(&["linux-2.4", "best-fit"], small("survival"));
    let report = run(&options);
    let window = |design| count(&report, "survival", design, names::WINDOW_MIB);
    assert!(window("linux-2.4") >= window("best-fit") && window("best-fit") >= 2502.0);
}

#[test]
fn visits_and_steps_are_shown_for_every_design() {
    let report = run(&small("unmergeable_1k,unmergeable_10k,mix0"));
    for row in &report.measurements {
        let effort = [names::VISITS, names::STEPS].map(|name| row.count(name).unwrap());
        assert!(effort.iter().sum::<f64>() > 0.0, "{} {}", row.program, row.design);
    }
    let text = text_of(&report);
    for part in ["502/1,000", "4,943/9,988", "602/720", "Nanoseconds of a map"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn the_same_seed_counts_the_same_and_another_one_differs() {
    let counts = |seed| {
        let options = among(&["linux-2.4", "nofrag"], small("mix2"));
        let report = run(&Options { seed: Some(seed), ..options });
        report.measurements.into_iter().map(|m| m.counts).collect::<Vec<_>>()
    };
    assert_eq!(counts(0), counts(0));
    assert_ne!(counts(0), counts(1));
}

#[test]
fn json_gives_the_same_report_back() {
    let report = run(&small("leakme4,test_str02"));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused(Options { mode: Mode::Soak, ..small("leakme") }).contains("compare"));
    assert!(refused(Options { repeat: Some(0), ..small("leakme") }).starts_with("--repeat"));
    assert!(refused(Options { loops: Some(0), ..small("leakme") }).starts_with("--loops"));
    assert!(refused(Options { threads: Some(0), ..small("leakme") }).starts_with("--threads"));
    assert!(refused(small("w1")).contains("leakme4 (4)"));
    assert!(refused(among(&["linux-2.2"], small("leakme"))).contains("linux-2.4"));
}
