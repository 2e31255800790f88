//! Handles over frames: blocks that compaction moves, and blocks that it must not move.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::page::{FragmentationPolicy, Migratetype, MoveResults, Moves};
use nofrag::units::Order;
use nofrag_backing::frames::{Effort, FrameRequest, Frames, FramesConfig, Residents, Use};
use nofrag_backing::moving::{Background, Handle, HandleError, Handles, NoHandle, Pace};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const MEMORY: u64 = 32 << 20;

fn handles() -> (Arc<Handles>, CpuId) {
    handles_under(FragmentationPolicy::NOFRAG)
}

fn handles_under(policy: FragmentationPolicy) -> (Arc<Handles>, CpuId) {
    let config = FramesConfig { policy, ..FramesConfig::new(MEMORY) };
    let handles = Handles::new(&config, (MEMORY >> 12) as u32).unwrap();
    let owner = handles.owners().by_rank(0).unwrap();
    (handles, owner)
}

fn write(handles: &Handles, handle: Handle, value: u64) {
    handles.pin(handle).unwrap().iter().for_each(|word| word.store(value, Ordering::Relaxed));
}

fn holds(handles: &Handles, handle: Handle, value: u64) -> bool {
    handles.pin(handle).unwrap().iter().all(|word| word.load(Ordering::Relaxed) == value)
}

/// Fills all memory with pages and gives back all but every eighth; returns those, each with the number written to it.
fn sparse(handles: &Handles, owner: CpuId) -> Vec<(Handle, u64)> {
    let all = std::iter::from_fn(|| handles.alloc(owner, Order::ZERO).ok()).collect::<Vec<_>>();
    let mut kept = Vec::new();
    for (handle, number) in all.into_iter().zip(0..) {
        if number % 8 == 0 {
            write(handles, handle, number);
            kept.push((handle, number));
        } else {
            handles.free(owner, handle).unwrap();
        }
    }
    handles.drain();
    kept
}

fn whole_blocks(handles: &Handles) -> u64 {
    handles.stats().obtainable(Order::PAGEBLOCK)
}

#[test]
fn compaction_frees_whole_blocks_and_keeps_what_pages_hold() {
    let (handles, owner) = handles();
    let kept = sparse(&handles, owner);
    assert_eq!(whole_blocks(&handles), 0);
    let landed = handles.compact();
    assert_eq!(landed.stayed, 0);
    handles.check().unwrap();
    // 16 blocks, an eighth of the pages: two are full.
    assert_eq!(whole_blocks(&handles), 14);
    assert!(kept.iter().all(|&(handle, number)| holds(&handles, handle, number)));
}

#[test]
fn what_is_pinned_stays_where_it_is() {
    let (handles, owner) = handles();
    let kept = sparse(&handles, owner);
    let pinned: Vec<_> = kept.iter().step_by(16).map(|&(h, _)| handles.pin(h).unwrap()).collect();
    let places: Vec<_> = pinned.iter().map(|pin| pin.block()).collect();
    let landed = handles.compact();
    assert!(landed.moved > 0);
    assert!(pinned.iter().zip(&places).all(|(pin, &place)| pin.block() == place));
    let again = |&(h, _): &(Handle, u64)| handles.pin(h).unwrap().block();
    let after: Vec<_> = kept.iter().step_by(16).map(again).collect();
    assert_eq!(after, places);
    drop(pinned);
    handles.check().unwrap();
    assert!(kept.iter().all(|&(handle, number)| holds(&handles, handle, number)));
}

#[test]
fn a_handle_is_refused_once_its_block_was_given_back() {
    let (handles, owner) = handles();
    let handle = handles.alloc(owner, Order::ZERO).unwrap();
    let pin = handles.pin(handle).unwrap();
    assert!(matches!(handles.free(owner, handle), Err(HandleError::Pinned(_))));
    drop(pin);
    handles.free(owner, handle).unwrap();
    assert_eq!(handles.free(owner, handle), Err(HandleError::Stale));
    let next = handles.alloc(owner, Order::ZERO).unwrap();
    assert_ne!(handle, next, "the slot has a new generation");
    assert_eq!(handles.pin(handle).err(), Some(HandleError::Stale));
    let _pin = handles.pin(next).unwrap();
    assert_eq!(handles.free(owner, handle), Err(HandleError::Stale), "though its slot is pinned");
    handles.alloc(owner, Order::new(3).unwrap()).unwrap();
    handles.check().unwrap();
}

