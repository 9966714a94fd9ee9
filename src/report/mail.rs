//! Mails about what nights have found: one thread a cause, with what a reader needs to believe it and to answer.

use std::fmt::Write as _;

use lettre::Message;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};

use crate::base::key::Key;
use crate::base::printable::printable;
use crate::base::units::{count, show_ratio, show_value};
use crate::config::night::{CommitRole, MailDecl};
use crate::verdicts::nights::{
    CauseNews, EndKind, MailThread, NightCause, NightEffect, SuspectCommit,
};

/// Cells that a mail lists.
pub const MAIL_EFFECTS_MAX: usize = 50;
/// Commits that a mail lists.
const COMMITS_MAX: usize = 20;
/// Lines of a commit's message that a mail quotes.
const MESSAGE_LINES_MAX: usize = 60;
/// Characters of a line of others' text, and of a subject.
const LINE_CHARS_MAX: usize = 200;
/// Recipients of one mail.
pub const RECIPIENTS_MAX: usize = 50;

const TRAILERS: [&str; 3] = ["Reviewed-by", "Acked-by", "Reported-by"];

/// What a mail is about.
#[derive(Clone, Copy, Debug)]
pub struct MailSource<'a> {
    pub matrix: &'a str,
    /// The matrix file, as commands name it.
    pub file: &'a str,
    /// Empty where there is none.
    pub preset: &'a str,
    pub cause: &'a NightCause,
    /// The commits of the cause as far as they are known.
    pub commits: &'a [SuspectCommit],
}

/// A mail that can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// To and Cc.
    pub recipients: Vec<String>,
    /// As RFC 5322 wants it.
    pub bytes: Vec<u8>,
    /// The thread with this mail.
    pub thread: MailThread,
}

/// Tells other programs that nobody wrote this, so that none answers (RFC 3834).
#[derive(Clone)]
struct AutoSubmitted;

impl Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(AutoSubmitted)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

/// The next mail about a cause: the first of its thread, or an answer in it. None where nobody may be mailed. The error
/// says what of it cannot be put into a mail.
pub fn mail(policy: &MailDecl, source: &MailSource) -> Result<Option<Mail>, String> {
    let cause = source.cause;
    let (to, cc) = match &cause.thread {
        Some(thread) => (thread.to.clone(), thread.cc.clone()),
        None => recipients(policy, source),
    };
    let allowed = |list: Vec<String>| -> Vec<String> {
        let mut list = list;
        list.retain(|address| policy.allows(address));
        list
    };
    let (to, cc) = (allowed(to), allowed(cc));
    if to.is_empty() && cc.is_empty() {
        return Ok(None);
    }
    let before = cause.thread.as_ref();
    let first_subject = before.map(|thread| thread.subject.clone());
    let first_subject = first_subject.unwrap_or_else(|| subject(source));
    let ids = before.map_or(Vec::new(), |thread| thread.ids.clone());
    let id = message_id(policy, source, ids.len());
    let shown = match ids.is_empty() {
        true => first_subject.clone(),
        false => format!("Re: {first_subject}"),
    };
    let mut builder = Message::builder()
        .from(mailbox(&policy.from)?)
        .subject(shown)
        .message_id(Some(id.clone()))
        .date_now()
        .header(AutoSubmitted)
        .header(ContentType::TEXT_PLAIN);
    for address in &to {
        builder = builder.to(mailbox(address)?);
    }
    for address in &cc {
        builder = builder.cc(mailbox(address)?);
    }
    if let Some(last) = ids.last() {
        builder = builder.in_reply_to(last.clone()).references(ids.join(" "));
    }
    let message = builder
        .body(body(source))
        .map_err(|error| error.to_string())?;
    Ok(Some(Mail {
        recipients: to.iter().chain(&cc).cloned().collect(),
        bytes: message.formatted(),
        thread: MailThread {
            subject: first_subject,
            ids: [ids, vec![id]].concat(),
            to,
            cc,
        },
    }))
}

/// What a tracker is told: title, and body as Markdown.
pub fn issue(source: &MailSource) -> CauseNews {
    let cause = source.cause;
    let text = body(source);
    // Longer than any fence in what others wrote.
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    CauseNews {
        id: cause.id,
        state: match cause.closed.as_ref().map(|end| end.how) {
            None => "open",
            Some(EndKind::Recovered) => "recovered",
            Some(EndKind::Accepted) => "accepted",
        },
        issue: cause.issue.clone(),
        title: subject(source),
        body: format!("{fence}text\n{text}{fence}\n"),
    }
}

