//! Static pages of matrices over time: overview, matrix, cell, commit, change, and a feed. Any web server can serve the folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::base::key::Key;
use crate::base::units::{count, show_ratio, show_time, show_value};
use crate::judge::history::ChangeStanding;
use crate::report::headline::headline;
use crate::report::html::changes::{cause_words, version_words};
use crate::report::html::escape::escaped;
use crate::report::html::findings::course;
use crate::report::html::{PageInput, document, page};
use crate::verdicts::parts::CommitRow;
use crate::verdicts::report::{Report, VerdictRow};
use crate::verdicts::series::{Cause, Course};

/// Cells and commits that get a page of their own.
pub const PAGES_MAX: usize = 20_000;
/// Courses of a change that its page draws.
const COURSES_MAX: usize = 20;
/// Changes of all matrices that the feed has, the latest.
const ENTRIES_MAX: usize = 100;
/// The file of a matrix's folder that the overview is made of.
pub const SUMMARY: &str = "summary.json";

/// A file of a site: its path in the site's folder, and its text.
#[derive(Debug)]
pub struct SiteFile {
    pub path: String,
    pub text: String,
}

/// What the overview says of a matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteSummary {
    pub matrix: String,
    pub preset: String,
    pub folder: String,
    pub headline: String,
    /// Regressions, suspected changes, improvements.
    pub counts: [usize; 3],
    pub failed: usize,
    /// When the latest session began: ISO 8601, UTC.
    pub session: Option<String>,
    pub changes: Vec<SiteChange>,
}

/// A change, as the feed has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteChange {
    /// The path of its page in the site's folder.
    pub path: String,
    pub title: String,
    /// ISO 8601, UTC.
    pub at: String,
}

/// A name as one of a file: letters, digits and `-_` of it, and a hash where that is not all.
fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.len() <= 60 && !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let plain: String = name.chars().filter(|c| is_plain(*c)).take(24).collect();
    let hash = Key::of(name.as_bytes()).to_string();
    format!("{plain}-{}", &hash[..16])
}

/// All files of one matrix under one preset; the last one is its summary.
pub fn matrix_files(report: &Report, command: &str) -> Vec<SiteFile> {
    let folder = match report.preset.is_empty() {
        true => file_name(&report.matrix),
        // No name of a file has a dot: so no two of them are the same.
        false => format!(
            "{}.{}",
            file_name(&report.matrix),
            file_name(&report.preset)
        ),
    };
    let mut files = Vec::new();
    let mut add = |path: &str, text: String| {
        files.push(SiteFile {
            path: format!("{folder}/{path}"),
            text,
        });
    };
    let navigation = "<nav><a href=\"../index.html\">All matrices</a> · <a href=\"contents.html\">Changes, commits and cells</a></nav>";
    let input = PageInput {
        report,
        command,
        navigation,
    };
    add("index.html", page(&input));
    let mut contents = Contents::default();
    for cause in &report.changes {
        let name = change_name(cause);
        contents
            .changes
            .push((format!("change-{name}.html"), title(cause)));
        add(&format!("change-{name}.html"), change(report, cause));
    }
    for commit in report.commits.iter().rev().take(PAGES_MAX) {
        let path = format!("commit-{}.html", file_name(&commit.hash));
        let words = format!("{} {}", commit.short(), commit.subject);
        contents.commits.push((path.clone(), words));
        add(&path, commit_page(report, commit));
    }
    let mut cells: BTreeMap<&str, Vec<&Course>> = BTreeMap::new();
    for series in &report.history {
        cells.entry(&series.cell.0).or_default().push(series);
    }
    for (cell, list) in cells.into_iter().take(PAGES_MAX) {
        let path = format!("cell-{}.html", file_name(cell));
        contents.cells.push((path.clone(), cell.to_owned()));
        add(&path, cell_page(report, cell, &list));
    }
    add("contents.html", contents.page(report));
    let summary = SiteSummary {
        matrix: report.matrix.clone(),
        preset: report.preset.clone(),
        headline: headline(report).into_iter().next().unwrap_or_default(),
        counts: [
            report.counts.regression,
            report.counts.suspected,
            report.counts.improvement,
        ],
        failed: report.failed.len(),
        session: report.session.as_ref().map(|session| session.began.clone()),
        changes: report
            .changes
            .iter()
            .filter(|cause| !is_gone(cause))
            .map(|cause| SiteChange {
                path: format!("{folder}/change-{}.html", change_name(cause)),
                title: format!("{}: {}", report.matrix, title(cause)),
                at: cause.at.clone(),
            })
            .collect(),
        folder: folder.clone(),
    };
    let text = serde_json::to_string_pretty(&summary).unwrap_or_default();
    add(SUMMARY, text);
    files
}

