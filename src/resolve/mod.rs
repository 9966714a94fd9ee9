//! What is known before a session: versions, machines, what is stored, and what of a plan is to be measured.

pub mod environment_match;
pub mod inputs;
pub mod lookup;
pub mod planner;
pub mod prepare;
pub mod repeat;
pub mod samples;
pub mod selection;
pub mod versions;