fn mailbox(address: &str) -> Result<Mailbox, String> {
    let parsed = address.parse();
    let parsed = parsed.map_err(|error| format!("`{}` is no mail address: {error}", line(address)));
    Ok(Mailbox::new(None, parsed?))
}

/// Unique, and the same when it is made again.
fn message_id(policy: &MailDecl, source: &MailSource, number: usize) -> String {
    let cause = source.cause;
    let what = [
        source.file,
        source.matrix,
        &cause.before,
        &cause.since,
        &cause.id.to_string(),
        &number.to_string(),
    ];
    let host = policy.from.rsplit_once('@').map_or("localhost", |it| it.1);
    let key = Key::of(what.join("\0").as_bytes());
    format!("<matrix.{key}@{host}>")
}

/// Who is mailed first. People of a commit only where it is the only one that it can be.
fn recipients(policy: &MailDecl, source: &MailSource) -> (Vec<String>, Vec<String>) {
    let mut cc: Vec<String> = Vec::new();
    if let (true, [commit]) = (source.cause.commits.len() == 1, source.commits) {
        for role in &policy.cc {
            match role {
                CommitRole::Author => cc.push(commit.author_email.clone()),
                CommitRole::Committer => cc.push(commit.committer_email.clone()),
                CommitRole::Trailers => {
                    cc.extend(commit.trailers(&TRAILERS).map(str::to_owned));
                }
            }
        }
    }
    let mut known: Vec<String> = policy.to.iter().map(|it| it.to_ascii_lowercase()).collect();
    cc.retain(|address| {
        let address = address.to_ascii_lowercase();
        let is_new = !known.contains(&address);
        // What a commit says may be anything.
        let is_plain = mailbox(&address).is_ok() && !address.starts_with('-');
        known.push(address);
        is_new && is_plain
    });
    cc.truncate(RECIPIENTS_MAX);
    (policy.to.clone(), cc)
}

/// Others' text in one line.
fn line(text: &str) -> String {
    let one: String = text
        .chars()
        .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
        .take(LINE_CHARS_MAX)
        .collect();
    printable(&one).into_owned()
}

fn short(hash: &str) -> &str {
    &hash[..hash.floor_char_boundary(12)]
}

fn change(effect: &NightEffect) -> String {
    effect.ratio.map_or("changed".to_owned(), show_ratio)
}

/// What, where, how much.
fn subject(source: &MailSource) -> String {
    let cause = source.cause;
    let parts = |wanted: bool, word: &str| {
        let mut of_kind = cause.effects.iter().filter(|it| it.is_regression == wanted);
        let first = of_kind.next()?;
        let more = match of_kind.count() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!(
            "{word}: {} {} of {}{more}",
            first.metric,
            change(first),
            first.cell
        ))
    };
    let what = [parts(true, "regression"), parts(false, "improvement")];
    let what: Vec<String> = what.into_iter().flatten().collect();
    let place = match (&cause.commits[..], source.commits) {
        ([commit], [text]) => format!("at {} \"{}\"", short(commit), text.subject()),
        ([commit], _) => format!("at {}", short(commit)),
        (commits, _) => format!("at one of {}", count(commits.len(), "commit")),
    };
    let text = format!("[{}] {} {place}", source.matrix, what.join(", "));
    line(&text)
}