/// The overview and the feed of all matrices of a site.
pub fn overview_files(summaries: &[SiteSummary]) -> Vec<SiteFile> {
    let mut body = String::from(
        "<header><h1>Matrices</h1></header><main><p><a href=\"feed.atom\">Feed of changes</a></p><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Matrices\"><table><thead><tr>",
    );
    for name in [
        "matrix",
        "what it says",
        "worse",
        "suspected",
        "better",
        "failed",
        "session",
    ] {
        let _ = write!(body, "<th scope=\"col\">{name}</th>");
    }
    body.push_str("</tr></thead><tbody>");
    for summary in summaries {
        let preset = match summary.preset.is_empty() {
            true => String::new(),
            false => format!(" <small>{}</small>", escaped(&summary.preset)),
        };
        let _ = write!(
            body,
            "<tr><th scope=\"row\"><a href=\"{}/index.html\">{}</a>{preset}</th><td>{}</td>",
            escaped(&summary.folder),
            escaped(&summary.matrix),
            escaped(&summary.headline)
        );
        for (n, class) in summary.counts.iter().zip(["worse", "suspected", "better"]) {
            let class = if *n > 0 { class } else { "plain" };
            let _ = write!(body, "<td class=\"num {class}\">{n}</td>");
        }
        let session = summary
            .session
            .as_deref()
            .map(show_time)
            .unwrap_or_default();
        let _ = write!(
            body,
            "<td class=\"num\">{}</td><td>{}</td></tr>",
            summary.failed,
            escaped(&session)
        );
    }
    body.push_str("</tbody></table></div></main>");
    vec![
        SiteFile {
            path: "index.html".to_owned(),
            text: document("Matrices", &body),
        },
        SiteFile {
            path: "feed.atom".to_owned(),
            text: feed(summaries),
        },
    ]
}

/// An Atom feed (RFC 4287): an entry a change, the latest first.
fn feed(summaries: &[SiteSummary]) -> String {
    let mut changes: Vec<&SiteChange> = summaries.iter().flat_map(|it| &it.changes).collect();
    changes.sort_by(|a, b| b.at.cmp(&a.at).then(a.path.cmp(&b.path)));
    let sessions = summaries.iter().filter_map(|it| it.session.as_deref());
    let updated = sessions
        .chain(changes.first().map(|change| &*change.at))
        .max();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n\
         <title>Changes of matrices</title>\n<id>urn:matrix:changes</id>\n<author><name>matrix</name></author>\n\
         <link rel=\"self\" href=\"feed.atom\"/>\n<updated>{}</updated>\n",
        escaped(updated.unwrap_or("1970-01-01T00:00:00Z"))
    );
    for change in changes.into_iter().take(ENTRIES_MAX) {
        let _ = writeln!(
            out,
            "<entry><title>{}</title><id>urn:matrix:{}</id><link href=\"{1}\"/><updated>{}</updated><summary>{0}</summary></entry>",
            escaped(&change.title),
            escaped(&change.path),
            escaped(&change.at)
        );
    }
    out.push_str("</feed>\n");
    out
}

fn is_gone(cause: &Cause) -> bool {
    let mut cells = cause.cells.iter();
    cells.all(|change| change.standing == Some(ChangeStanding::Gone))
}

/// By its number where it has one, which stays; else by its place.
fn change_name(cause: &Cause) -> String {
    match cause.id {
        Some(id) => id.to_string(),
        None => file_name(&format!(
            "{}..{} {}",
            cause.from,
            cause.to,
            cause.machines.join(",")
        )),
    }
}

fn title(cause: &Cause) -> String {
    let effects = cause.effects.iter().map(|effect| {
        let ratio = effect.ratio.map_or("changed".to_owned(), show_ratio);
        format!(
            "{} {ratio} in {}",
            effect.metric,
            count(effect.cells, "cell")
        )
    });
    let effects: Vec<String> = effects.collect();
    format!("{} since {}", effects.join(", "), cause.most_likely)
}

const BACK: &str = "<nav><a href=\"../index.html\">All matrices</a> · <a href=\"index.html\">The latest result</a> · <a href=\"contents.html\">Changes, commits and cells</a></nav>";

fn change(report: &Report, cause: &Cause) -> String {
    let mut body = format!(
        "{BACK}<header><p class=\"name\">{}</p><h1>{}</h1></header><main>{}",
        escaped(&report.matrix),
        escaped(&title(cause)),
        cause_words(report, cause)
    );
    if let Some(commit) = cause.commit.as_ref().and_then(|hash| report.commit(hash)) {
        let _ = write!(
            body,
            "<p><a href=\"commit-{}.html\">The commit</a></p>",
            file_name(&commit.hash)
        );
    }
    for moved in cause.cells.iter().take(COURSES_MAX) {
        let mut history = report.history.iter();
        let found = history.find(|series| {
            series.cell == moved.cell
                && series.metric == moved.metric
                && series.machine == moved.machine
        });
        if let Some(series) = found {
            let _ = write!(
                body,
                "<h2>{} <small><a href=\"cell-{}.html\">{}</a></small></h2>",
                escaped(&series.metric),
                file_name(&series.cell),
                escaped(&series.cell)
            );
            course(series, &mut body);
        }
    }
    if cause.cells.len() > COURSES_MAX {
        let left = cause.cells.len() - COURSES_MAX;
        let _ = write!(body, "<p>{} not drawn.</p>", count(left, "more series"));
    }
    body.push_str("</main>");
    document(&title(cause), &body)
}

