//! The grammar of profiles: which nodes there are and what each declares.

use std::ops::RangeInclusive;

use kdl::KdlValue;

use super::knob::plain;
use super::{Condition, Item, Profile, Setting, WantedProfile};
use crate::base::diag::{At, Diagnostic, SourceId, Span, suggest};
use crate::config::profile::kdl_lexer::{LexedNode, PROBLEMS_MAX, split};

/// Declared lines of one profile at the most.
pub const KNOBS_MAX: usize = 512;
/// A second, in microseconds: a longer allowed wake-up latency restrains no C-state.
const DMA_LATENCY_US_MAX: i128 = 1_000_000;

/// What a node may look like.
struct Form {
    name: &'static str,
    /// One line that shows how it is written.
    usage: &'static str,
    args: RangeInclusive<usize>,
    /// Beside `optional`.
    props: &'static [&'static str],
    /// Whether `optional` makes sense.
    optional: bool,
    block: bool,
}

const fn form(
    name: &'static str,
    usage: &'static str,
    args: RangeInclusive<usize>,
    props: &'static [&'static str],
) -> Form {
    Form {
        name,
        usage,
        args,
        props,
        optional: true,
        block: false,
    }
}

const ABOUT: Form = Form {
    optional: false,
    ..form("about", "about \"why and for what\"", 1..=1, &[])
};
const EXTENDS: Form = Form {
    optional: false,
    ..form("extends", "extends \"quiet\"", 1..=1, &[])
};
/// Its properties are facts: any name is allowed.
const WHEN: Form = Form {
    optional: false,
    block: true,
    ..form("when", "when disk=\"nvme\" { … }", 0..=1, &[])
};
const BLOCK: Form = Form {
    block: true,
    ..form(
        "block",
        "block \"nvme*\" { scheduler \"none\" }",
        1..=1,
        &[],
    )
};
const FORMS: [Form; 17] = [
    ABOUT,
    EXTENDS,
    form("governor", "governor \"performance\"", 1..=1, &[]),
    form("turbo", "turbo #false", 1..=1, &[]),
    form("smt", "smt #false", 1..=1, &[]),
    form("idle-state", "idle-state \"C6\" #false", 2..=2, &[]),
    form("dma-latency-us", "dma-latency-us 0", 1..=1, &[]),
    form("thp", "thp \"never\"", 1..=1, &[]),
    form("thp-defrag", "thp-defrag \"never\"", 1..=1, &[]),
    form(
        "huge-pages",
        "huge-pages 512 size=\"2M\" node=0",
        1..=1,
        &["size", "node"],
    ),
    form("sysctl", "sysctl \"vm.swappiness\" 10", 2..=8, &[]),
    form(
        "sysfs",
        "sysfs \"/sys/block/*/queue/nomerges\" 2",
        2..=2,
        &["persistent"],
    ),
    BLOCK,
    form("irq-affinity", "irq-affinity \"eth0*\" \"0-1\"", 2..=2, &[]),
    form("cpus", "cpus \"2-7\"", 1..=1, &[]),
    form("drop-caches", "drop-caches #true", 1..=1, &[]),
    form("stop-service", "stop-service \"irqbalance\"", 1..=1, &[]),
];

/// Files below /sys/block/DEVICE/queue, by the kernel's names.
const QUEUE: [&str; 15] = [
    "scheduler",
    "nr_requests",
    "read_ahead_kb",
    "max_sectors_kb",
    "nomerges",
    "rq_affinity",
    "wbt_lat_usec",
    "write_cache",
    "io_poll",
    "io_poll_delay",
    "io_timeout",
    "iostats",
    "add_random",
    "rotational",
    "stable_writes",
];

/// Reads a profile. Whatever could be read is returned beside the problems of all that could not.
pub fn parse(name: &str, source: SourceId, text: &str) -> (Profile, Vec<Diagnostic>) {
    let (nodes, problems) = split(source, text);
    let mut reader = ProfileReader {
        problems,
        profile: Profile {
            name: name.to_owned(),
            about: None,
            extends: None,
            items: Vec::new(),
        },
        about: None,
    };
    reader.nodes(&nodes, &[]);
    reader.refuse_repeats();
    let mut problems = reader.problems;
    problems.sort_by_key(|problem| problem.label.as_ref().map(|(span, _)| span.start));
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    if more > 0 {
        problems.truncate(PROBLEMS_MAX);
        problems.push(Diagnostic::error(format!("and {more} more problems")));
    }
    (reader.profile, problems)
}

pub(super) struct ProfileReader {
    problems: Vec<Diagnostic>,
    profile: Profile,
    about: Option<Span>,
}

