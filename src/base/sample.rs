//! Metric and sample: what was measured, in which unit, which direction is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

impl Better {
    pub fn name(self) -> &'static str {
        match self {
            Better::Higher => "higher",
            Better::Lower => "lower",
        }
    }
}

/// One number that a parser found in a program's output.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reading {
    /// The parser's own name for it, such as `read.clat_p99`.
    pub name: String,
    /// Always finite.
    pub value: f64,
    /// `ns`, `bytes/s`, `1/s`, …; empty where the parser cannot know it.
    pub unit: String,
    /// None where the parser cannot know it: the matrix then has to say.
    pub better: Option<Better>,
}

/// What a parser makes of one output: readings, or the reason why there are none.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    Readings {
        metrics: Vec<Reading>,
        /// Odd things that do not spoil the numbers.
        warnings: Vec<String>,
    },
    /// The sample must not be used. One line, then details where there are any.
    Refused { reason: String },
}

impl Parsed {
    pub fn refused(reason: impl Into<String>) -> Self {
        Parsed::Refused {
            reason: reason.into(),
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Exit(i32),
    Signal(i32),
    /// It ran longer than it may and was ended by us.
    TimedOut,
    /// The user asked us to stop at once.
    Interrupted,
}

impl Ended {
    /// A shell's way to tell a signal is `128 + n`; both forms mean the same thing.
    pub fn from_status(status: i32) -> Ended {
        match status {
            129..=192 => Ended::Signal(status - 128),
            status => Ended::Exit(status),
        }
    }

    pub fn is_success(self) -> bool {
        self == Ended::Exit(0)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Ended::Exit(127) => write!(f, "exit status 127 (command not found)"),
            Ended::Exit(status) => write!(f, "exit status {status}"),
            Ended::Signal(9) => write!(f, "killed (signal 9)"),
            Ended::Signal(signal) => write!(f, "ended by signal {signal}"),
            Ended::TimedOut => write!(f, "timed out"),
            Ended::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// One measured value of one metric from one repetition of a run step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The repetition, counted from 0.
    pub round: u32,
    /// The invocation of `matrix` that took it: rounds of one session are paired, others not.
    pub session: i64,
    pub value: f64,
}
