//! The probe itself: its answers, its refusals, and that nothing of it stays.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::apparatus::probe::{
    Difference, Errno, Kind, MOST_STEPS, MapAt, Operation, Outcome, Probe, ProbeError, Step, Width,
};
use nofrag::mmap::{Direction, Protection};
use rustix::process::{Pid, Signal, kill_process};

const ALL: [(Width, Direction); 4] = [
    (Width::Bits64, Direction::Down),
    (Width::Bits64, Direction::Up),
    (Width::Bits32, Direction::Down),
    (Width::Bits32, Direction::Up),
];

/// Starts a probe of every kind that this system allows.
fn probes() -> impl Iterator<Item = Probe> {
    ALL.iter().filter_map(|&(width, direction)| match Probe::start(width, direction) {
        Ok(probe) => Some(probe),
        Err(why @ ProbeError::Unavailable { .. }) => {
            eprintln!("skipped: {width:?} {direction:?}: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    })
}

fn map(at: MapAt) -> Operation {
    Operation::Map { at, kind: Kind::Plain, bytes: 0x3000, protection: Protection::NONE }
}

fn step(operation: Operation, expected: Outcome) -> Step {
    Step { operation, expected }
}

/// Returns the outcome of any operation.
fn outcome(probe: &mut Probe, operation: Operation) -> Outcome {
    // No system call returns this.
    let difference = probe.run(&[step(operation, Ok(7))]).unwrap();
    difference.expect("the outcome differs from 7").outcome
}

#[test]
fn mappings_begin_at_the_base_that_the_rule_gives() {
    for mut probe in probes() {
        let layout = *probe.layout();
        // The kernel's own mapping touches the base; the next mapping touches that.
        let own = probe.own().iter().map(|area| (area.start, area.end));
        let expected = match layout.direction {
            Direction::Up => own.fold(
                layout.base.0 << 12,
                |edge, (start, end)| if start == edge { end } else { edge },
            ),
            Direction::Down => {
                let edge =
                    own.rev().fold(
                        layout.top.0 << 12,
                        |edge, (start, end)| {
                            if end == edge { start } else { edge }
                        },
                    );
                edge - 0x3000
            }
        };
        assert_eq!(outcome(&mut probe, map(MapAt::Anywhere)), Ok(expected), "{layout:x?}");
        assert!(probe.areas().unwrap().iter().any(|area| area.start == expected));
    }
}

#[test]
fn the_floor_is_where_low_hints_end_up() {
    for mut probe in probes() {
        let floor = probe.layout().floor.0 << 12;
        assert_eq!(outcome(&mut probe, map(MapAt::Hint(4096))), Ok(floor));
    }
}

#[test]
fn steps_after_a_difference_are_not_carried_out() {
    for mut probe in probes() {
        let place = outcome(&mut probe, map(MapAt::Anywhere)).unwrap();
        let before = probe.areas().unwrap();
        let steps = [
            step(map(MapAt::Unless(place)), Err(Errno::EXIST)),
            step(map(MapAt::Unless(place)), Ok(place)),
            step(Operation::Unmap { start: place, bytes: 0x3000 }, Ok(0)),
        ];
        let difference = probe.run(&steps).unwrap();
        assert_eq!(difference, Some(Difference { step: 1, outcome: Err(Errno::EXIST) }));
        assert_eq!(probe.areas().unwrap(), before);
        assert_eq!(probe.run(&steps[2..]).unwrap(), None);
        assert_ne!(probe.areas().unwrap(), before);
    }
}

#[test]
fn a_full_batch_is_answered() {
    for mut probe in probes() {
        let nothing = step(Operation::Unmap { start: 0, bytes: 0 }, Err(Errno::INVAL));
        assert_eq!(probe.run(&[nothing; MOST_STEPS]).unwrap(), None);
        let refused = probe.run(&[nothing; MOST_STEPS + 1]);
        assert!(matches!(refused, Err(ProbeError::NoRoom)), "{refused:?}");
    }
}

#[test]
fn what_the_probe_lives_on_cannot_be_touched() {
    for mut probe in probes() {
        let own_end = probe.own().last().unwrap().end;
        for area in probe.own().to_vec() {
            let start = area.start - 4096;
            let operations = [
                Operation::Unmap { start, bytes: 4097 },
                Operation::Protect {
                    start: area.end - 4096,
                    bytes: 1,
                    protection: Protection::NONE,
                },
                map(MapAt::Fixed(area.start)),
                Operation::Unmap { start, bytes: u64::MAX },
            ];
            // In 32 bits an address above 4 GiB would arrive as one below.
            let wrapped = Operation::Unmap { start: area.start + (1 << 32), bytes: (1 << 32) + 1 };
            let is_narrow = area.end <= 1 << 32 && own_end <= 1 << 32;
            let operations = operations.into_iter().chain(is_narrow.then_some(wrapped));
            for operation in operations {
                let refused = probe.run(&[step(operation, Ok(0))]);
                assert!(matches!(refused, Err(ProbeError::OwnArea { .. })), "{operation:x?}");
            }
        }
    }
}

#[test]
fn nothing_of_a_probe_stays() {
    for probe in probes() {
        let process = format!("/proc/{}", probe.process_id());
        assert!(fs::read_to_string(format!("{process}/maps")).is_ok());
        drop(probe);
        assert!(!Path::new(&process).exists(), "{process}");
    }
}

/// Stops and continues this process while it waits for the probe: calls with a time limit are interrupted by that.
#[test]
fn a_stop_and_a_continuation_lose_nothing() {
    let Some(mut probe) = probes().next() else { return };
    let other = Pid::from_raw(probe.process_id().cast_signed()).unwrap();
    kill_process(other, Signal::STOP).unwrap();
    probe.send(&[step(Operation::Unmap { start: 0, bytes: 0 }, Err(Errno::INVAL))]).unwrap();
    let script = "sleep 0.2; kill -STOP $1; sleep 0.1; kill -CONT $1; sleep 0.1; kill -CONT $2";
    let (own, other) = (std::process::id().to_string(), probe.process_id().to_string());
    let mut shell = Command::new("sh").args(["-c", script, "sh", &own, &other]).spawn().unwrap();
    assert_eq!(probe.receive().unwrap(), None);
    assert!(shell.wait().unwrap().success());
}

#[test]
fn an_ended_probe_is_an_error() {
    for mut probe in probes() {
        let other = Pid::from_raw(probe.process_id().cast_signed()).unwrap();
        kill_process(other, Signal::KILL).unwrap();
        let nothing = step(Operation::Unmap { start: 0, bytes: 0 }, Err(Errno::INVAL));
        // The first batch may still find room in the socket of a process that is about to end.
        let lost = probe.run(&[nothing]).and_then(|_| probe.run(&[nothing]));
        assert!(matches!(lost, Err(ProbeError::Lost(_))), "{lost:?}");
    }
}

/// The probe has no limits of bytes, even if this process has soft ones: its mappings go by addresses alone.
#[test]
fn limits_of_bytes_are_not_the_probes() {
    for probe in probes() {
        let limits = fs::read_to_string(format!("/proc/{}/limits", probe.process_id())).unwrap();
        for name in ["Max address space", "Max data size"] {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line[name.len()..].trim_start().starts_with("unlimited"), "{line}");
        }
    }
}
