//! `matrix report`: one self-contained report of what is stored, to be read by people who were not there.

use clap::Args;

use super::run::{Extent, block_on, stored_report};
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::Sources;
use crate::verdicts::document::Document;
use crate::verdicts::report::Report;

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    common: Common,
}

pub fn report(args: ReportArgs) -> Exit {
    let mut sources = Sources::default();
    match whole(&args.common, &mut sources) {
        Ok(report) => {
            show::document(&Document::Report(&report));
            match report.measured_anything() || !report.failed.is_empty() {
                true => Exit::Fine,
                false => Exit::Nothing,
            }
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

/// The report with all that lets it stand by itself.
pub fn whole(common: &Common, sources: &mut Sources) -> Result<Report, Stop> {
    block_on(stored_report(common, Extent::WHOLE, sources))
}
