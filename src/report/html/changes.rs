//! What is new, still there or gone since the session before, and the commits that series moved at.

use std::fmt::Write as _;

use crate::base::units::{count, show_ratio, show_time};
use crate::judge::history::ChangeStanding;
use crate::judge::verdict::Verdict;
use crate::report::html::escape::escaped;
use crate::report::html::model::Tone;
use crate::report::html::section;
use crate::verdicts::parts::{CommitRow, FindingRow};
use crate::verdicts::report::Report;
use crate::verdicts::series::Cause;

/// Causes and findings of one kind that are shown.
const CAUSES_MAX: usize = 50;
const FINDINGS_MAX: usize = 12;
/// Versions of a credible set that are named.
const SET_MAX: usize = 8;

/// What the latest session found beside those before.
pub fn news(report: &Report, out: &mut String) {
    let Some(since) = &report.since_last else {
        return;
    };
    let groups = [
        ("New", &since.new),
        ("Still there", &since.still),
        ("Gone", &since.gone),
    ];
    if groups.iter().all(|(_, list)| list.is_empty()) {
        return;
    }
    let title = match since.session {
        Some(session) => format!("Since session {session}"),
        None => "Found by the first session".to_owned(),
    };
    section("news", &title, out);
    for (title, list) in groups.iter().filter(|(_, list)| !list.is_empty()) {
        let _ = write!(
            out,
            "<details{}><summary>{title}: {}</summary><ul>",
            if *title == "Still there" { "" } else { " open" },
            count(list.len(), "change")
        );
        for finding in list.iter().take(FINDINGS_MAX) {
            let _ = write!(out, "<li>{}</li>", finding_words(finding));
        }
        if list.len() > FINDINGS_MAX {
            let _ = write!(out, "<li>and {} more</li>", list.len() - FINDINGS_MAX);
        }
        out.push_str("</ul></details>");
    }
    out.push_str("</section>");
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Improvement => Tone::Better,
        _ => Tone::Worse,
    }
}

fn finding_words(finding: &FindingRow) -> String {
    let tone = tone(finding.verdict);
    format!(
        "<span class=\"{}\">{}</span> {} {}, <code>{}</code>, {}: {} → {} (found by session {})",
        tone.class(),
        tone.sign(),
        escaped(&finding.metric),
        finding.ratio.map_or(String::new(), show_ratio),
        escaped(&finding.cell),
        escaped(&finding.axis),
        escaped(&finding.baseline),
        escaped(&finding.candidate),
        finding.since
    )
}

/// The changes of the history: those that stand, those that somebody accepted, those that are gone.
pub fn causes(report: &Report, out: &mut String) {
    let causes = &report.changes;
    if causes.is_empty() {
        return;
    }
    section("changes", "Changes over versions", out);
    let is_gone = |cause: &Cause| {
        let mut cells = cause.cells.iter();
        cells.all(|change| change.standing == Some(ChangeStanding::Gone))
    };
    let of = |wanted: &dyn Fn(&Cause) -> bool| -> Vec<&Cause> {
        causes.iter().filter(|cause| wanted(cause)).collect()
    };
    let groups = [
        (
            "They stand",
            of(&|it| it.accepted.is_none() && !is_gone(it)),
        ),
        ("Accepted", of(&|it| it.accepted.is_some() && !is_gone(it))),
        ("Gone", of(&is_gone)),
    ];
    for (title, list) in groups.iter().filter(|(_, list)| !list.is_empty()) {
        let _ = write!(out, "<h3>{title}</h3><ul class=\"causes\">");
        for cause in list.iter().take(CAUSES_MAX) {
            out.push_str("<li>");
            out.push_str(&cause_words(report, cause));
            out.push_str("</li>");
        }
        out.push_str("</ul>");
        if list.len() > CAUSES_MAX {
            let _ = write!(out, "<p>{} more.</p>", list.len() - CAUSES_MAX);
        }
    }
    out.push_str("</section>");
}

/// A cause: where, by how much, since when, and what else changed there.
pub fn cause_words(report: &Report, cause: &Cause) -> String {
    let tone = tone(cause.verdict);
    let mut out = format!(
        "<p><span class=\"{}\">{}</span> ",
        tone.class(),
        tone.sign()
    );
    let number = cause.id.map_or(String::new(), |id| format!("#{id} "));
    let effects = cause.effects.iter().map(|effect| {
        let ratio = effect.ratio.map_or("changed".to_owned(), show_ratio);
        let cells = count(effect.cells, "cell");
        format!("{} {ratio} in {cells}", effect.metric)
    });
    let effects: Vec<String> = effects.collect();
    let _ = write!(
        out,
        "<b>{}{}</b> on {}",
        escaped(&number),
        escaped(&effects.join(", ")),
        escaped(&cause.machines.join(", "))
    );
    let likely = cause
        .probability
        .map_or(String::new(), |p| format!(" ({:.0}%)", p * 100.0));
    let _ = write!(
        out,
        "</p><p>Most likely since {}{likely}, after <code>{}</code> and at <code>{}</code> at the latest; measured {}.",
        version_words(report, &cause.most_likely, cause.commit.as_deref()),
        escaped(&cause.from),
        escaped(&cause.to),
        escaped(&show_time(&cause.at))
    );
    if cause.set.len() > 1 {
        let set = cause.set.iter().zip(&cause.commits).take(SET_MAX);
        let set: Vec<String> = set
            .map(|(version, commit)| version_words(report, version, commit.as_deref()))
            .collect();
        let more = match cause.set.len().saturating_sub(SET_MAX) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let _ = write!(out, " With 95% it is one of {}{more}.", set.join(", "));
    }
    out.push_str("</p>");
    for told in &cause.surroundings {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(told));
    }
    out
}

/// A version, and the commit that it is.
pub fn version_words(report: &Report, version: &str, commit: Option<&str>) -> String {
    let mut out = format!("<code>{}</code>", escaped(version));
    if let Some(commit) = commit.and_then(|hash| report.commit(hash)) {
        out.push_str(&commit_words(commit));
    }
    out
}

fn commit_words(commit: &CommitRow) -> String {
    if commit.subject.is_empty() {
        return String::new();
    }
    format!(
        " “{}” ({}, {})",
        escaped(&commit.subject),
        escaped(&commit.author),
        escaped(commit.date.get(..10).unwrap_or(&commit.date))
    )
}
