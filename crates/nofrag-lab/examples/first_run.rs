//! A published comparison, replayed: each exact claim is confirmed or refuted.

use nofrag_lab::scenario::Silent;
use nofrag_lab::{Options, scenarios};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let blocks = scenarios().iter().find(|it| it.name == "vmap-blocks-2023").expect("it is one");
    // One program and a few loops for a first look; by default all, with as many loops as their author's.
    let mask = Some("model_5p".to_owned());
    let options = Options { mask, loops: Some(600), ..Options::default() };
    let report = blocks.run(&options, &Silent)?;
    assert_eq!(report.broken().count(), 0, "every exact claim holds");
    Ok(())
}
