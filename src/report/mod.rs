//! Owns the faces of a result: one model, shown as text, template or JSON.
//! Does not know how results come about.

pub mod beside;
pub mod calibration;
pub mod cells;
pub mod changes;
pub mod columns;
pub mod diagnose;
pub mod model;
pub mod template;
pub mod text;
