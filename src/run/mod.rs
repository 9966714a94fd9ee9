//! Owns the way from a plan to samples.
//! Does not know how a host runs a process (edge/host does) nor what a result means (judge does).

pub mod alike;
pub mod build;
pub mod calibrate;
pub mod changes;
pub mod choice;
pub mod command;
pub mod confirm;
pub mod dispatch;
pub mod event;
pub mod execute;
pub mod family;
pub mod inputs;
pub mod lookup;
mod measure;
mod monitor;
mod null;
pub mod past;
pub mod pool;
pub mod prepare;
pub mod progress;
pub mod repeat;
pub mod samples;
mod setup;
pub mod surroundings;
pub mod tune;
pub mod unmatched;
pub mod versions;
