//! What the interface can do: the one list that the routes are made from, and that its description is held against.

/// One thing that an operator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read this interface's description.
    Document,
    /// List the routes.
    Routes,
    /// Put a message into a route.
    Inject,
    /// List dead letters.
    Letters,
    /// Show one, its payload included.
    Letter,
    /// Put dead letters back on their way.
    Redrive,
    /// Delete dead letters.
    Delete,
    /// List the sessions.
    Sessions,
    /// Hand a session over.
    StepDown,
    /// Acknowledge the notice that the budget is spent.
    QuotaSeen,
}

impl Operation {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::Document,
        Self::Routes,
        Self::Inject,
        Self::Letters,
        Self::Letter,
        Self::Redrive,
        Self::Delete,
        Self::Sessions,
        Self::StepDown,
        Self::QuotaSeen,
    ];

    /// Its path.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Document => "/api/v1/admin/openapi.json",
            Self::Routes => "/api/v1/admin/routes",
            Self::Inject => "/api/v1/admin/routes/{route}/inject",
            Self::Letters => "/api/v1/admin/dlq",
            Self::Letter => "/api/v1/admin/dlq/messages/{id}",
            Self::Redrive => "/api/v1/admin/dlq/redrive",
            Self::Delete => "/api/v1/admin/dlq/delete",
            Self::Sessions => "/api/v1/admin/sessions",
            Self::StepDown => "/api/v1/admin/sessions/{session}/step-down",
            Self::QuotaSeen => "/api/v1/admin/quota/acknowledge",
        }
    }

    /// Its method.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Document | Self::Routes | Self::Letters | Self::Letter | Self::Sessions => "get",
            Self::Inject | Self::Redrive | Self::Delete | Self::StepDown | Self::QuotaSeen => "post",
        }
    }

    /// Its name in the log and in the description.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Document => "openapi",
            Self::Routes => "routes.list",
            Self::Inject => "route.inject",
            Self::Letters => "dlq.list",
            Self::Letter => "dlq.read_payload",
            Self::Redrive => "dlq.redrive",
            Self::Delete => "dlq.delete",
            Self::Sessions => "sessions.list",
            Self::StepDown => "session.step_down",
            Self::QuotaSeen => "quota.acknowledge",
        }
    }

    /// Whether the log tells who did it: whatever changes something, or shows what a message held.
    #[must_use]
    pub const fn is_noted(self) -> bool {
        match self {
            Self::Inject | Self::Letter | Self::Redrive | Self::Delete | Self::StepDown | Self::QuotaSeen => true,
            Self::Document | Self::Routes | Self::Letters | Self::Sessions => false,
        }
    }
}
