#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::*;
use proptest::prelude::*;

const KIB: u64 = 1_024;

const fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn jitter() -> Jitter {
    Jitter::new(7)
}

/// The documented bounds, without jitter.
fn options() -> SenderOptions {
    let resume = ResumeOptions { jitter: Duration::ZERO, ..ResumeOptions::default() };
    SenderOptions { max_in_flight: 100, resume, ..SenderOptions::default() }
}

fn flow() -> SenderFlow {
    SenderFlow::new(options())
}

/// Fills packet by packet until it pauses, then writes packet by packet until that ends: the numbers of packets waiting at both moments.
fn marks(packet: u64) -> (u64, u64) {
    let mut flow = flow();
    let mut waiting = 0;
    while flow.phase() == SenderPhase::Running {
        waiting += 1;
        flow.pending(at(0), waiting * packet);
    }
    assert_eq!(flow.phase(), SenderPhase::Paused);
    let paused = waiting;
    while flow.phase() == SenderPhase::Paused {
        waiting -= 1;
        flow.pending(at(0), waiting * packet);
    }
    assert_eq!(flow.phase(), SenderPhase::Settling);
    (paused, waiting)
}

#[test]
fn flow_watermarks_of_packets_of_1024_bytes_are_1281_and_639() {
    let mut flow = flow();
    flow.pending(at(0), 1_280 * KIB);
    assert_eq!(flow.phase(), SenderPhase::Running, "1,310,720 bytes are not above the mark");
    flow.pending(at(0), 1_281 * KIB);
    assert_eq!(flow.phase(), SenderPhase::Paused);
    flow.pending(at(0), 640 * KIB);
    assert_eq!(flow.phase(), SenderPhase::Paused, "655,360 bytes are not below the mark");
    flow.pending(at(0), 639 * KIB);
    assert_eq!(flow.phase(), SenderPhase::Settling);
    assert_eq!(marks(KIB), (1_281, 639));
}

#[test]
fn flow_watermarks_of_packets_of_102400_bytes_are_13_and_6() {
    assert_eq!(marks(102_400), (13, 6));
}

#[test]
fn flow_watermarks_of_packets_of_65536_bytes_are_21_and_9() {
    assert_eq!(marks(65_536), (21, 9));
}

#[test]
fn flow_watermarks_of_packets_of_131072_bytes_are_11_and_4() {
    assert_eq!(marks(131_072), (11, 4));
}

fn settling(options: SenderOptions) -> SenderFlow {
    let mut flow = SenderFlow::new(options);
    flow.pending(at(0), 2_000_000);
    flow.pending(at(0), 0);
    flow
}

/// When it looks, in milliseconds, while something stays under way.
fn looks(flow: &mut SenderFlow, jitter: &mut Jitter) -> Vec<u64> {
    let mut looks = Vec::new();
    while let Some(due) = flow.wake_at() {
        looks.push(due.as_nanos() / 1_000_000);
        flow.tick(due, 1, jitter);
    }
    looks
}

#[test]
fn flow_settling_looks_at_0_1_3_6_11_20_and_30_seconds_and_then_goes_on() {
    let mut flow = settling(options());
    assert_eq!(looks(&mut flow, &mut jitter()), [0, 1_000, 3_000, 6_000, 11_000, 20_000, 30_000]);
    assert_eq!((flow.phase(), flow.resumed()), (SenderPhase::Running, Resumed { settled: 0, forced: 1 }));
    assert_eq!(flow.since(), Some(at(30_000)));
}

#[test]
fn flow_settling_with_an_entry_stuck_is_not_over_before_30_seconds() {
    let mut flow = settling(options());
    flow.tick(at(29_999), 1, &mut jitter());
    assert_eq!((flow.phase(), flow.window()), (SenderPhase::Settling, 0));
    flow.tick(at(30_000), 1, &mut jitter());
    assert_eq!((flow.phase(), flow.window()), (SenderPhase::Running, 8));
}

