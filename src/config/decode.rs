//! The way from TOML text to a [`Matrix`]: which keys there are, their kinds and defaults.

mod build;
mod hooks;
mod judging;
mod monitors;
mod nights;
mod run;

use std::collections::BTreeMap;
use std::time::Duration;

use super::check;
use super::matrix::*;
use super::read::{self, Problems, Table, TomlNode};
use super::ssh::{self, SshTarget};
use super::template::{Engine, Expr};
use super::value::{self, AxisValue};
use crate::base::diag::{At, Diagnostic, SourceId, Sources, Span, suggest};
use crate::base::pattern::Pattern;
use crate::base::sample::Better;

/// Problems of one file that are told.
pub const PROBLEMS_MAX: usize = 20;
/// Files that one matrix may import.
pub const IMPORTS_MAX: usize = 16;
const BUILD_TIMEOUT: Duration = Duration::from_secs(3600);
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
const VIAS: [(&str, Via); 3] = [
    ("local", Via::Local),
    ("ssh", Via::Ssh),
    ("null", Via::Null),
];

/// Gives the text of an imported file: name as a user knows it, and text; or why there is none.
pub type Load<'a> = &'a mut dyn FnMut(&str) -> Result<(String, String), String>;

/// Reads a matrix. Without a matrix there is at least one error among the diagnostics; with one
/// there are warnings at the most.
pub fn matrix(
    sources: &mut Sources,
    file: SourceId,
    load: Load,
) -> (Option<Matrix>, Vec<Diagnostic>) {
    let mut problems = Problems::default();
    let text = sources.text(file).to_owned();
    let matrix = read::parse(file, &text, &mut problems).and_then(|toml| {
        let whole = Span::new(file, 0..text.len().min(1));
        let table = Table::new("a matrix file", file, &text, whole, toml.get_ref());
        Decoder {
            problems: &mut problems,
            engine: Engine::default(),
        }
        .matrix(table, sources, load)
    });
    let matrix = matrix.and_then(|mut matrix| {
        check::matrix(&mut matrix, sources, &mut problems);
        Some(matrix).filter(|_| !problems.0.iter().any(Diagnostic::is_error))
    });
    problems
        .0
        .sort_by_key(|problem| problem.label.as_ref().map(|(span, _)| *span));
    (matrix, shortened(problems.0))
}

/// The machines that a file declares or imports, be it a matrix or a file that matrices import. What else is in it is not
/// looked at.
pub fn machines(
    sources: &mut Sources,
    file: SourceId,
    load: Load,
) -> (Vec<MachineDecl>, Vec<Diagnostic>) {
    let mut problems = Problems::default();
    let text = sources.text(file).to_owned();
    let mut machines = Vec::new();
    if let Some(toml) = read::parse(file, &text, &mut problems) {
        let whole = Span::new(file, 0..text.len().min(1));
        let mut table = Table::new("a file", file, &text, whole, toml.get_ref());
        let mut decoder = Decoder {
            problems: &mut problems,
            engine: Engine::default(),
        };
        machines = decoder.machines(&mut table);
        let head = decoder.table(&mut table, "matrix", "[matrix]");
        let imports = head.and_then(|mut head| head.get("import"));
        let imports = imports.map(|node| node.strings(decoder.problems));
        for import in imports.iter().flatten().take(IMPORTS_MAX) {
            let (mut presets, mut metrics) = (Vec::new(), Vec::new());
            decoder.import(
                import,
                sources,
                load,
                &mut machines,
                &mut presets,
                &mut metrics,
            );
        }
    }
    (machines, shortened(problems.0))
}

/// The first problems, and how many more there are.
fn shortened(mut problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    // Errors come before warnings.
    problems.sort_by_key(|problem| !problem.is_error());
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    if more > 0 {
        problems.truncate(PROBLEMS_MAX);
        let told = match problems[0].is_error() {
            true => Diagnostic::error(format!("… and {more} more")),
            false => Diagnostic::warning(format!("… and {more} more")),
        };
        problems.push(told.help("they are told when these are mended"));
    }
    problems
}

