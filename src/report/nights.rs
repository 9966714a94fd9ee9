//! The state of a matrix's nights as text: the last ones, and the changes that stand open.

use std::fmt::Write as _;

use crate::base::units::{count, show_ratio};
use crate::verdicts::nights::{NightCause, Nights};

/// Nights that are shown.
const NIGHTS_SHOWN_MAX: usize = 5;
/// Open changes that are shown.
const CAUSES_SHOWN_MAX: usize = 50;

/// `nights`: None where there was no night yet.
pub fn nights_text(matrix: &str, nights: Option<&Nights>, is_running: bool) -> String {
    let mut text = format!("{matrix}\n");
    if is_running {
        text += "  running  a night runs now\n";
    }
    let Some(nights) = nights else {
        text += "  nights   none yet: `matrix nightly FILE` makes one, `--install` one each day\n";
        return text;
    };
    for (number, night) in nights
        .nights
        .iter()
        .rev()
        .take(NIGHTS_SHOWN_MAX)
        .enumerate()
    {
        let word = if number == 0 { "nights" } else { "" };
        let _ = writeln!(
            text,
            "  {word:8} {} exit {}: {}",
            night.began, night.exit, night.line
        );
    }
    let open: Vec<&NightCause> = nights.open().collect();
    for (number, cause) in open.iter().rev().take(CAUSES_SHOWN_MAX).enumerate() {
        let word = if number == 0 { "open" } else { "" };
        let _ = writeln!(text, "  {word:8} {}", open_line(cause));
    }
    match open.len() {
        0 => text += "  open     nothing\n",
        n if n > CAUSES_SHOWN_MAX => {
            let _ = writeln!(text, "           and {} more", n - CAUSES_SHOWN_MAX);
        }
        _ => {}
    }
    text
}

/// Where, since when, how much, who knows.
fn open_line(cause: &NightCause) -> String {
    let short = |hash: &String| hash[..hash.floor_char_boundary(12)].to_owned();
    let place = match &cause.commits[..] {
        [commit] => short(commit),
        commits => {
            let last = commits.last().map_or(String::new(), short);
            format!("one of {} up to {last}", count(commits.len(), "commit"))
        }
    };
    let what = cause.effects.first().map_or(String::new(), |first| {
        let ratio = first.ratio.map_or("changed".to_owned(), show_ratio);
        let more = match cause.effects.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        format!("{} {ratio} of {}{more}", first.metric, first.cell)
    });
    let told = match &cause.thread {
        Some(thread) => {
            let people: Vec<&str> = thread
                .to
                .iter()
                .chain(&thread.cc)
                .map(String::as_str)
                .collect();
            format!("told: {}", people.join(", "))
        }
        None => "nobody was told".to_owned(),
    };
    format!("{place}, since {}: {what} ({told})", cause.since)
}