fn commit_page(report: &Report, commit: &CommitRow) -> String {
    let mut body = format!(
        "{BACK}<header><p class=\"name\">{}</p><h1>{} {}</h1></header><main><p>{} {}, {}; measured as {}.</p>",
        escaped(&report.matrix),
        escaped(commit.short()),
        escaped(&commit.subject),
        escaped(&commit.author),
        escaped(&commit.author_email),
        escaped(&show_time(&commit.date)),
        escaped(&commit.versions.join(", "))
    );
    if !commit.message.is_empty() {
        let _ = write!(
            body,
            "<pre tabindex=\"0\">{}</pre>",
            escaped(&commit.message)
        );
    }
    let of_commit = |cause: &&Cause| {
        cause
            .commits
            .iter()
            .flatten()
            .any(|hash| *hash == commit.hash)
    };
    let causes: Vec<&Cause> = report.changes.iter().filter(of_commit).collect();
    if !causes.is_empty() {
        body.push_str("<h2>Changes that it may have made</h2><ul>");
        for cause in causes {
            let _ = write!(
                body,
                "<li><a href=\"change-{}.html\">{}</a></li>",
                change_name(cause),
                escaped(&title(cause))
            );
        }
        body.push_str("</ul>");
    }
    body.push_str("</main>");
    document(&format!("{} {}", commit.short(), commit.subject), &body)
}

fn cell_page(report: &Report, cell: &str, list: &[&Course]) -> String {
    let mut body = format!(
        "{BACK}<header><p class=\"name\">{}</p><h1>{}</h1></header><main>",
        escaped(&report.matrix),
        escaped(cell)
    );
    for series in list {
        let _ = write!(
            body,
            "<h2>{} <small>{} is better</small></h2>",
            escaped(&series.metric),
            series.better.name()
        );
        course(series, &mut body);
        for change in series.changes.iter().filter(|it| it.probability.is_some()) {
            let _ = write!(
                body,
                "<p>{} since {}</p>",
                escaped(&change.ratio.map_or("changed".to_owned(), show_ratio)),
                version_words(report, &change.most_likely, change.commit.as_deref())
            );
        }
        let value =
            |value: Option<f64>| value.map_or("–".to_owned(), |it| show_value(it, &series.unit));
        let is_of = |row: &&VerdictRow| {
            let mut axes = row.cell.axes();
            row.metric == series.metric
                && row.axis == "version"
                && axes.all(|axis| axis.0 == "machine" || series.cell.axes().any(|of| of == axis))
        };
        for row in report.verdicts.iter().filter(is_of) {
            let _ = write!(
                body,
                "<p>{}: {} {} → {} {}</p>",
                escaped(&row.words()),
                escaped(&row.baseline),
                escaped(&value(row.baseline_median)),
                escaped(&row.candidate),
                escaped(&value(row.candidate_median))
            );
        }
    }
    body.push_str("</main>");
    document(cell, &body)
}

/// What there are pages of: path and words of each.
#[derive(Default)]
struct Contents {
    changes: Vec<(String, String)>,
    commits: Vec<(String, String)>,
    cells: Vec<(String, String)>,
}

impl Contents {
    fn page(&self, report: &Report) -> String {
        let mut body = format!(
            "{BACK}<header><h1>{}</h1></header><main>",
            escaped(&report.matrix)
        );
        for (title, list) in [
            ("Changes", &self.changes),
            ("Commits", &self.commits),
            ("Cells", &self.cells),
        ] {
            if list.is_empty() {
                continue;
            }
            let _ = write!(body, "<h2>{title}</h2><ul>");
            for (path, words) in list {
                let _ = write!(body, "<li><a href=\"{path}\">{}</a></li>", escaped(words));
            }
            body.push_str("</ul>");
            if list.len() == PAGES_MAX {
                let _ = write!(body, "<p>No more than {PAGES_MAX} have a page.</p>");
            }
        }
        body.push_str("</main>");
        document(&report.matrix, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_leave_no_folder() {
        let check = |name: &str, expected: &str| assert_eq!(file_name(name), expected);
        check("qemu-block", "qemu-block");
        let hostile = file_name("../../etc/passwd");
        assert!(hostile.starts_with("etcpasswd-") && !hostile.contains(['/', '.']));
        assert_ne!(file_name("a=1"), file_name("a,1"));
        assert!(file_name("").starts_with('-'));
    }
}
