//! A session through the library: what is measured, confirmed and then asked for besides is one visit of a machine.

use std::cell::RefCell;
use std::rc::Rc;

use matrix::base::diag::Sources;
use matrix::config::decode;
use matrix::edge::artifact::Artifacts;
use matrix::edge::parse::{Parser, Reader};
use matrix::edge::store::Store;
use matrix::plan::cell::CellChoice;
use matrix::resolve::planner::Planner;
use matrix::resolve::prepare::{Machines, PrepareOptions};
use matrix::resolve::selection::SelectionOptions;
use matrix::resolve::versions::{VersionRequest, Versions};
use matrix::run::dispatch::RunRequest;
use matrix::run::event::{Event, TimedEvent};
use matrix::run::execute::RunError;
use matrix::run::hooks::Hooks;
use matrix::run::progress::Progress;
use matrix::run::session::{Asked, Session, SessionSettings, writer_thread};
use matrix::run::strategy::confirm::Confirm;
use matrix::run::strategy::missing::Missing;
use matrix::run::strategy::{Knowledge, Next, Strategy};
use tempfile::TempDir;
use tokio::sync::mpsc;

#[allow(dead_code)]
#[path = "versions/repo.rs"]
mod repo;

const MATRIX: &str = r#"
[matrix]
name = "m"
[subject.git]
repo  = "nowhere"
[build]
run       = ["cp {{ src }}/level prog"]
artifacts = ["prog"]
[axes]
size = [1, 2]
[run]
command = ["sh", "-c", "echo v=$(cat $0).$(date +%N | cut -c4-6)", "{{ bin }}/prog", "{{ size }}"]
parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
repeat  = 5
[metrics.v]
better = "lower"
[[setup]]
name  = "folder"
run   = ["true"]
scope = "session"
[[compare]]
axis = "version"
"#;

/// Keeps all that it is told.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<TimedEvent>>>);

impl Progress for Log {
    fn event(&mut self, event: &TimedEvent) {
        self.0.borrow_mut().push(event.clone());
    }
}

/// Two rounds of two versions that the session did not know of at first.
struct Later {
    versions: Vec<String>,
    is_begun: bool,
}

impl Strategy for Later {
    fn next(&mut self, _: &str, known: &Knowledge) -> Result<Next, RunError> {
        if self.is_begun {
            return Ok(Next::Nothing);
        }
        let axis = known.plan.cells.axis("version").unwrap();
        let labels = &known.plan.cells.axes[axis].labels;
        if !self.versions.iter().all(|version| labels.contains(version)) {
            return Ok(Next::Versions(self.versions.clone()));
        }
        let runs = 0..known.plan.steps.runs.len();
        let is_ours = |run: &usize| {
            let label = known.plan.cells.label(known.plan.cell_of(*run), axis);
            self.versions.iter().any(|version| version == label)
        };
        let requests = runs.filter(is_ours).map(|run| RunRequest {
            run: run as u32,
            rounds: vec![0, 1],
        });
        Ok(Next::Measure(requests.collect()))
    }

    fn begun(&mut self, _: &str, _: &[RunRequest], _: &Knowledge) -> Result<(), RunError> {
        self.is_begun = true;
        Ok(())
    }
}