impl ProfileReader {
    pub(super) fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    fn nodes(&mut self, nodes: &[LexedNode], when: &[At<Condition>]) {
        for node in nodes {
            if self.profile.items.len() >= KNOBS_MAX {
                let help = format!("the limit of one profile is {KNOBS_MAX}");
                let problem = Diagnostic::error("too many knobs").at(node.name.span, "one more");
                return self.problem(problem.help(help));
            }
            if node.name.value == WHEN.name {
                self.when(node, when);
                continue;
            }
            let form = self.form_of(node);
            if form.is_some_and(|form| self.fits(node, form)) {
                self.node(node, when);
            }
        }
    }

    /// The form of a node; says so where there is none.
    fn form_of(&mut self, node: &LexedNode) -> Option<&'static Form> {
        let name = node.name.value.as_str();
        let form = FORMS.iter().find(|form| form.name == name);
        if form.is_none() {
            let help = suggest(name, FORMS.iter().map(|form| form.name).chain([WHEN.name]));
            self.problem(
                Diagnostic::error(format!("`{name}` is not a node of a profile"))
                    .at(node.name.span, "unknown")
                    .help(help),
            );
        }
        form
    }

    /// Whether a node has the form it must have; says what is wrong with it.
    fn fits(&mut self, node: &LexedNode, form: &Form) -> bool {
        let name = form.name;
        let before = self.problems.len();
        self.props(node, form);
        self.args(node, form);
        match &node.block {
            Some((opening, _)) if !form.block => self.problem(
                Diagnostic::error(format!("`{name}` has no block"))
                    .at(*opening, "not here")
                    .help(format!("it is written `{}`", form.usage)),
            ),
            None if form.block => self.problem(
                Diagnostic::error(format!("`{name}` needs a block"))
                    .at(node.name.span, "without `{`")
                    .help(format!("it is written `{}`", form.usage)),
            ),
            _ => {}
        }
        self.problems.len() == before
    }

    fn args(&mut self, node: &LexedNode, form: &Form) {
        let name = form.name;
        let help = format!("it is written `{}`", form.usage);
        if let Some(extra) = node.args.get(*form.args.end()) {
            self.problem(
                Diagnostic::error(format!("`{name}` has too many values"))
                    .at(extra.span, "one too many")
                    .help(help),
            );
        } else if node.args.len() < *form.args.start() {
            let few = if node.args.is_empty() {
                "no value"
            } else {
                "too few values"
            };
            self.problem(
                Diagnostic::error(format!("`{name}` has {few}"))
                    .at(node.name.span, few)
                    .help(help),
            );
        }
    }

    fn props(&mut self, node: &LexedNode, form: &Form) {
        let allowed = form.props.iter().copied();
        let allowed: Vec<&str> = allowed.chain(form.optional.then_some("optional")).collect();
        for (index, (name, _)) in node.props.iter().enumerate() {
            if !allowed.contains(&name.value.as_str()) {
                let help = suggest(&name.value, allowed.iter().copied());
                self.problem(
                    Diagnostic::error(format!("`{}` has no property `{}`", form.name, name.value))
                        .at(name.span, "unknown")
                        .help(help),
                );
            }
            self.refuse_repeated_prop(&node.props[..index], name);
        }
    }

    /// KDL would take the last one silently.
    fn refuse_repeated_prop(&mut self, before: &[(At<String>, At<KdlValue>)], name: &At<String>) {
        if let Some((first, _)) = before.iter().find(|(other, _)| other.value == name.value) {
            self.problem(
                Diagnostic::error(format!("`{}` is given twice", name.value))
                    .at(name.span, "again here")
                    .also(first.span, "first here"),
            );
        }
    }

    fn node(&mut self, node: &LexedNode, when: &[At<Condition>]) {
        let optional = self.flag(node, "optional").unwrap_or(false);
        let setting = match node.name.value.as_str() {
            "about" => return self.about(node, when),
            "extends" => return self.extends(node, when),
            "block" => return self.block(node, when, optional),
            "drop-caches" => self
                .bool(&node.args[0])
                .map(|value| Setting::DropCaches(WantedProfile { value, optional })),
            "dma-latency-us" => self
                .number(&node.args[0], 0..=DMA_LATENCY_US_MAX)
                .map(|us| {
                    Setting::DmaLatency(WantedProfile {
                        value: us as u32,
                        optional,
                    })
                }),
            "cpus" => self
                .cpus(&node.args[0])
                .map(|value| Setting::Cpus(WantedProfile { value, optional })),
            "stop-service" => self
                .service(&node.args[0])
                .map(|value| Setting::StopService(WantedProfile { value, optional })),
            _ => self.knob(node, optional).map(Setting::Knob),
        };
        if let Some(setting) = setting {
            self.item(node.name.span, when, setting);
        }
    }

    fn item(&mut self, span: Span, when: &[At<Condition>], setting: Setting) {
        self.profile.items.push(Item {
            span,
            when: when.to_vec(),
            setting,
        });
    }

    fn about(&mut self, node: &LexedNode, when: &[At<Condition>]) {
        let first = self.about.replace(node.name.span);
        if self.is_head(node, when, first) {
            self.profile.about = self.text(&node.args[0]);
        }
    }

    fn extends(&mut self, node: &LexedNode, when: &[At<Condition>]) {
        let first = self.profile.extends.as_ref().map(|at| at.span);
        if self.is_head(node, when, first) {
            let name = self.component(&node.args[0]);
            self.profile.extends = name.map(|name| At::new(name, node.args[0].span));
        }
    }

    /// Whether a node that is about the whole file stands once and outside of any `when`.
    fn is_head(&mut self, node: &LexedNode, when: &[At<Condition>], first: Option<Span>) -> bool {
        let name = &node.name.value;
        if let Some(first) = first {
            self.problem(
                Diagnostic::error(format!("`{name}` is given twice"))
                    .at(node.name.span, "again here")
                    .also(first, "first here"),
            );
            return false;
        }
        if !when.is_empty() {
            self.problem(
                Diagnostic::error(format!("`{name}` cannot depend on a fact"))
                    .at(node.name.span, "inside `when`")
                    .help("put it at the top of the file"),
            );
            return false;
        }
        true
    }

    fn when(&mut self, node: &LexedNode, outer: &[At<Condition>]) {
        let mut conditions = outer.to_vec();
        for (index, (name, value)) in node.props.iter().enumerate() {
            self.refuse_repeated_prop(&node.props[..index], name);
            if let Some(text) = self.text(value) {
                let fact = Condition::Fact {
                    name: name.value.clone(),
                    value: text,
                };
                let span = Span {
                    start: name.span.start,
                    ..value.span
                };
                conditions.push(At::new(fact, span));
            }
        }
        for arg in &node.args {
            if let Some(text) = self.text(arg) {
                conditions.push(At::new(Condition::Expression(text), arg.span));
            }
        }
        self.args(node, &WHEN);
        let help = "it is written `when disk=\"nvme\" { … }` or `when \"cpus > 8\" { … }`";
        if node.args.is_empty() && node.props.is_empty() {
            self.problem(
                Diagnostic::error("`when` has no condition")
                    .at(node.name.span, "when what?")
                    .help(help),
            );
        }
        match &node.block {
            Some((_, nodes)) => self.nodes(nodes, &conditions),
            None => self.problem(
                Diagnostic::error("`when` needs a block")
                    .at(node.name.span, "without `{`")
                    .help(help),
            ),
        }
    }

    /// `block "nvme*" { scheduler "none"; … }`: each child is a file of the device's queue.
    fn block(&mut self, node: &LexedNode, when: &[At<Condition>], optional: bool) {
        let Some(device) = self.component(&node.args[0]) else {
            return;
        };
        let Some((_, children)) = &node.block else {
            return;
        };
        for child in children {
            let name = child.name.value.as_str();
            let Some(&name) = QUEUE.iter().find(|known| **known == name) else {
                let help = suggest(name, QUEUE);
                self.problem(
                    Diagnostic::error(format!("`{name}` is not a setting of a block device"))
                        .at(child.name.span, "unknown")
                        .help(help),
                );
                continue;
            };
            let form = form(name, BLOCK.usage, 1..=1, &[]);
            if !self.fits(child, &form) {
                continue;
            }
            let optional = self.flag(child, "optional").unwrap_or(optional);
            let Some(value) = self.value(&child.args[0]) else {
                continue;
            };
            let pattern = format!("/sys/block/{device}/queue/{name}");
            let shown = format!("block {device} {name}");
            let knob = plain(shown, pattern, value, optional);
            self.item(child.name.span, when, Setting::Knob(knob));
        }
    }

    /// The same knob twice under the same conditions: one of the two would be lost silently.
    fn refuse_repeats(&mut self) {
        let mut seen: Vec<(String, &Item)> = Vec::new();
        let mut repeats = Vec::new();
        for item in &self.profile.items {
            let identity = item.setting.identity();
            let first = seen
                .iter()
                .find(|(other, first)| *other == identity && first.when == item.when);
            match first {
                Some((_, first)) => repeats.push(
                    Diagnostic::error("this knob is set twice")
                        .at(item.span, "again here")
                        .also(first.span, "first here")
                        .help("remove one; a `when` block may override a knob"),
                ),
                None => seen.push((identity, item)),
            }
        }
        self.problems.extend(repeats);
    }
}