fn body(source: &MailSource) -> String {
    let cause = source.cause;
    let mut text = String::new();
    if let Some(end) = &cause.closed {
        let at = short(&end.commit);
        let what = match end.how {
            EndKind::Recovered => format!("Gone: at {at} all cells are as they were before."),
            EndKind::Accepted => "Accepted: what follows is the new level.".to_owned(),
        };
        let _ = writeln!(text, "{what}\n\nIt was found on {}.\n", cause.since);
    }
    let _ = writeln!(
        text,
        "The matrix `{}`{} changed after {}:\n",
        line(source.matrix),
        match source.preset {
            "" => String::new(),
            preset => format!(" (preset `{}`)", line(preset)),
        },
        short(&cause.before)
    );
    match (&cause.commits[..], source.commits) {
        ([_], [commit]) => quote(&mut text, commit),
        (commits, known) => list(&mut text, commits, known),
    }
    let mut left = MAIL_EFFECTS_MAX;
    for (title, wanted) in [("Regressions", true), ("Improvements", false)] {
        let effects: Vec<&NightEffect> = cause
            .effects
            .iter()
            .filter(|it| it.is_regression == wanted)
            .collect();
        if !effects.is_empty() {
            let _ = writeln!(text, "{title}:");
            table(&mut text, &effects[..effects.len().min(left)]);
            if effects.len() > left {
                let _ = writeln!(text, "  and {} more", effects.len() - left);
            }
            left = left.saturating_sub(effects.len());
            text.push('\n');
        }
    }
    text.push_str(
        "Each change was found, and found again in rounds of its own, against the commit before it; in brackets is\n\
         the 95 % interval.\n\n",
    );
    commands(&mut text, source);
    text
}

fn quote(text: &mut String, commit: &SuspectCommit) {
    let _ = writeln!(text, "  commit {}", commit.hash);
    let _ = writeln!(
        text,
        "  Author: {} <{}>",
        line(&commit.author),
        line(&commit.author_email)
    );
    let _ = writeln!(text, "  Date:   {}\n", commit.authored);
    for quoted in commit.message.lines().take(MESSAGE_LINES_MAX) {
        let _ = writeln!(text, "      {}", line(quoted));
    }
    text.push('\n');
}

fn list(text: &mut String, commits: &[String], known: &[SuspectCommit]) {
    let _ = writeln!(
        text,
        "  at one of these {}, which the measurements do not tell apart:\n",
        count(commits.len(), "commit")
    );
    for hash in commits.iter().take(COMMITS_MAX) {
        let known = known.iter().find(|commit| commit.hash == *hash);
        let words = known.map_or(String::new(), |commit| {
            format!(" {} ({})", line(commit.subject()), line(&commit.author))
        });
        let _ = writeln!(text, "  {}{words}", short(hash));
    }
    if commits.len() > COMMITS_MAX {
        let _ = writeln!(text, "  and {} more", commits.len() - COMMITS_MAX);
    }
    text.push('\n');
}

fn table(text: &mut String, effects: &[&NightEffect]) {
    let value = |value: Option<f64>, unit: &str| {
        value.map_or("-".to_owned(), |value| show_value(value, unit))
    };
    let rows: Vec<[String; 5]> = effects
        .iter()
        .map(|it| {
            [
                line(&it.cell),
                line(&it.metric),
                value(it.before, &it.unit),
                value(it.after, &it.unit),
                match it.ci95 {
                    Some([low, high]) => {
                        format!("{} [{}, {}]", change(it), show_ratio(low), show_ratio(high))
                    }
                    None => change(it),
                },
            ]
        })
        .collect();
    let width = |column: usize| {
        let all = rows.iter().map(|row| row[column].chars().count());
        all.max().unwrap_or(0)
    };
    let [cell, metric, before, after] = [width(0), width(1), width(2), width(3)];
    for row in &rows {
        let _ = writeln!(
            text,
            "  {:cell$}  {:metric$}  {:>before$} -> {:>after$}  {}",
            row[0], row[1], row[2], row[3], row[4]
        );
    }
}

