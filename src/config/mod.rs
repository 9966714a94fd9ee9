//! Owns the way from text to declared values: matrices, profiles, hooks; returns all diagnostics.
//! Knows no file system: texts and a loader come in as values.

pub mod profile;