#[test]
fn a_request_that_finds_no_memory_costs_no_handle() {
    const COUNT: usize = 16;
    let handles = Handles::new(&FramesConfig::new(MEMORY), COUNT as u32).unwrap();
    let owner = handles.owners().by_rank(0).unwrap();
    let ask = || handles.alloc(owner, Order::MAX);
    let taken: Vec<Handle> = std::iter::from_fn(|| ask().ok()).collect();
    assert!(taken.len() < COUNT, "memory is used up before the handles are");
    for _ in 0..COUNT {
        assert!(matches!(ask(), Err(NoHandle::Frames(_))));
    }
    handles.check().unwrap();
    handles.free(owner, taken[0]).unwrap();
    ask().unwrap();
}

#[test]
fn a_block_that_is_taken_anew_holds_zeros() {
    let (handles, owner) = handles();
    let kept = sparse(&handles, owner);
    handles.compact();
    let blocks = std::iter::from_fn(|| handles.alloc(owner, Order::PAGEBLOCK).ok());
    let blocks: Vec<_> = blocks.collect();
    assert_eq!(blocks.len(), 14);
    assert!(blocks.iter().all(|&block| holds(&handles, block, 0)));
    assert!(kept.iter().all(|&(handle, number)| holds(&handles, handle, number)));
}

