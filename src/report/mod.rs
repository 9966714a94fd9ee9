//! The faces of a result: text, HTML, Markdown, columns of other tools. They render what `verdicts` made.

pub mod bisect;
pub mod calibration;
pub mod changes;
pub mod columns;
pub mod csv;
pub mod diagnose;
pub mod export;
pub mod headline;
pub mod html;
pub mod junit;
pub mod mail;
pub mod nights;
pub mod pivot;
pub mod plot;
pub mod rows;
pub mod samples;
pub mod table;
pub mod template;
pub mod text;