#[test]
fn a_machine_is_entered_once_however_many_questions_are_asked() {
    let repo = repo::Repo::new();
    let versions: Vec<String> = [10, 20, 30, 40]
        .map(|level| {
            repo.write("level", &level.to_string());
            repo.commit("next")
        })
        .to_vec();
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let mut sources = Sources::default();
    let file = sources.add("matrix.toml".to_owned(), MATRIX.to_owned());
    let (matrix, problems) = decode::matrix(&mut sources, file, &mut |_| Err(String::new()));
    assert!(problems.is_empty(), "{problems:?}");
    let matrix = matrix.unwrap();
    let wanted = VersionRequest {
        versions: &versions,
        against: None,
        repo: Some(&repo.path()),
        first_parent: false,
    };
    let resolved = Versions::resolve(&matrix, &wanted, folder.path(), &state).unwrap();
    let names: Vec<String> = matrix.machines.iter().map(|it| it.name.clone()).collect();
    let options = PrepareOptions {
        state: &state,
        lock: Some(folder.path().join("lock")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let machines = Machines::look(&matrix, &names, &resolved.list, &options);
    let machines = runtime.block_on(machines).unwrap();
    let artifacts = Artifacts::default();
    let choice = |versions: &[String]| CellChoice {
        versions: versions.to_vec(),
        ..CellChoice::default()
    };
    let planner = |versions| {
        let choice = choice(versions);
        Planner::new(&matrix, &machines, &resolved, &artifacts, choice)
    };
    let (planner, others) = (planner(&versions[..2]), planner(&versions[..1]));
    let store = RefCell::new(Store::open(&state).unwrap());
    let log = Log::default();
    let listener = RefCell::new(log.clone());
    let declared = &matrix.run.cases[0].parsers[0];
    let kind = &declared.kind.value;
    let options = declared.options.iter();
    let options: Vec<_> = options
        .map(|(name, value)| (name.value.clone(), value.clone()))
        .collect();
    let readers = [Reader {
        parsers: vec![Parser::new(kind, &options).unwrap()],
        fail_pattern: None,
        fail_when: None,
    }];
    let settings = SessionSettings {
        preset: None,
        seed: 1,
        retries_builds: false,
        arguments: String::new(),
        readers: &readers,
        profiles: &Default::default(),
        monitors: &[],
        hooks: &Hooks::none(),
        writer: writer_thread,
    };
    let session = Session {
        planner: &planner,
        store: &store,
        progress: &listener,
        settings: &settings,
    };
    let selection = SelectionOptions::default();
    let chosen = session.choose(&selection, None).unwrap();
    let planned = session.announce(&chosen).unwrap();
    let missing = Missing::new(selection, chosen.out, planned.clone());
    let later = Later {
        versions: versions[2..].to_vec(),
        is_begun: false,
    };
    let strategies = vec![
        Asked::new(missing, &planner),
        Asked::new(Confirm::new(None), &planner),
        Asked::new(later, &others),
    ];
    let names = names.into_iter().collect();
    let (_signals, mut signals) = mpsc::unbounded_channel();
    let done = session.run(&names, strategies, planned, None, &mut signals);
    let done = runtime.block_on(done).unwrap();
    assert_eq!(done.tally.failed, []);

    let events = log.0.borrow();
    let count = |is: &dyn Fn(&Event) -> bool| events.iter().filter(|it| is(&it.event)).count();
    let place = |is: &dyn Fn(&Event) -> bool| events.iter().position(|it| is(&it.event)).unwrap();
    assert_eq!(count(&|it| matches!(it, Event::Entered { .. })), 1);
    assert_eq!(count(&|it| matches!(it, Event::Tuned { .. })), 1);
    assert_eq!(count(&|it| matches!(it, Event::Left { .. })), 1);
    let builds = count(&|it| matches!(it, Event::BuildDone { error: None, .. }));
    assert_eq!(builds, 4);
    // Two versions of the session and two that came later: each pair is built at one go. A plan before, one when
    // the pair is built; and one of the later planner as it began.
    assert_eq!(count(&|it| matches!(it, Event::Planned { .. })), 5);
    let again = place(&|it| matches!(it, Event::Again { .. }));
    let of_last =
        |it: &Event| matches!(it, Event::RunStarted { cell, .. } if cell.contains(&versions[3]));
    let last = place(&of_last);
    assert!(again < last, "confirmed, then what was asked for besides");
    assert!(last < place(&|it| matches!(it, Event::Left { .. })));
    assert_eq!(count(&of_last), 2 * 2);
    // Cells of the later versions are no missing ones of the session's own plan.
    assert_eq!(session.plan().unwrap().cells.len(), 2 * 2);
    assert!(
        events
            .windows(2)
            .all(|two| two[0].time_ms <= two[1].time_ms)
    );
}