fn commands(text: &mut String, source: &MailSource) {
    let cause = source.cause;
    let last = cause.commits.last().map_or("", String::as_str);
    let file = shlex::try_quote(source.file).unwrap_or_default();
    let preset = match source.preset {
        "" => String::new(),
        preset => format!(" --preset {}", shlex::try_quote(preset).unwrap_or_default()),
    };
    let _ = writeln!(
        text,
        "To measure it again:\n  matrix run {file}{preset} --version {} --against {} --fresh\n",
        short(last),
        short(&cause.before)
    );
    if cause.closed.is_none() {
        let _ = writeln!(
            text,
            "If the change is wanted, say so, and this thread is closed:\n  \
             matrix changes {file}{preset}\n  matrix accept {file}{preset} --change ID --reason \"…\"\n"
        );
        text.push_str(
            "Answers reach people only; the program does not read them. The next message about this comes when it is gone,\n\
             or accepted.\n",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::night::MailTransport;
    use crate::verdicts::nights::CauseEnd;

    fn policy() -> MailDecl {
        MailDecl {
            from: "matrix@lab.example.org".to_owned(),
            to: vec!["perf@example.org".to_owned()],
            cc: vec![
                CommitRole::Author,
                CommitRole::Committer,
                CommitRole::Trailers,
            ],
            allow: vec!["*@example.org".to_owned()],
            transport: MailTransport::Folder("mails".to_owned()),
        }
    }

    fn effect(cell: &str, is_regression: bool, ratio: f64) -> NightEffect {
        NightEffect {
            cell: cell.to_owned(),
            metric: "iops".to_owned(),
            unit: "1/s".to_owned(),
            is_regression,
            ratio: Some(ratio),
            ci95: Some([ratio - 0.01, ratio + 0.01]),
            before: Some(1000.0),
            after: Some(1000.0 * ratio),
        }
    }

    fn cause() -> NightCause {
        NightCause {
            id: 1,
            before: "b".repeat(40),
            commits: vec!["c".repeat(40)],
            effects: vec![effect("bs=4k", true, 0.9), effect("bs=1m", false, 1.2)],
            since: "2026-03-02T04:00:00Z".to_owned(),
            closed: None,
            has_news: true,
            is_untracked: false,
            issue: None,
            thread: None,
        }
    }

    fn commit(message: &str) -> SuspectCommit {
        SuspectCommit {
            hash: "c".repeat(40),
            author: "A \u{202e}".to_owned(),
            author_email: "a@example.org".to_owned(),
            committer_email: "c@elsewhere.example".to_owned(),
            authored: "2026-03-01T00:00:00Z".to_owned(),
            message: message.to_owned(),
        }
    }

    fn made(cause: &NightCause, message: &str) -> Option<Mail> {
        let source = MailSource {
            matrix: "m",
            file: "m.toml",
            preset: "",
            cause,
            commits: &[commit(message)],
        };
        mail(&policy(), &source).unwrap()
    }

    #[test]
    fn a_mail_goes_to_allowed_people_of_the_commit_only() {
        let check = |message: &str, cc: &[&str]| {
            let mail = made(&cause(), message).unwrap();
            assert_eq!(mail.thread.to, ["perf@example.org"]);
            assert_eq!(mail.thread.cc, cc);
        };
        check("Subject", &["a@example.org"]);
        let signed = "S\n\nReviewed-by: R <r@example.org>\nacked-by: <A@example.org>\nTested-by: <t@example.org>\n\
                      Reported-by: P <p@elsewhere.example>\nReviewed-by: x <-oQ/tmp@example.org>\n\
                      Acked-by: <x@example.org\r\nBcc: y@example.org>";
        check(signed, &["a@example.org", "r@example.org"]);
        let mut many = cause();
        many.commits.insert(0, "d".repeat(40));
        assert_eq!(made(&many, signed).unwrap().thread.cc, [""; 0]);
    }

    #[test]
    fn a_cause_has_one_thread() {
        let mut cause = cause();
        let first = made(&cause, "Do less").unwrap();
        let text = String::from_utf8(first.bytes).unwrap();
        assert!(
            text.contains("Subject: [m] regression: iops -10.00% of bs=4k, improvement:"),
            "{text}"
        );
        cause.thread = Some(first.thread.clone());
        cause.closed = Some(CauseEnd {
            how: EndKind::Recovered,
            commit: "e".repeat(40),
            at: "2026-03-04T04:00:00Z".to_owned(),
        });
        let second = made(&cause, "Do less").unwrap();
        assert_eq!(second.thread.ids[0], first.thread.ids[0]);
        assert_eq!(second.thread.subject, first.thread.subject);
        let text = String::from_utf8(second.bytes).unwrap();
        assert!(text.contains("Subject: Re: [m] regression:"), "{text}");
        let reply = format!("In-Reply-To: {}", first.thread.ids[0]);
        assert!(text.contains(&reply), "{text}");
    }

    #[test]
    fn hostile_text_stays_text() {
        let message = "Evil\u{1b}[2J\r\nBcc: x@example.org\n\n\u{202e}<script>\n.\nFrom me";
        let mail = made(&cause(), message).unwrap();
        assert_eq!(mail.recipients, ["perf@example.org", "a@example.org"]);
        let text = String::from_utf8(mail.bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(
            !body.contains('\u{1b}') && !body.contains('\u{202e}'),
            "{body}"
        );
    }
}
