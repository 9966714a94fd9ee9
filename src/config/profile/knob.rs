//! Which file and value each kind of knob stands for.

use kdl::KdlValue;

use super::read::ProfileReader;
use super::{Dependency, Knob, KnobChoice, SMT_CONTROL};
use crate::base::diag::{At, Diagnostic};
use crate::base::units::parse_size;
use crate::config::profile::kdl_lexer::LexedNode;

/// Pages of one size at the most.
const HUGE_PAGES_MAX: i128 = 1 << 24;
const NUMA_NODE_MAX: i128 = 1023;

const GOVERNORS: [&str; 6] = [
    "performance",
    "powersave",
    "schedutil",
    "ondemand",
    "conservative",
    "userspace",
];
const THP: [&str; 3] = ["always", "madvise", "never"];
const THP_DEFRAG: [&str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];

impl ProfileReader {
    pub(super) fn knob(&mut self, node: &LexedNode, optional: bool) -> Option<Knob> {
        const CPU: &str = "/sys/devices/system/cpu";
        const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";
        let name = node.name.value.as_str();
        let first = &node.args[0];
        let one = |pattern: String, value: String| plain(name.to_owned(), pattern, value, optional);
        Some(match name {
            "governor" => one(
                format!("{CPU}/cpufreq/policy*/scaling_governor"),
                self.one_of(first, &GOVERNORS)?,
            ),
            "turbo" => {
                let on = self.bool(first)?;
                let choice = |file: &str, on: bool| KnobChoice {
                    pattern: format!("{CPU}/{file}"),
                    value: u8::from(on).to_string(),
                    beside: None,
                };
                // intel_pstate has its own file, which says the opposite.
                let choices = vec![
                    choice("intel_pstate/no_turbo", !on),
                    choice("cpufreq/boost", on),
                ];
                Knob {
                    choices,
                    words: Some(words(on)),
                    ..one(String::new(), String::new())
                }
            }
            "smt" => {
                let on = self.bool(first)?;
                let value = if on { "on" } else { "off" }.to_owned();
                Knob {
                    words: Some(words(on)),
                    ..one(SMT_CONTROL.to_owned(), value)
                }
            }
            "idle-state" => {
                let state = self.component(first)?;
                let enabled = self.bool(&node.args[1])?;
                let mut knob = one(
                    format!("{CPU}/cpu*/cpuidle/state*/disable"),
                    u8::from(!enabled).to_string(),
                );
                knob.name = format!("idle-state {state}");
                knob.words = Some(words(enabled));
                knob.choices[0].beside = Some(Dependency::Reads {
                    file: "name".to_owned(),
                    pattern: state,
                });
                knob
            }
            "thp" => one(format!("{HUGE}/enabled"), self.one_of(first, &THP)?),
            "thp-defrag" => one(format!("{HUGE}/defrag"), self.one_of(first, &THP_DEFRAG)?),
            "huge-pages" => {
                let (pattern, shown) = self.huge_pages(node)?;
                let pages = self.number(first, 0..=HUGE_PAGES_MAX)?;
                plain(shown, pattern, pages.to_string(), optional)
            }
            "sysctl" => {
                let pattern = self.sysctl(first)?;
                let values = node.args[1..].iter();
                let values: Option<Vec<String>> = values.map(|arg| self.value(arg)).collect();
                let shown = format!("sysctl {}", first.value.as_string().unwrap_or(""));
                plain(shown, pattern, values?.join(" "), optional)
            }
            "sysfs" => {
                let pattern = self.sysfs(first)?;
                let value = self.value(&node.args[1])?;
                let shown = format!("sysfs {pattern}");
                let persistent = self.flag(node, "persistent").unwrap_or(false);
                Knob {
                    persistent,
                    ..plain(shown, pattern, value, optional)
                }
            }
            _ => {
                let device = self.component(first)?;
                let cpus = self.cpus(&node.args[1])?;
                let mut knob = one("/proc/irq/*/smp_affinity_list".to_owned(), cpus.to_string());
                knob.name = format!("irq-affinity {device}");
                knob.choices[0].beside = Some(Dependency::Entry { pattern: device });
                knob
            }
        })
    }