struct Decoder<'p> {
    problems: &'p mut Problems,
    engine: Engine,
}

impl Decoder<'_> {
    fn matrix(mut self, mut top: Table, sources: &mut Sources, load: Load) -> Option<Matrix> {
        if top.is_empty() {
            self.problems.push(
                Diagnostic::error("this matrix is empty")
                    .at(top.span, "this file")
                    .help("it needs `[matrix]` with a `name`, `[run]` and `[metrics]`"),
            );
            return None;
        }
        let mut head = self.table(&mut top, "matrix", "[matrix]");
        let name = head
            .as_mut()
            .and_then(|t| t.require("name", self.problems))
            .and_then(|n| n.string(self.problems));
        if head.is_none() {
            self.problems.push(
                Diagnostic::error("there is no `[matrix]` table")
                    .at(top.span, "this file")
                    .help("begin with `[matrix]` and `name = \"…\"`"),
            );
        }
        let about = self.optional_string(head.as_mut(), "about");
        let preset = head
            .as_mut()
            .and_then(|t| t.get("preset"))
            .and_then(|n| n.string(self.problems));
        let imports = head
            .as_mut()
            .and_then(|t| t.get("import"))
            .map(|n| n.strings(self.problems))
            .unwrap_or_default();
        if let Some(head) = head {
            head.finish(self.problems);
        }

        self.declare_names(&top);
        let subject = self.subject(&mut top);
        let requires = self.requires(&mut top);
        let build = self.build(&mut top);
        let affects = self.affects(&mut top);
        let (mut axes, derived) = self.axes(&mut top);
        let excludes = self.excludes(&mut top);
        let includes = self.includes(&mut top);
        let setups = self.setups(&mut top);
        let run = self.run(&mut top);
        let monitors = self.monitors(&mut top);
        let hooks = self.hooks(&mut top);
        let nightly = self.nightly(&mut top);
        let mail = self.mail(&mut top);
        let compares = self.compares(&mut top);
        let env = self.env(&mut top);
        let mut machines = self.machines(&mut top);
        let mut presets = self.presets(&mut top);
        let mut metrics = self.metrics(&mut top);
        let whole = top.span;
        top.finish(self.problems);

        self.limit(&imports, IMPORTS_MAX, "imports");
        for import in imports.iter().take(IMPORTS_MAX) {
            self.import(
                import,
                sources,
                load,
                &mut machines,
                &mut presets,
                &mut metrics,
            );
        }
        if machines.is_empty() {
            machines.push(MachineDecl::local("local"));
        }
        self.implied_axes(&mut axes, &machines, whole);
        Some(Matrix {
            name: name?.value,
            about,
            preset,
            subject,
            affects,
            build,
            requires,
            machines,
            axes,
            derived,
            excludes,
            includes,
            presets,
            setups,
            run: run?,
            metrics,
            monitors,
            hooks,
            nightly,
            mail,
            compares,
            env,
            here: String::new(),
            engine: self.engine,
        })
    }

    /// An axis called `range` is an axis, not the function.
    fn declare_names(&mut self, top: &Table) {
        let mut ignored = Problems::default();
        let mut names = Vec::new();
        for (key, node) in top.all() {
            match key.value {
                "axes" => {
                    let axes = node.table("[axes]", &mut ignored);
                    for (axis, node) in axes.iter().flat_map(Table::all) {
                        let derived = Some(node).filter(|_| axis.value == "derived");
                        let derived = derived.and_then(|it| it.table("", &mut ignored));
                        let derived = derived.iter().flat_map(Table::all);
                        names.extend(derived.map(|(name, _)| name.value.to_owned()));
                        names.push(axis.value.to_owned());
                    }
                }
                "setup" if node.value.is_array() => {
                    for mut setup in node.tables("[[setup]]", &mut ignored) {
                        let name = setup.get("name");
                        let name = name.and_then(|n| n.string(&mut ignored));
                        names.extend(name.map(|name| name.value));
                    }
                }
                _ => {}
            }
        }
        self.engine.declare(names);
    }

    /// `machine` and `version` are axes even where the file does not name them.
    fn implied_axes(&self, axes: &mut Vec<Axis>, machines: &[MachineDecl], span: Span) {
        let implied = |name: &str, values: Vec<At<AxisValue>>| Axis {
            name: name.to_owned(),
            values,
            declared: false,
            span,
        };
        let has = |axes: &[Axis], name| axes.iter().any(|axis: &Axis| axis.name == name);
        if !has(axes, "version") {
            let installed = At::new(AxisValue::text(INSTALLED), span);
            axes.insert(0, implied("version", vec![installed]));
        }
        if !has(axes, "machine") {
            let all = machines
                .iter()
                .map(|machine| {
                    At::new(AxisValue::text(&machine.name), machine.span.unwrap_or(span))
                })
                .collect();
            axes.insert(0, implied("machine", all));
        }
    }

    fn import(
        &mut self,
        import: &At<String>,
        sources: &mut Sources,
        load: Load,
        machines: &mut Vec<MachineDecl>,
        presets: &mut Vec<Preset>,
        metrics: &mut Vec<MetricDecl>,
    ) {
        let (name, text) = match load(&import.value) {
            Ok(found) => found,
            Err(reason) => {
                self.problems.push(
                    Diagnostic::error(format!("`{}` cannot be imported: {reason}", import.value))
                        .at(import.span, "named here")
                        .help("the path is relative to the file that imports it"),
                );
                return;
            }
        };
        let file = sources.add(name, text.clone());
        let Some(toml) = read::parse(file, &text, self.problems) else {
            return;
        };
        let whole = Span::new(file, 0..text.len().min(1));
        let mut table = Table::new("an imported file", file, &text, whole, toml.get_ref());
        // What the matrix itself declares takes precedence over what it imports.
        for machine in self.machines(&mut table) {
            if !machines.iter().any(|own| own.name == machine.name) {
                machines.push(machine);
            }
        }
        for preset in self.presets(&mut table) {
            if !presets
                .iter()
                .any(|own| own.name.value == preset.name.value)
            {
                presets.push(preset);
            }
        }
        for metric in self.metrics(&mut table) {
            if !metrics.iter().any(|own| own.name == metric.name) {
                metrics.push(metric);
            }
        }
        table.finish(self.problems);
    }

    fn subject(&mut self, top: &mut Table) -> SubjectDecl {
        let Some(mut table) = self.table(top, "subject", "[subject]") else {
            return SubjectDecl::default();
        };
        let installed = self.strings(&mut table, "installed");
        let git = self
            .table(&mut table, "git", "[subject.git]")
            .and_then(|mut git| {
                let repo = git
                    .require("repo", self.problems)
                    .and_then(|n| n.string(self.problems));
                let paths = self.patterns(&mut git, "paths");
                let submodules = self.submodules(&mut git);
                git.finish(self.problems);
                Some(GitSubject {
                    repo: repo?,
                    paths,
                    submodules,
                })
            });
        table.finish(self.problems);
        SubjectDecl { installed, git }
    }

    fn requires(&mut self, top: &mut Table) -> Requires {
        let Some(mut table) = self.table(top, "requires", "[requires]") else {
            return Requires::default();
        };
        let commands = self.strings(&mut table, "commands");
        let mut packages = BTreeMap::new();
        if let Some(managers) = self.table(&mut table, "packages", "[requires.packages]") {
            for (manager, node) in managers.all() {
                if !PACKAGE_MANAGERS.contains(&manager.value) {
                    self.problems.push(
                        Diagnostic::error(format!("unknown package manager `{}`", manager.value))
                            .at(manager.span, "not known here")
                            .help(suggest(manager.value, PACKAGE_MANAGERS)),
                    );
                }
                let names = node.strings(self.problems);
                packages.insert(
                    manager.value.to_owned(),
                    names.into_iter().map(|name| name.value).collect(),
                );
            }
        }
        table.finish(self.problems);
        Requires { commands, packages }
    }

    fn affects(&mut self, top: &mut Table) -> Vec<Affects> {
        let mut affects = Vec::new();
        for mut table in self.tables(top, "affects", "[[affects]]") {
            table.require("paths", self.problems);
            let paths = self.patterns(&mut table, "paths");
            let when = table
                .require("when", self.problems)
                .and_then(|n| n.string(self.problems))
                .and_then(|text| self.problems.note(self.engine.expr(&text.value, text.span)));
            table.finish(self.problems);
            affects.extend(when.map(|when| Affects { paths, when }));
        }
        affects
    }

    fn patterns(&mut self, table: &mut Table, key: &'static str) -> Vec<Pattern> {
        let texts = self.strings(table, key);
        let read = |text: At<String>| {
            Pattern::parse(&text.value).map_err(|why| {
                Diagnostic::error(format!("`{}` is no pattern of paths: {why}", text.value))
                    .at(text.span, "here")
            })
        };
        texts
            .into_iter()
            .filter_map(|text| self.problems.note(read(text)))
            .collect()
    }

    fn machines(&mut self, top: &mut Table) -> Vec<MachineDecl> {
        let Some(all) = self.table(top, "machines", "[machines]") else {
            return Vec::new();
        };
        let mut machines = Vec::new();
        for (name, node) in all.all() {
            let Some(mut table) = node.table(format!("[machines.{}]", name.value), self.problems)
            else {
                continue;
            };
            let via = table
                .require("via", self.problems)
                .and_then(|n| self.one_of(&n, &VIAS))
                .unwrap_or(Via::Local);
            let ssh = match via {
                Via::Ssh => self.ssh(&mut table),
                Via::Local | Via::Null => None,
            };
            let profile = table.get("profile").and_then(|n| n.string(self.problems));
            let mut facts = BTreeMap::new();
            if let Some(list) = self.table(&mut table, "facts", "facts") {
                for (fact, node) in list.all() {
                    if let Some(text) = node.string(self.problems) {
                        facts.insert(fact.value.to_owned(), text.value);
                    }
                }
            }
            let noise = table
                .get("noise")
                .and_then(|n| n.percent(self.problems))
                .unwrap_or(NULL_NOISE);
            let effects = self.effects(&mut table);
            let quiet_wait = self.duration(&mut table, "quiet_wait", Duration::ZERO);
            let [slots, build_slots] = ["slots", "build_slots"].map(|key| {
                let slots = table.get(key)?.integer(1, SLOTS_MAX, self.problems);
                slots.map(|slots| slots as u32)
            });
            table.finish(self.problems);
            machines.push(MachineDecl {
                name: name.value.to_owned(),
                via,
                ssh,
                profile,
                facts,
                noise,
                effects,
                quiet_wait,
                slots: slots.unwrap_or(1),
                build_slots: build_slots.unwrap_or(1),
                span: Some(name.span),
            });
        }
        self.limit(&machines, LIST_MAX, "machines");
        machines
    }

    /// Where a machine is that is reached over ssh.
    fn ssh(&mut self, table: &mut Table) -> Option<SshTarget> {
        let host = table.require("host", self.problems);
        let host = host.and_then(|node| self.checked_text(&node, ssh::check_host));
        let mut path = |key| {
            let node = table.get(key)?;
            self.checked_text(&node, ssh::check_path)
        };
        let (agent, state) = (path("agent"), path("state"));
        let port = table.get("port");
        let port = port.and_then(|node| node.integer(1, u16::MAX.into(), self.problems));
        Some(SshTarget {
            host: host?,
            port: port.and_then(|port| u16::try_from(port).ok()),
            agent,
            state,
        })
    }

    fn checked_text(
        &mut self,
        node: &TomlNode,
        check: fn(&str) -> Result<(), String>,
    ) -> Option<String> {
        let text = node.string(self.problems)?;
        match check(&text.value) {
            Ok(()) => Some(text.value),
            Err(why) => {
                self.problems
                    .push(Diagnostic::error(why).at(text.span, "here"));
                None
            }
        }
    }

    fn axes(&mut self, top: &mut Table) -> (Vec<Axis>, Vec<DerivedAxis>) {
        let (mut axes, mut derived) = (Vec::new(), Vec::new());
        let Some(mut table) = self.table(top, "axes", "[axes]") else {
            return (axes, derived);
        };
        if let Some(list) = self.table(&mut table, "derived", "[axes.derived]") {
            let all = list.all();
            self.limit(&all, AXES_MAX, "axes.derived");
            for (name, node) in all.into_iter().take(AXES_MAX) {
                let expr = node
                    .string(self.problems)
                    .and_then(|text| self.problems.note(self.engine.expr(&text.value, text.span)));
                if let Some(expr) = expr {
                    derived.push(DerivedAxis {
                        name: At::new(name.value.to_owned(), name.span),
                        expr,
                    });
                }
            }
        }
        for (name, node) in table.rest() {
            let values = self.axis_values(&node);
            axes.push(Axis {
                name: name.value.to_owned(),
                values,
                declared: true,
                span: name.span,
            });
        }
        (axes, derived)
    }

    fn axis_values(&mut self, node: &TomlNode) -> Vec<At<AxisValue>> {
        let values = node.array("values", self.problems).unwrap_or_default();
        if values.is_empty() && node.value.is_array() {
            node.wrong("an array of at least one value", self.problems);
        }
        if values.len() > VALUES_MAX {
            node.wrong(
                &format!("an array of at most {VALUES_MAX} values"),
                self.problems,
            );
            return Vec::new();
        }
        values
            .iter()
            .filter_map(|value| value::read(value, self.problems))
            .collect()
    }

    fn excludes(&mut self, top: &mut Table) -> Vec<Exclude> {
        let mut excludes = Vec::new();
        for mut table in self.tables(top, "exclude", "[[exclude]]") {
            let when = table
                .require("when", self.problems)
                .and_then(|n| n.string(self.problems))
                .and_then(|text| self.problems.note(self.engine.expr(&text.value, text.span)));
            let reason = self.optional(&mut table, "reason");
            table.finish(self.problems);
            excludes.extend(when.map(|when| Exclude { when, reason }));
        }
        excludes
    }

    fn includes(&mut self, top: &mut Table) -> Vec<Include> {
        let mut includes = Vec::new();
        for mut table in self.tables(top, "include", "[[include]]") {
            let reason = self.optional(&mut table, "reason");
            let mut values = Vec::new();
            for (name, node) in table.rest() {
                let given = match node.value.is_array() {
                    true => self.axis_values(&node),
                    false => value::read(&node, self.problems).into_iter().collect(),
                };
                values.push((At::new(name.value.to_owned(), name.span), given));
            }
            includes.push(Include {
                values,
                reason,
                span: table.span,
            });
        }
        includes
    }

    fn presets(&mut self, top: &mut Table) -> Vec<Preset> {
        let Some(all) = self.table(top, "presets", "[presets]") else {
            return Vec::new();
        };
        let mut presets = Vec::new();
        for (name, node) in all.all() {
            let title = format!("[presets.{}]", name.value);
            let Some(mut table) = node.table(&title, self.problems) else {
                continue;
            };
            let mut axes = Vec::new();
            if let Some(list) = self.table(&mut table, "axes", &format!("{title} axes")) {
                for (axis, node) in list.all() {
                    axes.push((
                        At::new(axis.value.to_owned(), axis.span),
                        self.axis_values(&node),
                    ));
                }
            }
            let (mut repeat, mut seconds, mut max_age) = (None, None, None);
            if let Some(mut run) = self.table(&mut table, "run", &format!("{title} run")) {
                repeat = run.get("repeat").and_then(|n| self.repeat(&n));
                seconds = run.get("seconds").and_then(|n| n.seconds(self.problems));
                max_age = run.get("max_age").and_then(|n| n.duration(self.problems));
                run.finish(self.problems);
            }
            let sampling = table
                .get("sample")
                .and_then(|n| {
                    let names = [
                        ("product", Sampling::Product),
                        ("pairwise", Sampling::Pairwise),
                    ];
                    self.one_of(&n, &names)
                })
                .unwrap_or_default();
            table.finish(self.problems);
            presets.push(Preset {
                name: At::new(name.value.to_owned(), name.span),
                axes,
                repeat,
                seconds,
                max_age,
                sampling,
            });
        }
        self.limit(&presets, LIST_MAX, "presets");
        presets
    }

    fn setups(&mut self, top: &mut Table) -> Vec<Setup> {
        let mut setups = Vec::new();
        for mut table in self.tables(top, "setup", "[[setup]]") {
            let name = table
                .require("name", self.problems)
                .and_then(|n| n.string(self.problems));
            let run = self.command_list(&mut table, "run");
            let undo = self.command_list(&mut table, "undo");
            let service = table.get("service").and_then(|n| self.argv(&n));
            let ready = table.get("ready").and_then(|n| self.argv(&n));
            let scopes = [
                ("session", SetupScope::Session),
                ("round", SetupScope::Round),
                ("run", SetupScope::Run),
            ];
            let scope = table
                .get("scope")
                .and_then(|n| self.one_of(&n, &scopes))
                .unwrap_or_default();
            let timeout = self.duration(&mut table, "timeout", SETUP_TIMEOUT);
            let span = table.span;
            if table.get("run").is_none() && table.get("service").is_none() {
                self.problems.push(
                    Diagnostic::error("this set-up does nothing")
                        .at(span, "neither `run` nor `service`")
                        .help("`run = [\"command …\"]` prepares something, `service = [\"program\", …]` stays while cells are measured"),
                );
            }
            table.finish(self.problems);
            let Some(name) = name else { continue };
            setups.push(Setup {
                name,
                run,
                service,
                ready,
                undo,
                scope,
                timeout,
                span,
            });
        }
        setups
    }

    fn metrics(&mut self, top: &mut Table) -> Vec<MetricDecl> {
        let Some(all) = self.table(top, "metrics", "[metrics]") else {
            return Vec::new();
        };
        let mut metrics = Vec::new();
        for (name, node) in all.all() {
            let Some(mut table) = node.table(format!("[metrics.{}]", name.value), self.problems)
            else {
                continue;
            };
            let from = match table.get("from") {
                Some(n) => n.string(self.problems),
                None => Some(At::new(name.value.to_owned(), name.span)),
            };
            let from =
                from.and_then(|f| self.problems.note(self.engine.template(&f.value, f.span)));
            let directions = [("higher", Better::Higher), ("lower", Better::Lower)];
            let better = table
                .get("better")
                .and_then(|n| self.one_of(&n, &directions));
            let unit = self.optional(&mut table, "unit");
            let min_effect = table
                .get("min_effect")
                .and_then(|n| n.percent(self.problems));
            let when = self.optional_expr(&mut table, "when");
            let optional = self.boolean(&mut table, "optional");
            let deterministic = self.boolean(&mut table, "deterministic");
            table.finish(self.problems);
            metrics.extend(from.map(|from| MetricDecl {
                name: name.value.to_owned(),
                from,
                better,
                unit,
                min_effect,
                when,
                optional,
                deterministic,
                span: name.span,
            }));
        }
        self.limit(&metrics, LIST_MAX, "metrics");
        metrics
    }

    fn env(&mut self, top: &mut Table) -> Vec<(String, super::template::Template)> {
        let mut env = Vec::new();
        if let Some(table) = self.table(top, "env", "[env]") {
            for (name, node) in table.all() {
                let template = node.string(self.problems).and_then(|text| {
                    self.problems
                        .note(self.engine.template(&text.value, text.span))
                });
                env.extend(template.map(|template| (name.value.to_owned(), template)));
            }
        }
        env
    }

    fn table<'a>(
        &mut self,
        parent: &mut Table<'a>,
        key: &'static str,
        title: &str,
    ) -> Option<Table<'a>> {
        parent.get(key).and_then(|n| n.table(title, self.problems))
    }

    fn tables<'a>(
        &mut self,
        parent: &mut Table<'a>,
        key: &'static str,
        title: &str,
    ) -> Vec<Table<'a>> {
        let tables = parent
            .get(key)
            .map(|n| n.tables(title, self.problems))
            .unwrap_or_default();
        self.limit(&tables, LIST_MAX, title);
        tables
    }

    fn strings(&mut self, table: &mut Table, key: &'static str) -> Vec<At<String>> {
        table
            .get(key)
            .map(|n| n.strings(self.problems))
            .unwrap_or_default()
    }

    fn optional(&mut self, table: &mut Table, key: &'static str) -> Option<String> {
        table
            .get(key)
            .and_then(|n| n.string(self.problems))
            .map(|text| text.value)
    }

    fn optional_expr(&mut self, table: &mut Table, key: &'static str) -> Option<Expr> {
        let text = table.get(key).and_then(|n| n.string(self.problems))?;
        self.problems.note(self.engine.expr(&text.value, text.span))
    }

    fn optional_string(&mut self, table: Option<&mut Table>, key: &'static str) -> String {
        table
            .and_then(|t| self.optional(t, key))
            .unwrap_or_default()
    }

    fn duration(&mut self, table: &mut Table, key: &'static str, default: Duration) -> Duration {
        table
            .get(key)
            .and_then(|n| n.duration(self.problems))
            .unwrap_or(default)
    }

    fn boolean(&mut self, table: &mut Table, key: &'static str) -> bool {
        table
            .get(key)
            .and_then(|n| n.boolean(self.problems))
            .unwrap_or(false)
    }

    fn one_of<T: Copy>(&mut self, node: &TomlNode, names: &[(&'static str, T)]) -> Option<T> {
        let text = node.string(self.problems)?;
        let found = names.iter().find(|(name, _)| *name == text.value);
        if found.is_none() {
            self.problems.push(
                Diagnostic::error(format!("`{}` cannot be `{}`", node.what, text.value))
                    .at(node.span, "not known here")
                    .help(suggest(&text.value, names.iter().map(|(name, _)| *name))),
            );
        }
        found.map(|(_, value)| *value)
    }

    fn limit<T>(&mut self, list: &[T], max: usize, what: &str) {
        if list.len() > max {
            self.problems.push(Diagnostic::error(format!(
                "`{what}`: {} entries; at most {max} are allowed",
                list.len()
            )));
        }
    }
}

/// Package managers that `--install` can drive.
pub const PACKAGE_MANAGERS: [&str; 2] = ["apt", "dnf"];

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The matrix that a text declares, for tests of what comes after.
    pub fn read(text: &str) -> Matrix {
        let mut sources = Sources::default();
        let file = sources.add("matrix.toml", text);
        let (matrix, problems) = matrix(&mut sources, file, &mut |_| Err("no imports".into()));
        matrix.unwrap_or_else(|| panic!("{problems:#?}"))
    }
}