#[test]
fn threads_use_pages_while_others_take_give_back_and_compact() {
    let (handles, owner) = handles();
    let stop = AtomicBool::new(false);
    let work = |seed: u64| {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut own: Vec<(Handle, u64)> = Vec::new();
        let mut written = seed << 32;
        while !stop.load(Ordering::Relaxed) {
            if own.len() < 2000 && random.random_bool(0.55) {
                let order = Order::new(random.random_range(0..3)).unwrap();
                let Ok(handle) = handles.alloc(owner, order) else { continue };
                written += 1;
                write(&handles, handle, written);
                own.push((handle, written));
            } else if !own.is_empty() {
                let (handle, value) = own.swap_remove(random.random_range(0..own.len()));
                assert!(holds(&handles, handle, value));
                handles.free(owner, handle).unwrap();
            }
        }
        own.iter().for_each(|&(handle, value)| assert!(holds(&handles, handle, value)));
    };
    let moved = AtomicU64::new(0);
    thread::scope(|scope| {
        (1..3).for_each(|seed| drop(scope.spawn(move || work(seed))));
        let begin = Instant::now();
        let (enough, too_long) = (Duration::from_millis(300), Duration::from_secs(60));
        // Under a sanitizer it takes long until there is something to move.
        while begin.elapsed() < enough
            || moved.load(Ordering::Relaxed) == 0 && begin.elapsed() < too_long
        {
            moved.fetch_add(handles.compact().moved, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(moved.into_inner() > 0, "something moved");
    handles.check().unwrap();
}

#[test]
fn kcompactd_works_ahead_on_a_thread_and_stops_cleanly() {
    let mut policy = FragmentationPolicy::NOFRAG;
    policy.compaction.proactiveness = Some(100);
    let (handles, owner) = handles_under(policy);
    let kept = sparse(&handles, owner);
    let pace = Pace { look_every: Duration::from_millis(5), ..Pace::default() };
    let daemon = Background::of_handles(&handles, pace).unwrap();
    // The daemon looks at the score twice a second.
    let end = Instant::now() + Duration::from_secs(20);
    while whole_blocks(&handles) < 13 && Instant::now() < end {
        daemon.nudge();
        thread::sleep(Duration::from_millis(10));
    }
    let worked = daemon.stop();
    assert!(whole_blocks(&handles) >= 13, "{worked:?}");
    assert!(worked.moved > 0);
    handles.check().unwrap();
    assert!(kept.iter().all(|&(handle, number)| holds(&handles, handle, number)));
}

/// Lets a request fail, and then kcompactd work ahead: the failure wakes kswapd, and kcompactd does not work ahead
/// while that is awake.
#[test]
fn kcompactd_works_ahead_after_a_request_has_failed() {
    let mut policy = FragmentationPolicy::NOFRAG;
    policy.compaction.proactiveness = Some(100);
    let config = FramesConfig { policy, ..FramesConfig::new(MEMORY) };
    let handles = Arc::new(Handles::new(&config, 1 + (MEMORY >> 12) as u32).unwrap());
    let owner = handles.owners().by_rank(0).unwrap();
    let kept = sparse(&handles, owner);
    assert_eq!(kept.len() as u64, MEMORY >> 15, "it went on up to a request that failed");
    let pace = Pace { look_every: Duration::from_millis(5), ..Pace::default() };
    let daemon = Background::of_handles(&handles, pace).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while daemon.worked().moved == 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(daemon.stop().moved > 0);
    handles.check().unwrap();
}

#[test]
fn kcompactd_stops_in_the_middle_with_nothing_set_aside() {
    let mut policy = FragmentationPolicy::NOFRAG;
    policy.compaction.proactiveness = Some(100);
    let (handles, owner) = handles_under(policy);
    let kept = sparse(&handles, owner);
    let step = nofrag::page::PageBudget { pages: 16 };
    let pace = Pace { step, look_every: Duration::from_millis(1) };
    let daemon = Background::of_handles(&handles, pace).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while daemon.worked().moved == 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    drop(daemon);
    handles.check().unwrap();
    let free = handles.stats().free.0;
    assert_eq!(free + kept.len() as u64, MEMORY >> 12, "what is not in use is free");
}

/// A resident that owns the thread that calls it, and moves nothing.
#[derive(Debug)]
struct OwnerOfThread {
    daemon: Mutex<Option<Background>>,
    called: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Residents for OwnerOfThread {
    fn move_frames(&self, _: &Moves) -> MoveResults {
        // A test that no longer waits has failed already.
        let _ = self.called.lock().unwrap().send(());
        let _ = self.go_on.lock().unwrap().recv();
        MoveResults(0)
    }
}

#[test]
fn kcompactd_may_drop_its_own_owner() {
    let mut policy = FragmentationPolicy::NOFRAG;
    policy.compaction.proactiveness = Some(100);
    let frames = Frames::new(&FramesConfig { policy, ..FramesConfig::new(MEMORY) }).unwrap();
    let (frames, page) = (Arc::new(frames), FrameRequest::new(Order::ZERO, Migratetype::Movable));
    let page = page.effort(Effort::AtHand);
    let owner = frames.owners().by_rank(0).unwrap();
    let all: Vec<_> = (0..frames.len().0).map(|_| frames.alloc(owner, page).unwrap()).collect();
    for (block, number) in all.into_iter().zip(0..) {
        if number % 8 == 0 {
            frames.set_use(block.pfn, Use::Handle { id: number }).unwrap();
        } else {
            frames.free(owner, block.pfn).unwrap();
        }
    }
    frames.drain();
    let ((called, was_called), (go, go_on)) = (channel(), channel());
    let (daemon, called, go_on) = (Mutex::default(), Mutex::new(called), Mutex::new(go_on));
    let resident = Arc::new(OwnerOfThread { daemon, called, go_on });
    let known = Arc::downgrade(&resident);
    frames.register(known.clone());
    let pace = Pace { look_every: Duration::from_millis(5), ..Pace::default() };
    let daemon = Background::start(Arc::clone(&frames), pace).unwrap();
    *resident.daemon.lock().unwrap() = Some(daemon);
    was_called.recv_timeout(Duration::from_secs(20)).expect("there is something to move");
    drop(resident);
    assert!(known.upgrade().is_some(), "the thread uses it");
    drop(go);
    let end = Instant::now() + Duration::from_secs(20);
    while Arc::strong_count(&frames) > 1 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(Arc::strong_count(&frames), 1, "the thread has ended");
    frames.check().unwrap();
}

#[test]
fn oracle_6_blocks_become_huge_pages_whatever_the_settings_are() {
    let (handles, owner) = handles();
    let blocks: Vec<_> = (0..8).map(|_| handles.alloc(owner, Order::PAGEBLOCK).unwrap()).collect();
    blocks.iter().zip(1..).for_each(|(&block, value)| write(&handles, block, value));
    match handles.collapse(blocks[0]) {
        Err(HandleError::System(rustix::io::Errno::INVAL)) => {
            eprintln!("skipped: MADV_COLLAPSE needs Linux 6.1 with huge pages");
            return;
        }
        result => result.unwrap(),
    }
    let collapsed = blocks.iter().filter(|&&block| handles.collapse(block).is_ok()).count();
    assert_eq!(collapsed, 8);
    assert!(blocks.iter().zip(1..).all(|(&block, value)| holds(&handles, block, value)));
    let small = handles.alloc(owner, Order::ZERO).unwrap();
    assert_eq!(handles.collapse(small), Err(HandleError::Small(Order::ZERO)));
}

/// Uses a handle on another table than its own, which is refused. It named the block in the slot of the same number
/// there, and freed it.
#[test]
fn a_handle_of_another_table_is_refused() {
    let [one, other] = [(); 2].map(|()| Handles::new(&FramesConfig::new(2 << 20), 4).unwrap());
    let owner = one.owners().by_rank(0).unwrap();
    let [ours, theirs] = [&one, &other].map(|table| table.alloc(owner, Order::ZERO).unwrap());
    assert_eq!(other.pin(ours).err(), Some(HandleError::Stale));
    assert_eq!(other.free(owner, ours), Err(HandleError::Stale));
    assert_eq!((one.free(owner, ours), other.free(owner, theirs)), (Ok(()), Ok(())));
}
