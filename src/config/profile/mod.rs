//! Host profiles: what a KDL file declares, and what is left of it on a machine with given facts.

mod cpus;
mod kdl_lexer;
mod knob;
mod read;
mod resolve;
mod value;

use std::collections::BTreeMap;

use crate::base::diag::{At, Span};
use crate::base::key::{Key, KeyHasher};

pub use cpus::CpuList;
pub use kdl_lexer::{DEPTH_MAX, PROFILE_BYTES_MAX};
pub use read::{KNOBS_MAX, parse};
pub use resolve::{Chain, EXTENDS_MAX, Evaluate, ReadProfile, load};

/// The file that switches simultaneous multithreading.
const SMT_CONTROL: &str = "/sys/devices/system/cpu/smt/control";

/// What is known of a machine: declared in a matrix or found by edge/environment.
pub type Facts = BTreeMap<String, String>;

/// One profile file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub about: Option<String>,
    /// The profile that this one builds on.
    pub extends: Option<At<String>>,
    pub items: Vec<Item>,
}

/// One declared line, with the conditions of the `when` blocks around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The node's name, for messages.
    pub span: Span,
    /// All of them must hold; outermost first.
    pub when: Vec<At<Condition>>,
    pub setting: Setting,
}

/// The head of a `when` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `when disk="nvme"`: the machine has this fact with this value. False where it lacks the fact.
    Fact { name: String, value: String },
    /// `when "cpus > 8"`: an expression that the caller evaluates.
    Expression(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    Knob(Knob),
    Cpus(WantedProfile<CpuList>),
    DropCaches(WantedProfile<bool>),
    DmaLatency(WantedProfile<u32>),
    StopService(WantedProfile<String>),
}

impl Setting {
    /// What is set, without the value: two settings of one profile must differ in it.
    pub fn identity(&self) -> String {
        match self {
            Setting::Knob(knob) => knob.identity(),
            Setting::Cpus(_) => "cpus".to_owned(),
            Setting::DropCaches(_) => "drop-caches".to_owned(),
            Setting::DmaLatency(_) => "dma-latency-us".to_owned(),
            Setting::StopService(service) => format!("stop-service {}", service.value),
        }
    }
}

/// A value, and whether a machine that cannot have it is fine too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedProfile<T> {
    pub value: T,
    pub optional: bool,
}

/// Files of /sys or /proc that shall hold a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// As a user knows it: `thp`, `sysctl vm.swappiness`.
    pub name: String,
    /// `#true` or `#false`, where its files do not call it that: turbo off is 1 in one file and 0 in
    /// another.
    pub words: Option<&'static str>,
    /// The first that matches a file on the machine is used: drivers disagree on where a knob is.
    pub choices: Vec<KnobChoice>,
    /// A machine that lacks, refuses or clamps the knob keeps what it has, and it is said.
    pub optional: bool,
    /// The value outlives a reboot (firmware settings), so a reboot does not put it back.
    pub persistent: bool,
}

impl Knob {
    /// The files it is about.
    pub fn identity(&self) -> String {
        let files = self.choices.iter().map(|choice| match &choice.beside {
            None => choice.pattern.clone(),
            Some(beside) => format!("{} {beside:?}", choice.pattern),
        });
        files.collect::<Vec<_>>().join(" | ")
    }
}

/// A pattern of files and the value each of them shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobChoice {
    /// Absolute; `*` and `?` match within one component.
    pub pattern: String,
    pub value: String,
    /// Only files in a folder where this holds.
    pub beside: Option<Dependency>,
}

/// What must stand beside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// Another file, with a text that matches: a C-state's `name`.
    Reads { file: String, pattern: String },
    /// An entry whose name matches: an interrupt's device.
    Entry { pattern: String },
}

/// What a profile asks of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Resolved {
    pub name: String,
    /// In the order in which they are set.
    pub knobs: Vec<Knob>,
    /// The CPUs that the workload may use; the executor passes them on through `taskset`.
    pub cpus: Option<WantedProfile<CpuList>>,
    /// Whether the page cache, dentries and inodes are dropped before each run.
    pub drop_caches: Option<WantedProfile<bool>>,
    /// Held in /dev/cpu_dma_latency by a process for as long as the profile is applied.
    pub dma_latency_us: Option<WantedProfile<u32>>,
    /// systemd units that are stopped, and started again if they ran.
    pub services: Vec<WantedProfile<String>>,
}

