//! The journal of set-ups: what has to be undone on a machine, whoever made it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Largest entry.
pub const UNDO_BYTES_MAX: usize = 1 << 20;

/// How to undo a set-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupUndo {
    /// Names of the matrix and of the set-up, for messages.
    pub matrix: String,
    pub setup: String,
    /// The set-up's folder, absolute. Its removal ends the undoing.
    pub dir: String,
    /// Run in the folder, in this order.
    pub commands: Vec<Vec<String>>,
    pub env: Vec<(String, String)>,
    /// For each command.
    pub timeout: Duration,
}

/// An entry of a machine's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UndoId(pub u64);

/// What has become of a set-up in the journal. Not synced: a power loss ends what it tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndoStep {
    /// All that the set-up does was done.
    Made,
    /// The command of this number is about to run.
    Undoing(usize),
    /// It ended well.
    Undone(usize),
    /// It ran to its end and failed.
    Failed(usize),
}

/// A set-up in a machine's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedSetup {
    pub id: UndoId,
    pub undo: SetupUndo,
    /// False after a reboot: mounts and processes went with it.
    pub is_of_this_boot: bool,
    pub steps: Vec<UndoStep>,
}

impl NotedSetup {
    pub fn is_made(&self) -> bool {
        self.steps.contains(&UndoStep::Made)
    }

    /// The last that is known of a command.
    pub fn last_of(&self, command: usize) -> Option<UndoStep> {
        let is_of_it = |step: &&UndoStep| match step {
            UndoStep::Made => false,
            UndoStep::Undoing(of) | UndoStep::Undone(of) | UndoStep::Failed(of) => *of == command,
        };
        self.steps.iter().rev().find(is_of_it).copied()
    }
}

/// One operation on a machine's journal of set-ups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndoOp {
    /// Durable when it is answered, with [`UndoReply::Begun`].
    Begin(SetupUndo),
    Note(UndoId, UndoStep),
    /// Nothing is left of it; fine when the entry is gone already.
    End(UndoId),
    /// All entries, the latest first: the order in which to undo them.
    List,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndoReply {
    Begun(UndoId),
    Done,
    Setups(Vec<NotedSetup>),
}
