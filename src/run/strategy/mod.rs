//! What is measured next: each file is one rule that asks for rounds of cells.

pub mod calibrate;
pub mod confirm;
