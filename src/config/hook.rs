//! Hooks: programs that a matrix or a `hooks` folder has for named moments of a session.

use std::time::Duration;

use crate::base::diag::Span;

/// How long a hook may take where nothing is said.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// When a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    PreBuild,
    PostBuild,
    PreSetup,
    PostSetup,
    /// Before each measurement.
    PreRun,
    /// After each measurement.
    PostRun,
    /// All is measured, nothing is judged yet.
    PreCompare,
    /// All is judged.
    PostCompare,
    /// A regression gates that is new.
    OnRegression,
    /// Cells or builds failed.
    OnFailure,
    /// The last one of a session, however it went.
    OnEnd,
    /// A night has news of a cause, for an issue tracker.
    OnCause,
}

impl Moment {
    pub const ALL: [Moment; 12] = [
        Moment::PreBuild,
        Moment::PostBuild,
        Moment::PreSetup,
        Moment::PostSetup,
        Moment::PreRun,
        Moment::PostRun,
        Moment::PreCompare,
        Moment::PostCompare,
        Moment::OnRegression,
        Moment::OnFailure,
        Moment::OnEnd,
        Moment::OnCause,
    ];

    /// As matrices write it, and the name of its program in a `hooks` folder.
    pub fn name(self) -> &'static str {
        match self {
            Moment::PreBuild => "pre-build",
            Moment::PostBuild => "post-build",
            Moment::PreSetup => "pre-setup",
            Moment::PostSetup => "post-setup",
            Moment::PreRun => "pre-run",
            Moment::PostRun => "post-run",
            Moment::PreCompare => "pre-compare",
            Moment::PostCompare => "post-compare",
            Moment::OnRegression => "on-regression",
            Moment::OnFailure => "on-failure",
            Moment::OnEnd => "on-end",
            Moment::OnCause => "on-cause",
        }
    }
}

/// A hook as a matrix declares it.
#[derive(Clone, Debug)]
pub struct HookDecl {
    pub at: Moment,
    pub command: Vec<String>,
    pub timeout: Duration,
    /// What it is called for fails with it.
    pub required: bool,
    pub span: Span,
}
