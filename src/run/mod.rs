//! A session: builds, set-ups and measurements on machines, in the order that strategies ask for.

pub mod build;
pub mod command;
pub mod dispatch;
pub mod event;
pub mod execute;
pub mod hooks;
pub mod machine_session;
mod measure;
mod monitor;
mod null;
pub mod pool;
pub mod progress;
pub mod session;
mod setup;
pub mod strategy;
pub mod tune;