#[test]
fn flow_settling_ends_with_the_look_at_6_seconds_where_nothing_is_under_way_from_4_on() {
    let mut flow = settling(options());
    for millis in (0..6_000).step_by(100) {
        flow.tick(at(millis), usize::from(millis < 4_000), &mut jitter());
        assert_eq!(flow.phase(), SenderPhase::Settling, "at {millis} ms");
    }
    flow.tick(at(6_000), 0, &mut jitter());
    assert_eq!((flow.phase(), flow.resumed()), (SenderPhase::Running, Resumed { settled: 1, forced: 0 }));
}

#[test]
fn flow_settling_that_finds_nothing_under_way_is_over_at_once() {
    let mut flow = settling(options());
    flow.tick(at(0), 0, &mut jitter());
    assert_eq!((flow.phase(), flow.window()), (SenderPhase::Running, 8));
}

#[test]
fn flow_settling_that_fills_up_again_pauses_again_and_begins_anew() {
    let mut flow = settling(options());
    flow.tick(at(3_000), 1, &mut jitter());
    flow.pending(at(3_500), 2_000_000);
    assert_eq!((flow.phase(), flow.wake_at()), (SenderPhase::Paused, None));
    flow.pending(at(9_000), 0);
    assert_eq!(looks(&mut flow, &mut jitter())[..2], [9_000, 10_000]);
}

#[test]
fn flow_slow_start_begins_with_8_and_doubles_with_each_window_accepted() {
    let mut flow = settling(options());
    flow.tick(at(0), 0, &mut jitter());
    let mut seen = vec![flow.window()];
    for _ in 0..5 {
        flow.accepted(flow.window() - 1);
        assert_eq!(Some(&flow.window()), seen.last(), "not before the whole window");
        flow.accepted(1);
        seen.push(flow.window());
    }
    assert_eq!(seen, [8, 16, 32, 64, 100, 100]);
}

#[test]
fn flow_without_slow_start_it_comes_back_with_all_of_its_window() {
    let resume = ResumeOptions { slow_start: false, ..options().resume };
    let mut flow = settling(SenderOptions { resume, ..options() });
    flow.tick(at(0), 0, &mut jitter());
    assert_eq!(flow.window(), 100);
}

#[test]
fn flow_throttled_waits_as_long_as_the_looks_do_and_sends_half_as_much() {
    let (mut flow, mut now, mut seen) = (flow(), at(0), Vec::new());
    for _ in 0..7 {
        let before = flow.window();
        flow.throttle(now, &mut jitter());
        flow.throttle(now, &mut jitter());
        assert_eq!((flow.phase(), flow.window()), (SenderPhase::Throttled, 0));
        let due = flow.wake_at().unwrap();
        flow.tick(due, 0, &mut jitter());
        assert_eq!(flow.phase(), SenderPhase::Running);
        seen.push((due.since(now).as_secs(), before, flow.window()));
        now = due;
    }
    assert_eq!(seen, [(1, 100, 8), (2, 8, 4), (3, 4, 2), (5, 2, 1), (9, 1, 1), (10, 1, 1), (10, 1, 1)]);
    assert_eq!(flow.throttles(), 7, "what was under way when it was throttled says nothing new");
    flow.accepted(1);
    flow.throttle(now, &mut jitter());
    assert_eq!(flow.wake_at().unwrap().since(now).as_secs(), 1, "once a window was accepted it counts anew");
}

#[test]
fn flow_throttled_at_100_doubles_up_to_50_and_grows_by_one_from_there() {
    let mut flow = flow();
    flow.throttle(at(0), &mut jitter());
    flow.tick(at(1_000), 0, &mut jitter());
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(flow.window());
        flow.accepted(flow.window());
    }
    assert_eq!(seen, [8, 16, 32, 50, 51, 52]);
}

fn up(session_present: bool) -> SenderLink {
    SenderLink { up: Some(true), session_present, ..SenderLink::default() }
}

const DOWN: SenderLink = SenderLink { pending_bytes: 0, up: Some(false), session_present: false, window: None, throttles: 0 };