    /// The pattern and the shown name of a pool of huge pages.
    pub(super) fn huge_pages(&mut self, node: &LexedNode) -> Option<(String, String)> {
        let mut size_kib = 2048;
        let mut pool = "/sys/kernel/mm/hugepages".to_owned();
        let mut shown = "huge-pages".to_owned();
        for (name, value) in &node.props {
            match name.value.as_str() {
                "size" => {
                    let text = self.text(value)?;
                    let Some(bytes) = parse_size(&text).filter(|b| b.is_power_of_two()) else {
                        self.wrong(value, "a size such as \"2M\" or \"1G\"");
                        return None;
                    };
                    size_kib = bytes / 1024;
                    shown += &format!(" size={text}");
                }
                "node" => {
                    let node = self.number(value, 0..=NUMA_NODE_MAX)?;
                    pool = format!("/sys/devices/system/node/node{node}/hugepages");
                    shown += &format!(" node={node}");
                }
                _ => {}
            }
        }
        let pattern = format!("{pool}/hugepages-{size_kib}kB/nr_hugepages");
        Some((pattern, shown))
    }

    /// The file of a sysctl. As in sysctl(8), the separator that comes first separates; the other
    /// one stands for the one it is not (`net.ipv4.conf.eth0/1.forwarding`).
    pub(super) fn sysctl(&mut self, arg: &At<KdlValue>) -> Option<String> {
        let name = self.text(arg)?;
        let dots = name
            .find(['.', '/'])
            .is_none_or(|at| name[at..].starts_with('.'));
        let swap = |c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        };
        let path: String = match dots {
            true => name.chars().map(swap).collect(),
            false => name.clone(),
        };
        let plain = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
        if !path.contains('/') || !path.split('/').all(plain) || path.split('/').any(is_dots) {
            self.wrong(arg, "a sysctl such as \"vm.swappiness\"");
            return None;
        }
        if path == "vm/drop_caches" {
            self.problem(
                Diagnostic::error("`vm.drop_caches` is an action, not a setting")
                    .at(arg.span, "cannot be put back")
                    .help("write `drop-caches #true`: it is then done before each run"),
            );
            return None;
        }
        Some(format!("/proc/sys/{path}"))
    }

    pub(super) fn sysfs(&mut self, arg: &At<KdlValue>) -> Option<String> {
        let path = self.text(arg)?;
        let inside = path.starts_with("/sys/") || path.starts_with("/proc/");
        if !inside || path.ends_with('/') || path.contains("//") || path.split('/').any(is_dots) {
            self.wrong(arg, "an absolute path below /sys or /proc, without `..`");
            return None;
        }
        Some(path)
    }

    /// A name or pattern that is one part of a path.
    pub(super) fn component(&mut self, arg: &At<KdlValue>) -> Option<String> {
        let text = self.text(arg)?;
        if text.contains('/') || is_dots(&text) {
            self.wrong(arg, "a name or a pattern such as \"nvme*\", without `/`");
            return None;
        }
        Some(text)
    }

    pub(super) fn service(&mut self, arg: &At<KdlValue>) -> Option<String> {
        let name = self.text(arg)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "@._:-\\".contains(c);
        // A leading dash would be an option of systemctl.
        if name.starts_with('-') || !name.chars().all(allowed) {
            self.wrong(arg, "a systemd unit such as \"irqbalance\"");
            return None;
        }
        Some(name)
    }
}

pub(super) fn plain(name: String, pattern: String, value: String, optional: bool) -> Knob {
    Knob {
        name,
        words: None,
        choices: vec![KnobChoice {
            pattern,
            value,
            beside: None,
        }],
        optional,
        persistent: false,
    }
}

fn words(on: bool) -> &'static str {
    if on { "#true" } else { "#false" }
}

fn is_dots(component: &str) -> bool {
    component == "." || component == ".."
}
