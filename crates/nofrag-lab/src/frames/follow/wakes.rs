//! Wakes of kswapd, the orders of its runs, and answers on whether compaction helps: the engine's beside those of a
//! kernel's events.

use foldhash::HashMap;
use nofrag::page::{KswapdRun, ZoneKind};
use nofrag::units::Order;

use super::super::events::{Event, Fields, Line};
use super::super::names;
use super::{Follower, NODE};

/// Wakes and requests under way.
#[derive(Clone, Debug, Default)]
pub(in crate::frames) struct Wakes {
    /// Answers for no order in particular, which are always the same.
    pub(in crate::frames) untested: u64,
    /// The highest zones of requests under way, by task.
    open: HashMap<u32, Vec<ZoneKind>>,
    /// The highest zone for which kcompactd was woken.
    kcompactd: Option<ZoneKind>,
    /// The last finished run of kswapd.
    pub(super) last: Option<KswapdRun>,
    /// Wakes by task that are not compared yet: the kernel's, and below, the engine's.
    kernel: Vec<(u32, Order)>,
    own: Vec<(u32, Order)>,
}

impl Wakes {
    /// Notes the requests under way, and the highest zone for which kcompactd was woken.
    fn note(&mut self, lines: &[Line], index: usize) {
        let line = &lines[index];
        match &line.event {
            Event::Begins(Some(end)) => {
                if let Some(Event::Ends(asked)) = lines.get(*end).map(|line| &line.event) {
                    self.open.entry(line.task.pid).or_default().push(asked.request.zone);
                }
            }
            Event::Ends(_) => {
                self.open.entry(line.task.pid).or_default().pop();
            }
            Event::WakesKswapd(order) => self.kernel.push((line.task.pid, *order)),
            Event::KcompactdWakes(fields) => {
                self.kcompactd = fields.get("classzone_idx").and_then(zone_kind)
            }
            _ => {}
        }
    }
}

fn zone_kind(name: &str) -> Option<ZoneKind> {
    ZoneKind::ALL.into_iter().find(|kind| kind.name() == name)
}

impl Follower<'_> {
    /// Compares the orders of kswapd's runs and the answers on compaction, of which events tell before the engine acts.
    pub(super) fn before_act(&mut self, lines: &[Line], index: usize) {
        self.tally.wakes.note(lines, index);
        let line = &lines[index];
        match &line.event {
            Event::KswapdWakes(order) => {
                if let Some(last) = &self.tally.wakes.last {
                    self.pages.kswapd_goes_on(last);
                }
                let asked = self.pages.kswapd(NODE).and_then(|kswapd| kswapd.asked);
                let ours = asked.map(|(order, _)| order);
                self.tally.count(names::KSWAPD_RUNS, ours == Some(*order));
                if ours != Some(*order) {
                    self.differs(line.number, "run of kswapd", &Some(*order), &ours);
                }
            }
            Event::Suitable(fields) => self.judge_suitable(line, fields),
            _ => {}
        }
    }

    /// Compares the wakes of the operation that has just ended: until then, the engine has not made the request.
    pub(super) fn after_act(&mut self, line: &Line) {
        let pid = line.task.pid;
        let own = self.heard.woken.take();
        self.tally.wakes.own.extend(own.into_iter().map(|order| (pid, order)));
        if matches!(line.event, Event::Ends(_)) {
            self.compare_wakes(line.number, |of| of == pid);
        }
    }

    /// Compares the wakes by the tasks that fit `of`.
    pub(super) fn compare_wakes(&mut self, line: usize, of: impl Fn(u32) -> bool) {
        let wakes = &mut self.tally.wakes;
        let kernel: Vec<_> = wakes.kernel.extract_if(.., |(pid, _)| of(*pid)).collect();
        let own: Vec<_> = wakes.own.extract_if(.., |(pid, _)| of(*pid)).collect();
        for at in 0..kernel.len().max(own.len()) {
            self.tally.count(names::WOKEN, kernel.get(at) == own.get(at));
        }
        if kernel != own {
            self.differs(line, "wake of kswapd", &kernel, &own);
        }
    }

    fn judge_suitable(&mut self, line: &Line, fields: &Fields) {
        if fields.get("order") == Some("-1") {
            self.tally.wakes.untested += 1;
            return;
        }
        let order = fields.order("order");
        let zone = fields.get("zone").and_then(|name| self.zone(name));
        let (Some(order), Some(zone)) = (order, zone) else { return };
        let theirs = fields.suitability();
        let Some(highest) = self.highest(line) else { return };
        let ours = self.pages.suits_compaction(zone, order, highest);
        let same = ours == Some(theirs);
        self.tally.count(names::SUITABLE, same);
        if !same {
            let name = fields.get("zone").unwrap_or("");
            let told = format!("{name}: {:?}", ours);
            self.differs(line.number, "suitability", &format!("{name}: {theirs:?}"), &told);
        }
    }

    /// Returns the highest zone that the task of this line can use.
    fn highest(&self, line: &Line) -> Option<ZoneKind> {
        let name = &line.task.name;
        if name.starts_with("kswapd") {
            return self.noted.as_ref().map(|run| run.wanted().1);
        }
        if name.starts_with("kcompactd") {
            return self.tally.wakes.kcompactd;
        }
        self.tally.wakes.open.get(&line.task.pid)?.last().copied()
    }
}