#[test]
fn flow_a_lost_connection_lets_one_entry_at_a_time_through_until_it_stands_again() {
    let mut flow = flow();
    flow.linked(at(0), up(false), &mut jitter());
    assert_eq!(flow.window(), 100);
    flow.linked(at(5), DOWN, &mut jitter());
    assert_eq!((flow.phase(), flow.window(), flow.wake_at()), (SenderPhase::Down, 1, None));
    flow.linked(at(9), up(false), &mut jitter());
    assert_eq!((flow.phase(), flow.window()), (SenderPhase::Running, 8));
}

#[test]
fn flow_a_connection_that_comes_back_to_its_session_settles_first() {
    let mut flow = flow();
    flow.linked(at(0), up(true), &mut jitter());
    flow.linked(at(5), DOWN, &mut jitter());
    flow.linked(at(9), up(true), &mut jitter());
    assert_eq!((flow.phase(), flow.wake_at()), (SenderPhase::Settling, Some(at(9))));
}

#[test]
fn flow_a_connection_that_ends_because_it_is_too_much_throttles_and_then_is_made_anew() {
    let mut flow = flow();
    flow.linked(at(0), up(false), &mut jitter());
    flow.linked(at(0), SenderLink { throttles: 1, ..DOWN }, &mut jitter());
    assert_eq!((flow.phase(), flow.wake_at()), (SenderPhase::Throttled, Some(at(1_000))));
    flow.tick(at(1_000), 0, &mut jitter());
    assert_eq!((flow.phase(), flow.window()), (SenderPhase::Down, 1));
}

#[test]
fn flow_the_other_side_may_take_fewer_ahead_than_configured() {
    let mut flow = flow();
    flow.linked(at(0), SenderLink { window: Some(10), ..up(false) }, &mut jitter());
    assert_eq!(flow.window(), 10);
    flow.linked(at(0), SenderLink { window: Some(65_535), ..up(false) }, &mut jitter());
    assert_eq!(flow.window(), 100);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    Write(u64),
    Answer { accepted: usize, refused: usize },
    Throttled,
    Lost,
    Connected(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..200).prop_map(Step::Arrive),
        4 => (0_u64..3_000_000).prop_map(Step::Write),
        4 => (0_usize..60, 0_usize..10).prop_map(|(accepted, refused)| Step::Answer { accepted, refused }),
        1 => Just(Step::Throttled),
        1 => Just(Step::Lost),
        1 => any::<bool>().prop_map(Step::Connected),
        4 => (0_u64..12_000).prop_map(Step::Pass),
    ]
}

/// A sender with a store behind it and a connection before it.
struct World {
    flow: SenderFlow,
    jitter: Jitter,
    now: u64,
    stored: usize,
    in_flight: usize,
    pending: u64,
    packet: u64,
    link: SenderLink,
}

impl World {
    /// Sends whatever may be sent, as whoever drives the sender does after each event.
    fn pull(&mut self) -> Result<(), TestCaseError> {
        self.flow.tick(at(self.now), self.in_flight, &mut self.jitter);
        while self.stored > 0 && self.in_flight < self.flow.window() {
            self.stored -= 1;
            self.in_flight += 1;
            // Without a connection nothing piles up before it.
            if self.link.up != Some(false) {
                self.pending += self.packet;
                self.flow.pending(at(self.now), self.pending);
            }
            prop_assert!(self.pending <= 1_310_720 + self.packet);
            prop_assert!(self.in_flight <= 100);
        }
        if self.flow.phase() == SenderPhase::Running {
            prop_assert!(self.stored == 0 || self.in_flight >= self.flow.window(), "nothing is forgotten while it runs");
        }
        Ok(())
    }

