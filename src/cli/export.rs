//! `matrix export`: all stored samples for other programs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufWriter, ErrorKind};

use clap::{Args, ValueEnum};

use super::load::load;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::report::export::{Export, SampleLine};
use crate::resolve::versions::{VERSIONS_MAX, label_of};
use crate::verdicts::comparisons::series_of;
use crate::verdicts::history::without_version;

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    common: Common,
    /// Only this metric; may be repeated
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// `csv`: a column an axis; `jsonl`: an object a line
    #[arg(long, value_enum, default_value_t = SampleFormat::Csv)]
    format: SampleFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SampleFormat {
    Csv,
    Jsonl,
}

pub fn export(args: ExportArgs) -> Exit {
    let mut sources = Sources::default();
    match write(&args, &mut sources) {
        Ok(exit) => exit,
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

fn write(args: &ExportArgs, sources: &mut Sources) -> Result<Exit, Stop> {
    let common = &args.common;
    if common.json || common.against.is_some() {
        return Err(Stop::message(
            "samples are written as they are: leave `--json` (`--format jsonl` writes JSON) and `--against` out",
        ));
    }
    let loaded = load(common, sources)?;
    let nothing = |message: String| Stop {
        diagnostics: vec![Diagnostic::error(message)],
        exit: Exit::Nothing,
    };
    let name = &loaded.matrix.name;
    let empty = || nothing(format!("nothing of `{name}` is stored"));
    let store = loaded.store()?.ok_or_else(empty)?;
    let labels = common.versions.iter().map(|text| label_of(text));
    let mut labels = labels
        .collect::<Result<Vec<String>, _>>()
        .map_err(|error| Stop::message(error.to_string()))?;
    // Without any of these, cells count that the matrix does not have any more.
    let narrowed = !labels.is_empty() || !common.only.is_empty() || common.preset.is_some();
    if labels.is_empty() {
        labels = store.versions(name, VERSIONS_MAX as u32)?;
    }
    let plan = loaded.plan_of_names(common, labels)?;
    let version = plan.cells.axis("version");
    let mut chosen: HashSet<(String, String, String)> = HashSet::new();
    let mut names: HashMap<(String, String), Vec<String>> = HashMap::new();
    for cell in 0..plan.cells.len() as u32 {
        let id = series_of(&plan, cell, "");
        if let Some(axis) = version {
            let label = plan.cells.label(plan.cells.cell(cell as usize), axis);
            chosen.insert((id.machine.clone(), id.cell.clone(), label.to_owned()));
        }
        names.insert((id.machine, id.cell), plan.metric_names(cell)?);
    }
    let (cells, last) = store.exported_cells(name)?;
    let mut axes: Vec<String> = vec!["machine".to_owned()];
    let known = plan.cells.axes.iter().filter(|axis| !axis.silent);
    let known = known.map(|axis| axis.name.as_str());
    let stored = cells.iter().flat_map(|cell| cell.split(','));
    let stored = stored
        .filter_map(|part| part.split_once('='))
        .map(|it| it.0);
    for axis in known.chain(stored).filter(|axis| *axis != "version") {
        if !axes.iter().any(|known| known == axis) {
            axes.push(axis.to_owned());
        }
    }
    let out = BufWriter::new(std::io::stdout().lock());
    let opened = match args.format {
        SampleFormat::Csv => Export::csv(out, axes),
        SampleFormat::Jsonl => Ok(Export::Lines(out)),
    };
    let mut count = 0u64;
    let written = opened.and_then(|mut export| {
        let mut written = Ok(());
        let read = store.export(name, last, |sample| {
            let place = (
                sample.machine.clone(),
                without_version(&sample.cell, &sample.machine),
            );
            let known = names.get(&place);
            let from = known.and_then(|it| it.iter().position(|name| *name == sample.metric));
            let metric = from.map_or(&*sample.metric, |at| &*loaded.matrix.metrics[at].name);
            if !args.metric.is_empty() && !args.metric.iter().any(|name| name == metric) {
                return true;
            }
            let of_version = (place.0, place.1, sample.version.clone());
            if narrowed && !chosen.contains(&of_version) {
                return true;
            }
            let parts = sample
                .cell
                .split(',')
                .filter_map(|part| part.split_once('='));
            let mut axes: BTreeMap<&str, &str> = parts.filter(|it| it.0 != "version").collect();
            axes.insert("machine", &sample.machine);
            count += 1;
            written = export.sample(&SampleLine {
                axes,
                version: &sample.version,
                commit: &sample.commit,
                date: &sample.taken_at,
                session: sample.session,
                round: sample.round,
                metric,
                unit: &sample.unit,
                value: sample.value,
                environment: &sample.environment,
                marks: &sample.marks,
            });
            written.is_ok()
        });
        written.and_then(|()| export.finish()).map(|()| read)
    });
    match written {
        Ok(read) => read?,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Fine),
        Err(error) => {
            let problem = format!("standard output cannot be written: {error}");
            return Err(Stop::message(problem));
        }
    }
    match count {
        0 => Err(nothing(format!("no stored sample of `{name}` is chosen"))),
        _ => Ok(Exit::Fine),
    }
}
