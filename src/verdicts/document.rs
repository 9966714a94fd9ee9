//! The JSON documents that the program prints, and the JSON Schema of them all.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use crate::base::sample::Reading;
use crate::plan::explain::Explanation;
use crate::plan::why::Reason;
use crate::resolve::selection::LeftOut;
use crate::verdicts::calibration::Calibration;
use crate::verdicts::report::{AcceptedRow, Report};
use crate::verdicts::series::{FileChanges, History, MatrixChanges};

/// Version of every JSON document that the program prints.
pub const FORMAT: u32 = 2;

/// What `--json` prints: one of the documents, with its kind and the version of the format.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "What matrix prints with --json")]
pub struct Printed<'a> {
    #[schemars(extend("const" = FORMAT))]
    format: u32,
    #[serde(flatten)]
    document: &'a Document<'a>,
}

/// A document by its `kind`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Document<'a> {
    /// `matrix run` and `matrix compare`.
    Report(&'a Report),
    /// `matrix history`.
    History(&'a History),
    /// `matrix changes`.
    Changes(&'a MatrixChanges),
    /// `matrix changes --csv`.
    FileChanges(&'a FileChanges),
    /// `matrix accept`.
    Acceptances(Acceptances),
    /// `matrix calibrate`.
    Calibration(&'a Calibration),
    /// `matrix plan`.
    Plan(PlanDocument),
    /// `matrix plan --from … --to …` and `--base`.
    PlanDifference(PlanDifferenceDocument<'a>),
    /// `matrix explain`.
    Explanation(&'a Explanation),
    /// `matrix parse`.
    Readings(Readings),
    /// `matrix parse` of an output that is refused.
    Refused { refused: String },
    /// `matrix log`.
    Log(LogDocument),
    /// `matrix gc`.
    Removed(Removed),
    /// `matrix machine …`: docs/json.md has its keys.
    Machine(Value),
    /// Instead of any other document, where a verb stops.
    Errors(Errors),
}

impl<'a> Document<'a> {
    /// As it is printed.
    pub fn printed(&'a self) -> Printed<'a> {
        Printed {
            format: FORMAT,
            document: self,
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Acceptances {
    pub accepted: Vec<AcceptedRow>,
}

/// What a plan comes to. `todo` and `why` only where they were asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanDocument {
    pub matrix: String,
    pub cells: usize,
    pub steps: StepTotals,
    /// The least number of rounds to take; adaptive repetition may take more.
    pub measurements: u64,
    /// Seconds.
    pub estimate_s: f64,
    /// With `--format json`: the steps to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<Vec<PlannedStep>>,
    /// With `--budget`: what it has no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// With `--why`: the causes of what is to be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<Reason>>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct StepTotals {
    pub build: StepTotal,
    pub setup: StepTotal,
    pub run: StepTotal,
    pub compare: StepTotal,
}

/// Steps of a kind: all, those to be run, and those whose result is stored.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct StepTotal {
    pub total: usize,
    pub run: usize,
    pub stored: usize,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedStep {
    pub id: usize,
    /// Such as `run bs=4k`.
    pub step: String,
    /// The `id`s of the steps that it waits for.
    pub needs: Vec<usize>,
    /// Of run steps: rounds to measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
}

/// Cells by name, without their version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanDifferenceDocument<'a> {
    /// Cells of the later side.
    pub cells: usize,
    pub added: &'a [String],
    pub removed: &'a [String],
    /// Cells of both sides whose key differs.
    pub affected: &'a [String],
    /// Seconds to measure what is added and affected.
    pub estimate_s: f64,
}

/// What a parser made of an output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Readings {
    pub metrics: Vec<Reading>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogDocument {
    pub cell: String,
    /// What was printed; bytes that are not UTF-8 are replaced.
    pub log: String,
}

/// Artifacts that were removed, or would be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Removed {
    /// Hashes of the artifacts.
    pub removed: Vec<String>,
    pub bytes: u64,
    pub dry_run: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Errors {
    pub errors: Vec<ErrorRow>,
}

/// A diagnostic. The place is null where an error has none in a file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorRow {
    pub message: String,
    pub file: Option<String>,
    /// From 1.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    pub help: Option<String>,
}

/// The JSON Schema (draft 2020-12) of all documents, as it is kept in docs/schema.json.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<Printed>()
        .to_value()
}