    fn tell(&mut self) {
        self.link.pending_bytes = self.pending;
        self.flow.linked(at(self.now), self.link, &mut self.jitter);
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let before = self.flow.phase();
        let mut may_pause = false;
        match step {
            Step::Arrive(count) => {
                self.stored += count;
                // More than the mark may come only by what is sent, one packet at a time.
                may_pause = true;
            }
            Step::Write(bytes) => {
                self.pending = self.pending.saturating_sub(bytes);
                self.tell();
                may_pause = true;
            }
            Step::Answer { accepted, refused } => {
                let accepted = accepted.min(self.in_flight);
                let refused = refused.min(self.in_flight - accepted);
                self.in_flight -= accepted + refused;
                self.stored += refused;
                self.flow.accepted(accepted);
                may_pause = true;
            }
            Step::Throttled => {
                self.flow.throttle(at(self.now), &mut self.jitter);
                prop_assert_eq!(self.flow.phase(), SenderPhase::Throttled);
            }
            Step::Lost => {
                self.stored += core::mem::take(&mut self.in_flight);
                self.pending = 0;
                self.link.up = Some(false);
                self.tell();
            }
            Step::Connected(session_present) => {
                self.link = SenderLink { up: Some(true), session_present, ..self.link };
                self.tell();
                may_pause = true;
            }
            Step::Pass(millis) => {
                self.now += millis;
                may_pause = true;
            }
        }
        self.pull()?;
        let after = self.flow.phase();
        if before == SenderPhase::Running && may_pause && after != SenderPhase::Running {
            prop_assert!(after == SenderPhase::Paused && self.pending > 1_310_720, "a full window alone changes nothing: {:?}", after);
        }
        Ok(())
    }
}

proptest! {
    /// Whatever happens, in whatever order, with jitter: no more waits before the connection than the mark and one packet, no more is under way than
    /// may be, a full window alone is no reason to stop, and once the connection stands and takes everything, all that is stored is sent in the end.
    #[test]
    fn flow_sender_keeps_its_bounds_and_forgets_nothing(
        steps in prop::collection::vec(step(), 0..120), packet in 1_u64..400_000, seed: u64, spread in 0_u64..1_000
    ) {
        let resume = ResumeOptions { jitter: Duration::from_millis(spread), ..ResumeOptions::default() };
        let flow = SenderFlow::new(SenderOptions { resume, ..options() });
        let mut world =
            World { flow, jitter: Jitter::new(seed), now: 0, stored: 0, in_flight: 0, pending: 0, packet, link: SenderLink::default() };
        for step in steps {
            world.apply(step)?;
        }
        world.apply(Step::Connected(true))?;
        let mut rounds = 0;
        while world.stored > 0 || world.in_flight > 0 {
            rounds += 1;
            prop_assert!(rounds < 100_000, "it never ends: {:?}", world.flow);
            world.apply(Step::Write(u64::MAX))?;
            world.apply(Step::Answer { accepted: 100, refused: 0 })?;
            if let Some(due) = world.flow.wake_at() {
                world.now = world.now.max(due.as_nanos().div_ceil(1_000_000));
                world.pull()?;
            }
        }
    }

    /// With one entry stuck it goes on within 36 seconds, however the jitter falls.
    #[test]
    fn flow_settling_is_over_within_36_seconds_with_jitter(seed: u64) {
        let mut flow = settling(SenderOptions { resume: ResumeOptions::default(), ..options() });
        let looks = looks(&mut flow, &mut Jitter::new(seed));
        let last = *looks.last().unwrap();
        prop_assert!(looks.len() == 7 && (30_000..36_000).contains(&last), "{:?}", looks);
    }

    /// What a picture of many senders tells of those that pause is what they do, whatever happened to each: nothing is counted up and down.
    #[test]
    fn flow_paused_senders_are_counted_from_what_each_does(steps in prop::collection::vec((0_usize..4, step()), 0..120)) {
        let world = || World {
            flow: flow(), jitter: jitter(), now: 0, stored: 0, in_flight: 0, pending: 0, packet: 50_000, link: SenderLink::default()
        };
        let mut worlds = [world(), world(), world(), world()];
        for (index, step) in steps {
            worlds[index].apply(step)?;
            let paused = worlds.iter().filter(|world| world.flow.phase().is_paused()).count();
            let closed = worlds.iter().filter(|world| world.flow.window() == 0).count();
            prop_assert_eq!(paused, closed);
        }
    }
}
