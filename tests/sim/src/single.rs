//! Worlds in which one thing goes wrong.

use crate::faults::{Fault, Knobs, Link, S, Way, Whom};
use crate::rng::Rng;

/// What strikes a world in which nothing else goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// The owner's process is gone.
    Crash,
    /// The owner is told to stop.
    Stop,
    /// The owner does nothing for longer than its lease holds.
    Pause,
    /// The owner alone loses its way to the stores, or to the lease table, one way or both.
    StorePath,
    /// The owner alone loses its way to the broker.
    BrokerPath,
    /// The owner alone reaches the broker no more, but hears it; or the other way round.
    BrokerOneWay,
    /// One that waits is gone.
    StandbyCrash,
    /// One that waits does nothing for a while.
    StandbyPause,
    /// One that waits loses its way to the stores.
    StandbyStorePath,
    /// The owner's wall clock is stepped.
    WallStep,
}

impl Single {
    /// Those after which somebody else has to serve.
    pub const FATAL: [Self; 6] = [Self::Crash, Self::Stop, Self::Pause, Self::StorePath, Self::BrokerPath, Self::BrokerOneWay];
    /// Those that change nothing.
    pub const HARMLESS: [Self; 4] = [Self::StandbyCrash, Self::StandbyPause, Self::StandbyStorePath, Self::WallStep];

    /// Whether the budget of a lost way to the broker holds, and not that of an owner's death.
    #[must_use]
    pub const fn is_of_the_broker(self) -> bool {
        matches!(self, Self::BrokerPath | Self::BrokerOneWay)
    }

    fn draw(self, ttl: u64, rng: &mut Rng) -> Fault {
        let for_good = ttl * 100;
        let (whom, down) = (Whom::Owner, None);
        let some_way = rng.pick(&[Way::Out, Way::Back, Way::Both]);
        let one_way = rng.pick(&[Way::Out, Way::Back]);
        match self {
            Self::Crash => Fault::Crash { whom, down, silently: rng.chance(0.5) },
            Self::Stop => Fault::Stop { whom, down },
            Self::Pause => Fault::Pause { whom, span: ttl * 5 / 2 + rng.between(0, ttl) },
            Self::StorePath => Fault::Cut { whom, link: rng.pick(&[Link::Store, Link::Lease]), way: some_way, span: for_good },
            Self::BrokerPath => Fault::Cut { whom, link: Link::Broker, way: Way::Both, span: for_good },
            Self::BrokerOneWay => Fault::Cut { whom, link: Link::Broker, way: one_way, span: for_good },
            Self::StandbyCrash => Fault::Crash { whom: Whom::Standby, down, silently: rng.chance(0.5) },
            Self::StandbyPause => Fault::Pause { whom: Whom::Standby, span: rng.between(0, 3 * ttl) },
            Self::StandbyStorePath => Fault::Cut { whom: Whom::Standby, link: Link::Store, way: some_way, span: for_good },
            Self::WallStep => Fault::WallStep { whom, by: rng.pick(&[-315_000_000_000, -3_600_000, -1_500, 700, 3_600_000]) },
        }
    }
}

impl Knobs {
    /// A world in which `fault` strikes the owner once it is settled, and nothing else goes wrong.
    ///
    /// # Panics
    /// Where the budget of the settings does not add up.
    #[must_use]
    pub fn single(rng: &mut Rng, fault: Single) -> Self {
        let mut knobs = Self::calm(rng);
        let ttl = knobs.ttl();
        knobs.broker_step_down = knobs.broker_step_down.or(Some(2 * S));
        let struck = fault.draw(ttl, rng);
        let at = ttl + 10 * S + rng.between(0, ttl);
        knobs.schedule = vec![(at, struck)];
        let budget = knobs.terms().sum().expect("a budget that adds up");
        let longest = budget.owner_death.max(budget.broker_path.unwrap_or(0)).unsigned_abs();
        knobs.chaos_ends = at + 2 * longest + 3 * knobs.keep_alive;
        knobs
    }
}
