//! The way from text to declared values: matrices, profiles, hooks; returns all diagnostics.

mod check;
pub mod decode;
pub mod hook;
pub mod matrix;
pub mod night;
pub mod profile;
mod read;
pub use read::FILE_BYTES_MAX;
pub mod ssh;
pub mod template;
pub mod template_bounds;
pub mod value;
