//! How a version is built: `[build]` with its variants, submodules.

use std::collections::BTreeMap;

use super::{BUILD_TIMEOUT, Decoder};
use crate::base::diag::{At, Diagnostic};
use crate::config::matrix::{Build, BuildVariant, LIST_MAX};
use crate::config::read::Table;

impl Decoder<'_> {
    pub(super) fn build(&mut self, top: &mut Table) -> Option<Build> {
        let mut table = self.table(top, "build", "[build]")?;
        let variants = self.build_variants(&mut table);
        let run = match variants.is_empty() {
            true => table.require("run", self.problems),
            false => table.get("run"),
        };
        let run = run.map(|n| self.commands(&n)).unwrap_or_default();
        let artifacts = self.strings(&mut table, "artifacts");
        let volatile = self.strings(&mut table, "volatile");
        let timeout = self.duration(&mut table, "timeout", BUILD_TIMEOUT);
        let clean = self.boolean(&mut table, "clean");
        let span = table.span;
        table.finish(self.problems);
        Some(Build {
            run,
            variants,
            artifacts,
            volatile,
            timeout,
            clean,
            span,
        })
    }

    fn build_variants(&mut self, build: &mut Table) -> Vec<BuildVariant> {
        let mut variants = Vec::new();
        for mut table in self.tables(build, "variant", "[[build.variant]]") {
            let span = table.span;
            let run = table.require("run", self.problems);
            let run = run.map(|n| self.commands(&n)).unwrap_or_default();
            let [since, until] =
                ["since", "until"].map(|key| table.get(key).and_then(|n| n.string(self.problems)));
            let when = table
                .get("when")
                .and_then(|n| n.string(self.problems))
                .and_then(|text| self.problems.note(self.engine.expr(&text.value, text.span)));
            if since.is_none() && until.is_none() && when.is_none() {
                self.problems.push(
                    Diagnostic::error("this variant is for every commit")
                        .at(span, "here")
                        .help("say which by `since`, `until` or `when`; what is for all others is `[build] run`"),
                );
            }
            table.finish(self.problems);
            variants.push(BuildVariant {
                since,
                until,
                when,
                run,
                span,
            });
        }
        variants
    }

    /// Path → repository.
    pub(super) fn submodules(&mut self, git: &mut Table) -> BTreeMap<String, At<String>> {
        let Some(table) = self.table(git, "submodules", "[subject.git.submodules]") else {
            return BTreeMap::new();
        };
        let all = table.all();
        self.limit(&all, LIST_MAX, "[subject.git.submodules]");
        let mut submodules = BTreeMap::new();
        for (path, node) in all {
            let is_plain = |part: &str| !matches!(part, "" | "." | ".." | ".git");
            if !path.value.split('/').all(is_plain) || path.value.contains(['*', '?', '[', '{']) {
                self.problems.push(
                    Diagnostic::error(format!("`{}` is no path of a submodule", path.value))
                        .at(path.span, "here")
                        .help("write it as the commit has it, such as `ui/keycodemapdb`"),
                );
                continue;
            }
            let repo = node.string(self.problems);
            submodules.extend(repo.map(|repo| (path.value.to_owned(), repo)));
        }
        submodules
    }
}
