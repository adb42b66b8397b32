//! What can become of an effect on the outside world, and the facts that decide what to do next.

use core::fmt;
use core::time::Duration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The three ways in which an effect on the outside world can end. Whoever calls must face the third.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It took effect.
    Done(T),
    /// It certainly did not take effect.
    NotDone(Fault),
    /// Nobody knows: no answer came, or one that does not tell. It may still take effect later.
    Unknown(Fault),
}

impl<T> Outcome<T> {
    /// The same outcome with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::NotDone(fault) => Outcome::NotDone(fault),
            Self::Unknown(fault) => Outcome::Unknown(fault),
        }
    }

    /// The value, if it took effect.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::NotDone(_) | Self::Unknown(_) => None,
        }
    }
}

/// Why something did not work, as a fact that the core can act on. Adapters decide it once; nobody parses `detail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub code: FaultCode,
    /// What happened, for people: one line, without secrets or payloads.
    pub detail: String,
    /// The pause that the other side asked for.
    pub retry_after: Option<Duration>,
}

impl Fault {
    /// A fault without a requested pause.
    pub fn new(code: FaultCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), retry_after: None }
    }

    /// Whether the same attempt may succeed later without anybody changing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.code.class().is_transient()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl std::error::Error for Fault {}

/// What kind of end a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// It may pass by itself.
    Transient,
    /// It stays until somebody changes the configuration or the other side.
    Permanent,
    /// The message itself is refused, whatever is done.
    Rejected,
    /// The message outlived its expiry.
    Expired,
    /// Too many attempts.
    Poison,
}

impl FaultClass {
    /// The name in dead letters, metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Poison => "poison",
        }
    }

    const fn is_transient(self) -> bool {
        matches!(self, Self::Transient)
    }
}

macro_rules! fault_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// The closed set of faults. Each belongs to one class, which decides whether it is tried again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultCode { $($(#[$doc])* $name,)* }

        impl FaultCode {
            /// Every code, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it stands in logs, dead letters and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The class that the code belongs to.
            #[must_use]
            pub const fn class(self) -> FaultClass {
                match self { $(Self::$name => FaultClass::$class,)* }
            }

            /// Reads a code back.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

/// As its text: the order of the declaration may change, the text does not.
impl Serialize for FaultCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FaultCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("no such code"))
    }
}

fault_codes! {
    /// No answer in time.
    Timeout = "TIMEOUT", Transient;
    /// The connection broke.
    ConnectionLost = "CONNECTION_LOST", Transient;
    /// The other side cannot serve now (a 5xx, a refused connection).
    Unavailable = "UNAVAILABLE", Transient;
    /// The other side asks for fewer requests.
    Throttled = "THROTTLED", Transient;
    /// Credentials that expired or could not be fetched just now.
    TemporaryAuthFailure = "TEMPORARY_AUTH_FAILURE", Transient;
    /// The disk or the quota is full.
    StorageFull = "STORAGE_FULL", Transient;
    /// Credentials that are refused.
    NotAuthorized = "NOT_AUTHORIZED", Permanent;
    /// The queue, table or topic does not exist.
    NotFound = "NOT_FOUND", Permanent;
    /// A table with other keys, a row that cannot be read, a setting that the other side refuses.
    InvalidConfig = "INVALID_CONFIG", Permanent;
    /// An answer that makes no sense.
    ProtocolError = "PROTOCOL_ERROR", Permanent;
    /// The destination refuses this message's content.
    InvalidPayload = "INVALID_PAYLOAD", Rejected;
    /// Larger than the destination takes.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", Rejected;
    /// Refused, for a reason that concerns this message alone.
    Refused = "REFUSED", Rejected;
    /// Its headers do not have what the binding's address asks for.
    AddressTemplate = "ADDRESS_TEMPLATE", Rejected;
    /// The route's resolver found no binding for it, and there is no default.
    NoBinding = "NO_BINDING", Rejected;
    /// It went through more bridges than it may: a loop.
    HopLimit = "HOP_LIMIT", Rejected;
    /// A processor filtered it out.
    MessageFiltered = "MESSAGE_FILTERED", Rejected;
    /// It came by a subscription that the configuration does not have any more.
    SubscriptionRemoved = "SUBSCRIPTION_REMOVED", Rejected;
    /// It had to make room: as much of its key as may waited in the outbox.
    Trimmed = "TRIMMED", Rejected;
    /// As much of its key as may waited in the outbox.
    StoreFull = "STORE_FULL", Rejected;
    /// Past its expiry.
    MessageExpired = "MESSAGE_EXPIRED", Expired;
    /// More attempts than the policy allows, over longer than it allows.
    PoisonMessage = "POISON_MESSAGE", Poison;
}
