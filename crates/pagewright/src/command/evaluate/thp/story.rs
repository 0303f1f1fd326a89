//! The series' story: two processes map a huge page, and each unmaps a part of it.
//!
//! Key type: [`StoryEvent`], an event and what is mapped and allocated after it.
//!
//! Not guaranteed: times; the machine has page tables and records, and no contents of pages.

use super::super::parent::{Parent, failed};
use super::super::{EvaluateError, Figures, Grid};
use super::process::{Machine, enable, leaf};
use pagewright_mm::{MapFlags, Space};
use pagewright_types::{Counter, Level, NodeId, Order, PageRange, Pfn, VirtAddr};

/// An event, and what is mapped and allocated after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoryEvent {
    pub(super) name: &'static str,
    /// Whether parent and child map the page by a PMD.
    pub(super) huge: [bool; 2],
    /// `thp_split_pmd`, `thp_split_page`.
    pub(super) splits: [u64; 2],
    /// Pages of folios that wait to be split.
    pub(super) queued: u64,
    /// Frames of the huge page that are still in a folio.
    pub(super) frames: u64,
}

/// The names of the events, in order.
pub(super) const EVENTS: [&str; 7] = [
    "the parent stores",
    "fork",
    "the child unmaps a half",
    "the parent unmaps the same half",
    "reclaim",
    "the parent exits",
    "the child exits",
];

struct Story {
    parent: Parent<Machine>,
    range: PageRange,
    head: Pfn,
    events: Vec<StoryEvent>,
}

impl Story {
    fn is_huge(&self, space: &Space<Machine>) -> bool {
        // The half that stays mapped.
        let va = self.range.start().add(self.range.len() / 2);
        let leaf = space.map().read().tables(self.parent.mm.tlb()).peek(va).leaf();
        leaf.is_some_and(|leaf| leaf.level() == Level::PMD)
    }

    fn note(&mut self, spaces: [Option<&Space<Machine>>; 2]) {
        let mm = &self.parent.mm;
        let frames = mm.tlb().frames();
        let pages = (0..Order::PMD.frames()).map(|at| self.head.add(at));
        self.events.push(StoryEvent {
            name: EVENTS[self.events.len()],
            huge: spaces.map(|space| space.is_some_and(|space| self.is_huge(space))),
            splits: [Counter::ThpSplitPmd, Counter::ThpSplitPage].map(|counter| mm.counter(counter)),
            queued: u64::from(frames.deferred_pages(NodeId::new(0))),
            frames: pages.filter(|pfn| frames.find_folio(*pfn).is_some()).count() as u64,
        });
    }

    fn unmap_half(&self, space: &Space<Machine>) -> Result<(), EvaluateError> {
        self.parent.mm.munmap(space, self.range.start(), self.range.len() / 2).map_err(failed)
    }
}

/// Tells the story.
pub(super) fn tell() -> Result<Vec<StoryEvent>, EvaluateError> {
    let parent = Parent::without_contents(16 << 20)?;
    enable(&parent, "always")?;
    let range = parent.map(VirtAddr::ZERO, Order::PMD.bytes(), MapFlags::empty())?;
    let head = leaf(&parent, &parent.space, range.start())?;
    let mut story = Story { parent, range, head, events: Vec::new() };
    let of_parent = story.parent.space.clone();
    story.note([Some(&of_parent), None]);
    let (of_child, _) = story.parent.fork()?;
    let both = [Some(&*of_parent), Some(&*of_child)];
    story.note(both);
    story.unmap_half(&of_child)?;
    story.note(both);
    story.unmap_half(&of_parent)?;
    story.note(both);
    story.parent.mm.reclaim(NodeId::new(0), 1);
    story.note(both);
    // The CPU runs another process when these exit.
    let other = story.parent.mm.new_space().map_err(failed)?;
    story.parent.mm.tlb().switch_to(other.table().context());
    story.parent.mm.end_space(&of_parent);
    story.note([None, Some(&of_child)]);
    story.parent.mm.end_space(&of_child);
    story.note([None, None]);
    Ok(story.events)
}

/// The events, with the frames in use before each.
pub(super) fn figures(events: &[StoryEvent]) -> Figures {
    let before = std::iter::once(0).chain(events.iter().map(|event| event.frames));
    let title = "A huge page in two processes, each of which unmaps a half, counted";
    Grid::of(title, events.iter().zip(before))
        .text("event", |(event, _)| event.name)
        .texts(["PMD of the parent", "of the child"], |(event, _)| {
            event.huge.map(|huge| if huge { "yes" } else { "–" })
        })
        .only_json("pmd_of_parent", |(event, _)| event.huge[0].into())
        .only_json("pmd_of_child", |(event, _)| event.huge[1].into())
        .counted("thp_split_pmd", Counter::ThpSplitPmd.name(), |(event, _)| event.splits[0])
        .counted("thp_split_page", Counter::ThpSplitPage.name(), |(event, _)| event.splits[1])
        .counted("pages queued to split", "pages_queued", |(event, _)| event.queued)
        .counted("frames in use", "frames_in_use", |(event, _)| event.frames)
        .text("freed by the event", |(event, before)| before.saturating_sub(event.frames))
        .figures(|(event, _)| [format!("story: {}", event.name), "a huge page in two processes".to_owned()])
}
