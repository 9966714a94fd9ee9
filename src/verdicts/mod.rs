//! Stored samples as one result: comparisons, history, changes, and what is told beside them.

pub mod calibration;
pub mod cells;
pub mod changes;
pub mod comparisons;
pub mod context;
pub mod details;
pub mod document;
pub mod findings;
pub mod history;
pub mod metric_check;
pub mod nights;
pub mod parts;
pub mod records;
pub mod report;
pub mod series;
pub mod standing;
pub mod time;