impl Resolved {
    /// The hash of all that can change a result. The profile's name and the order of its lines
    /// cannot.
    pub fn key(&self) -> Key {
        let mut lines: Vec<String> = self.knobs.iter().map(line_of_knob).collect();
        lines.extend(self.cpus.iter().map(|cpus| line_of("cpus", cpus)));
        let dma = self.dma_latency_us.iter();
        lines.extend(dma.map(|latency| line_of("dma-latency-us", latency)));
        let services = self.services.iter();
        lines.extend(services.map(|service| line_of("stop-service", service)));
        let drop_caches = self.drop_caches.iter();
        lines.extend(drop_caches.map(|on| line_of("drop-caches", on)));
        lines.sort();
        let mut hasher = KeyHasher::new("profile");
        for line in &lines {
            hasher.str(line);
        }
        hasher.finish()
    }
}

impl Resolved {
    /// All that it asks for, by name and value, for people.
    pub fn settings(&self) -> Vec<(String, String)> {
        fn text<T: std::fmt::Display>(wanted: &WantedProfile<T>) -> String {
            with_optional(wanted.value.to_string(), wanted.optional)
        }
        let named = |name: &str, value: String| (name.to_owned(), value);
        let knobs = self.knobs.iter().map(|knob| {
            let value = knob.words.unwrap_or(&knob.choices[0].value);
            named(&knob.name, with_optional(value.to_owned(), knob.optional))
        });
        let cpus = self.cpus.iter().map(|cpus| named("cpus", text(cpus)));
        let dma = self.dma_latency_us.iter();
        let dma = dma.map(|latency| named("dma-latency-us", text(latency)));
        let services = self.services.iter().map(|service| {
            let stopped = with_optional("stopped".to_owned(), service.optional);
            (format!("stop-service {}", service.value), stopped)
        });
        let drop_caches = self.drop_caches.iter();
        let drop_caches = drop_caches.map(|on| named("drop-caches", text(on)));
        knobs
            .chain(cpus)
            .chain(dma)
            .chain(services)
            .chain(drop_caches)
            .collect()
    }
}

fn with_optional(value: String, optional: bool) -> String {
    match optional {
        true => format!("{value} optional"),
        false => value,
    }
}

fn line_of<T: std::fmt::Display>(what: &str, wanted: &WantedProfile<T>) -> String {
    format!("{what} {} optional={}", wanted.value, wanted.optional)
}

fn line_of_knob(knob: &Knob) -> String {
    let values: Vec<&str> = knob.choices.iter().map(|c| c.value.as_str()).collect();
    format!(
        "{} = {values:?} optional={}",
        knob.identity(),
        knob.optional
    )
}

/// Whether `text` matches a pattern in which `*` is any run of characters and `?` any one.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` was, and how much of the text it has eaten so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, eaten)) => {
                    star = Some((at, eaten + 1));
                    p = at + 1;
                    t = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let check = |pattern, text, expected| {
            assert_eq!(
                glob_matches(pattern, text),
                expected,
                "{pattern} and {text}"
            )
        };
        check("nvme*", "nvme0n1", true);
        check("nvme*", "sda", false);
        check("*", "", true);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "aXbYbZ", false);
        check("state?", "state3", true);
        check("state?", "state", false);
        check("", "", true);
        check("", "x", false);
    }

    #[test]
    fn the_key_is_of_the_content_only() {
        let knob = |value: &str| Knob {
            name: "thp".into(),
            words: None,
            choices: vec![KnobChoice {
                pattern: "/sys/x".into(),
                value: value.into(),
                beside: None,
            }],
            optional: false,
            persistent: false,
        };
        let one = Resolved {
            name: "a".into(),
            knobs: vec![knob("never")],
            ..Resolved::default()
        };
        let renamed = Resolved {
            name: "b".into(),
            ..one.clone()
        };
        let other = Resolved {
            knobs: vec![knob("always")],
            ..one.clone()
        };
        let dropping = Resolved {
            drop_caches: Some(WantedProfile {
                value: true,
                optional: false,
            }),
            ..one.clone()
        };
        assert_eq!(one.key(), renamed.key());
        assert_ne!(one.key(), other.key());
        assert_ne!(one.key(), dropping.key());
    }
}
