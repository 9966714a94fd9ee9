//! Decoding `[run]` and the commands and parsers of all steps.

use super::Decoder;
use crate::base::diag::{At, Diagnostic, Span};
use crate::config::matrix::{
    Argv, FailRules, LIST_MAX, ParserDecl, REPEAT_MAX, Repeat, Run, RunCase, WARMUP_MAX,
};
use crate::config::read::{Table, TomlNode};
use crate::config::template::split_words;

use super::RUN_TIMEOUT;

/// Parsers of one output.
const PARSERS_MAX: usize = 8;

impl Decoder<'_> {
    /// `[run]`, or several `[[run]]`.
    pub(super) fn run(&mut self, top: &mut Table) -> Option<Run> {
        let Some(node) = top.get("run") else {
            self.problems.push(
                Diagnostic::error("there is no `[run]` table")
                    .at(top.span, "this file")
                    .help("`[run]` says which command measures a cell and which parser reads its output"),
            );
            return None;
        };
        let tables = match node.value.is_array() {
            true => node.tables("[[run]]", self.problems),
            false => node.table("[run]", self.problems).into_iter().collect(),
        };
        self.limit(&tables, LIST_MAX, "[[run]]");
        if tables.is_empty() && node.value.is_array() {
            node.wrong("at least one `[[run]]`", self.problems);
        }
        let mut run: Option<Run> = None;
        for table in tables {
            let (case, mut table) = self.run_case(table);
            let Some(own) = &mut run else {
                run = self.run_settings(case, &mut table);
                table.finish(self.problems);
                run.as_ref()?;
                continue;
            };
            for key in ["repeat", "seconds", "max_age", "confirm"] {
                if let Some(node) = table.get(key) {
                    self.problems.push(
                        Diagnostic::error(format!("`{key}` is the same for all cells"))
                            .at(node.key, "in a later `[[run]]`")
                            .help("write it in the first `[[run]]`, or in a preset"),
                    );
                }
            }
            table.finish(self.problems);
            own.cases.extend(case);
        }
        let mut run = run?;
        let timeouts = run.cases.iter().map(|case| case.timeout);
        run.timeout = timeouts.max().unwrap_or(RUN_TIMEOUT);
        Some(run)
    }

    fn run_settings(&mut self, case: Option<RunCase>, table: &mut Table) -> Option<Run> {
        let repeat = table
            .get("repeat")
            .and_then(|n| self.repeat(&n))
            .unwrap_or(Repeat::times(5));
        let seconds = table.get("seconds").and_then(|n| n.seconds(self.problems));
        let max_age = table.get("max_age").and_then(|n| n.duration(self.problems));
        let confirm = self.confirm(table);
        let case = case?;
        Some(Run {
            timeout: case.timeout,
            cases: vec![case],
            repeat,
            seconds: seconds.unwrap_or(1.0),
            max_age,
            confirm,
            span: table.span,
        })
    }

    fn run_case<'a>(&mut self, mut table: Table<'a>) -> (Option<RunCase>, Table<'a>) {
        let name = self.optional(&mut table, "name");
        let when = self.optional_expr(&mut table, "when");
        let command = table.require("command", self.problems);
        let command = command.and_then(|n| self.argv(&n));
        let parsers = table.require("parser", self.problems);
        let parsers = parsers.and_then(|n| self.parsers(&n));
        let prepare = self.command_list(&mut table, "prepare");
        let warmup = table
            .get("warmup")
            .and_then(|n| n.integer(0, WARMUP_MAX, self.problems))
            .unwrap_or(0) as u32;
        let timeout = self.duration(&mut table, "timeout", RUN_TIMEOUT);
        let fail = self.fail_rules(&mut table);
        let streams = [("keep", false), ("null", true)];
        let stdout = table.get("stdout").and_then(|n| self.one_of(&n, &streams));
        let span = table.span;
        let case = command.zip(parsers).map(|(command, parsers)| RunCase {
            name,
            when,
            command,
            // Where nothing that it prints is read, nothing of it is kept.
            is_silent: stdout.unwrap_or(parsers.iter().all(|it| it.kind.value == "time")),
            parsers,
            prepare,
            warmup,
            timeout,
            fail,
            span,
        });
        (case, table)
    }

    /// One parser, or a list of them.
    fn parsers(&mut self, node: &TomlNode) -> Option<Vec<ParserDecl>> {
        if !node.value.is_array() {
            return Some(vec![self.parser(node)?]);
        }
        let nodes = node.array("parsers", self.problems)?;
        if nodes.is_empty() || nodes.len() > PARSERS_MAX {
            node.wrong(
                &format!("a list of 1 to {PARSERS_MAX} parsers"),
                self.problems,
            );
            return None;
        }
        nodes.iter().map(|node| self.parser(node)).collect()
    }

    /// A regular expression, or a table of `pattern` and `when`.
    fn fail_rules(&mut self, table: &mut Table) -> FailRules {
        let mut rules = FailRules::default();
        let Some(node) = table.get("fail") else {
            return rules;
        };
        if node.value.is_str() {
            rules.pattern = node.string(self.problems);
            return rules;
        }
        if !node.value.is_table() {
            let wanted = "a regular expression, or a table such as { when = \"errors > 0\" }";
            node.wrong(wanted, self.problems);
            return rules;
        }
        if let Some(mut table) = node.table("fail", self.problems) {
            rules.pattern = table.get("pattern").and_then(|n| n.string(self.problems));
            rules.when = self.optional_expr(&mut table, "when");
            table.finish(self.problems);
        }
        rules
    }

    pub(super) fn repeat(&mut self, node: &TomlNode) -> Option<Repeat> {
        if node.value.is_integer() {
            let n = node.integer(1, REPEAT_MAX, self.problems)?;
            return Some(Repeat::times(n as u32));
        }
        if !node.value.is_table() {
            let wanted =
                "a whole number, or a table such as { min = 5, max = 20, until = \"ci95 < 2%\" }";
            node.wrong(wanted, self.problems);
            return None;
        }
        let mut table = node.table("repeat", self.problems)?;
        let min = table
            .get("min")
            .and_then(|n| n.integer(1, REPEAT_MAX, self.problems))
            .unwrap_or(1) as u32;
        let max = table
            .require("max", self.problems)
            .and_then(|n| n.integer(u64::from(min), REPEAT_MAX, self.problems));
        let until = table
            .require("until", self.problems)
            .and_then(|n| n.string(self.problems))
            .and_then(|text| self.problems.note(self.engine.expr(&text.value, text.span)));
        table.finish(self.problems);
        Some(Repeat {
            min,
            max: max? as u32,
            until: Some(until?),
        })
    }

    pub(super) fn required_parser(&mut self, table: &mut Table) -> Option<ParserDecl> {
        let parser = table.require("parser", self.problems)?;
        self.parser(&parser)
    }

    /// `"fio"`, or a table with `kind` and the parser's options.
    pub(super) fn parser(&mut self, node: &TomlNode) -> Option<ParserDecl> {
        if node.value.is_str() {
            let kind = node.string(self.problems)?;
            return Some(ParserDecl {
                kind,
                options: Vec::new(),
            });
        }
        if !node.value.is_table() {
            let wanted = "the name of a parser, or a table of `kind` and its options";
            node.wrong(wanted, self.problems);
            return None;
        }
        let mut table = node.table("parser", self.problems)?;
        let kind = table
            .require("kind", self.problems)
            .and_then(|n| n.string(self.problems));
        let mut options = Vec::new();
        for (name, node) in table.rest() {
            let text = node.string(self.problems);
            options
                .extend(text.map(|text| (At::new(name.value.to_owned(), name.span), text.value)));
        }
        Some(ParserDecl {
            kind: kind?,
            options,
        })
    }

    pub(super) fn command_list(&mut self, table: &mut Table, key: &'static str) -> Vec<Argv> {
        table
            .get(key)
            .map(|n| self.commands(&n))
            .unwrap_or_default()
    }

    /// A list of commands, each a string or a list of words.
    pub(super) fn commands(&mut self, node: &TomlNode) -> Vec<Argv> {
        let nodes = node.array("commands", self.problems).unwrap_or_default();
        self.limit(&nodes, LIST_MAX, &node.what);
        nodes
            .iter()
            .filter_map(|command| self.argv(command))
            .collect()
    }

    /// One command: a string, split by POSIX rules, or a list of words.
    pub(super) fn argv(&mut self, node: &TomlNode) -> Option<Argv> {
        let words: Vec<At<String>> = match node.value.as_str() {
            Some(text) => match split_words(text) {
                Some(words) => placed(words, text, node.span),
                None => {
                    self.problems.push(
                        Diagnostic::error("this command has a quote that is not closed")
                            .at(node.span, "here")
                            .help("close it, or write the command as a list of words: [\"program\", \"argument\"]"),
                    );
                    return None;
                }
            },
            None if node.value.is_array() => node.strings(self.problems),
            None => {
                node.wrong("a command: a string or an array of words", self.problems);
                return None;
            }
        };
        if words.is_empty() {
            node.wrong("a command of at least one word", self.problems);
            return None;
        }
        let words: Vec<_> = words
            .iter()
            .map(|word| {
                self.problems
                    .note(self.engine.template(&word.value, word.span))
            })
            .collect();
        Some(Argv {
            words: words.into_iter().collect::<Option<_>>()?,
            span: node.span,
        })
    }
}

/// The words of a command line, each with its place where the file writes it as it is.
fn placed(words: Vec<String>, line: &str, span: Span) -> Vec<At<String>> {
    // With escapes in it, offsets of the text are not offsets of the file.
    let is_verbatim = (span.end - span.start) as usize == line.len() + 2;
    let mut from = 0;
    let place = |word: &str| {
        let at = from + line.get(from..)?.find(word).filter(|_| is_verbatim)?;
        from = at + word.len();
        Some(span.slice(at + 1..from + 1))
    };
    let places: Vec<Option<Span>> = words.iter().map(String::as_str).map(place).collect();
    let words = words.into_iter().zip(places);
    words
        .map(|(word, place)| At::new(word, place.unwrap_or(span)))
        .collect()
}
