//! The path pattern: which paths of a source tree `subject.paths` and `affects.paths` mean.

use std::fmt;

/// Bytes of one pattern.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Segments (parts between slashes) of one pattern; a [`MatchState`] has a bit for each.
pub const SEGMENTS_MAX: usize = 60;

/// A glob over the paths of a tree, relative to its root, with `/` between segments.
///
/// - `*` is any run of characters of one segment, the empty one and a leading dot included; it
///   does not cross `/`. `?` is one character. `[a-z_]` is one of a class, `[!a-z]` one outside it.
/// - `**` as a whole segment is any number of folders, none included (`**/meson.build`,
///   `block/**/*.c`); at the end it is everything below (`block/**`, but not a file `block`).
/// - `\` takes the next character as it is.
/// - A pattern with no wildcard names a file, or a folder with everything below it (`block`);
///   with a slash at its end only the folder (`block/` is `block/**`).
/// - A pattern with a wildcard names files (links and submodules too), never a whole folder:
///   `meson*` is `meson.build` but not `meson/x.py`.
/// - Case matters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// No wildcard: the pattern may name a folder.
    literal: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Segment {
    /// `**`: any number of folders.
    AnyDepth,
    /// One name. A literal name is a run of `Char`.
    Name(Vec<Token>),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Token {
    Char(char),
    AnyChar,
    AnyRun,
    Class {
        negated: bool,
        /// Inclusive; a single character is a range of one.
        ranges: Vec<(char, char)>,
    },
}

/// How far a pattern has been matched by the folders walked so far: a set of segment indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchState(u64);

impl MatchState {
    /// Nothing below the folder can match.
    pub fn is_dead(self) -> bool {
        self.0 == 0
    }
}

impl Pattern {
    /// Errors say what is wrong and how to write it, without the pattern itself.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("an empty pattern: `**` is everything".to_owned());
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
        }
        if text.starts_with('/') {
            return Err(
                "paths begin at the root of the tree: leave out the leading `/`".to_owned(),
            );
        }
        if text.starts_with('!') {
            return Err(
                "a pattern cannot exclude; for a name that begins so write `\\!`".to_owned(),
            );
        }
        let (body, is_folder) = match text.strip_suffix('/') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let mut segments = body
            .split('/')
            .map(parse_segment)
            .collect::<Result<Vec<_>, _>>()?;
        // "Everything below" needs at least one name below.
        if is_folder && segments.last() != Some(&Segment::AnyDepth) {
            segments.push(Segment::AnyDepth);
        }
        if segments.last() == Some(&Segment::AnyDepth) {
            segments.push(Segment::Name(vec![Token::AnyRun]));
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("more than {SEGMENTS_MAX} segments"));
        }
        let literal = segments.iter().all(|segment| match segment {
            Segment::AnyDepth => false,
            Segment::Name(tokens) => tokens.iter().all(|token| matches!(token, Token::Char(_))),
        });
        Ok(Pattern {
            text: text.to_owned(),
            segments,
            literal,
        })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the file at `path` (relative, `/` between segments) is meant.
    pub fn matches(&self, path: &str) -> bool {
        let mut state = self.start();
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            if self.covers_below(state) {
                return true;
            }
            state = self.enter(state, name);
            if names.peek().is_none() {
                return self.accepts(state);
            }
        }
        false
    }

    /// The state at the root of a tree.
    pub fn start(&self) -> MatchState {
        self.close(1)
    }

    /// The state after the entry `name` of a folder.
    pub fn enter(&self, state: MatchState, name: &str) -> MatchState {
        let mut next = 0u64;
        for (i, segment) in self.segments.iter().enumerate() {
            if state.0 & (1 << i) == 0 {
                continue;
            }
            match segment {
                Segment::AnyDepth => next |= 1 << i,
                Segment::Name(tokens) if name_matches(tokens, name) => next |= 1 << (i + 1),
                Segment::Name(_) => {}
            }
        }
        self.close(next)
    }

    /// Whether a file that was entered with this state is meant.
    pub fn accepts(&self, state: MatchState) -> bool {
        state.0 & (1 << self.segments.len()) != 0
    }

    /// Whether every file below a folder that was entered with this state is meant.
    pub fn covers_below(&self, state: MatchState) -> bool {
        if self.literal {
            return self.accepts(state);
        }
        // `**` followed by the closing `*`, which `parse` puts there or the user wrote.
        match self.segments.as_slice() {
            [rest @ .., Segment::AnyDepth, Segment::Name(last)] if last[..] == [Token::AnyRun] => {
                state.0 & (1 << rest.len()) != 0
            }
            _ => false,
        }
    }

    /// `**` may also stand for no folder at all.
    fn close(&self, mut bits: u64) -> MatchState {
        for (i, segment) in self.segments.iter().enumerate() {
            if bits & (1 << i) != 0 && *segment == Segment::AnyDepth {
                bits |= 1 << (i + 1);
            }
        }
        MatchState(bits)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

fn parse_segment(text: &str) -> Result<Segment, String> {
    match text {
        "" => return Err("two slashes in a row".to_owned()),
        "." | ".." => return Err(format!("`{text}` is not a name inside a tree")),
        "**" => return Ok(Segment::AnyDepth),
        _ => {}
    }
    let mut tokens = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let token = match c {
            '*' if tokens.last() == Some(&Token::AnyRun) => {
                return Err("`**` must stand alone between slashes, as in `block/**`".to_owned());
            }
            '*' => Token::AnyRun,
            '?' => Token::AnyChar,
            '[' => parse_class(&mut chars)?,
            '\\' => Token::Char(chars.next().ok_or("a `\\` with nothing after it")?),
            c => Token::Char(c),
        };
        tokens.push(token);
    }
    Ok(Segment::Name(tokens))
}

/// What follows a `[`, its `]` included. As in POSIX a `]` that comes first is a member.
fn parse_class(chars: &mut std::str::Chars) -> Result<Token, String> {
    const UNCLOSED: &str = "a `[` without its `]`; the character itself is `\\[`";
    let mut next = || chars.next().ok_or(UNCLOSED.to_owned());
    let mut c = next()?;
    let negated = c == '!' || c == '^';
    if negated {
        c = next()?;
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    // Some(low) after `low-`.
    let mut open: Option<char> = None;
    loop {
        if c == ']' && !ranges.is_empty() {
            if open.is_some() {
                ranges.push(('-', '-'));
            }
            return Ok(Token::Class { negated, ranges });
        }
        let is_dash = c == '-';
        if c == '\\' {
            c = next()?;
        }
        match (open.take(), ranges.last()) {
            (Some(low), _) if low > c => return Err(format!("`{low}-{c}` is the wrong way round")),
            (Some(low), _) => {
                ranges.pop();
                ranges.push((low, c));
            }
            (None, Some(&(low, high))) if is_dash && low == high => open = Some(low),
            (None, _) => ranges.push((c, c)),
        }
        c = next()?;
    }
}

/// Greedy with one step back to the last `*`: at most |tokens| times |name| steps.
fn name_matches(tokens: &[Token], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut t, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() || t < tokens.len() {
        if tokens.get(t) == Some(&Token::AnyRun) {
            retry = Some((t, n));
            t += 1;
            continue;
        }
        if let (Some(token), Some(&c)) = (tokens.get(t), name.get(n))
            && token_matches(token, c)
        {
            t += 1;
            n += 1;
            continue;
        }
        match retry {
            Some((star, from)) if from < name.len() => {
                retry = Some((star, from + 1));
                t = star + 1;
                n = from + 1;
            }
            _ => return false,
        }
    }
    true
}

fn token_matches(token: &Token, c: char) -> bool {
    match token {
        Token::Char(wanted) => *wanted == c,
        Token::AnyChar => true,
        Token::AnyRun => false,
        Token::Class { negated, ranges } => {
            ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_pattern_means() {
        let check = |pattern: &str, path: &str, expected: bool| {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(path), expected, "{pattern} on {path}");
        };
        check("block/**", "block/nbd.c", true);
        check("block/**", "block/export/fuse.c", true);
        check("block/**", "block", false);
        check("block/**", "blocks/nbd.c", false);
        check("block/*", "block/nbd.c", true);
        check("block/*", "block/export/fuse.c", false);
        check("meson*", "meson.build", true);
        check("meson*", "meson", true);
        check("meson*", "meson/x.py", false);
        check("meson*", "tests/meson.build", false);
        check("**/meson.build", "meson.build", true);
        check("**/meson.build", "a/b/meson.build", true);
        check("**/meson.build", "a/xmeson.build", false);
        check("block/**/*.c", "block/a.c", true);
        check("block/**/*.c", "block/x/y/a.c", true);
        check("block/**/*.c", "block/x/y/a.h", false);
        check("**/io/**", "io/a", true);
        check("**/io/**", "x/io/y/a", true);
        check("**/io/**", "x/io", false);
        check("**", "a/b", true);
        check("**/*", "a", true);
        check("qemu-nbd.c", "qemu-nbd.c", true);
        check("qemu-nbd.c", "tools/qemu-nbd.c", false);
        check("block", "block/nbd.c", true);
        check("block", "block", true);
        check("block", "blocks", false);
        check("include/block", "include/block/a/b.h", true);
        check("block/", "block/nbd.c", true);
        check("block/", "block", false);
        check("x?.c", "xž.c", true);
        check("x?.c", "x.c", false);
        check("[a-c]x", "bx", true);
        check("[!a-c]x", "bx", false);
        check("[]-]", "]", true);
        check("[]-]", "-", true);
        check("[a-]", "-", true);
        check("[a-c-e]", "d", false);
        check("\\*", "*", true);
        check("\\*", "x", false);
        check("*", ".hidden", true);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "a-b-b", false);
        check("Block", "block", false);
    }

    #[test]
    fn what_is_not_a_pattern() {
        let check = |pattern: &str, part: &str| {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains(part), "{pattern}: {error}");
        };
        check("", "`**` is everything");
        check("/block", "leave out the leading");
        check("a//b", "two slashes");
        check("../x", "not a name");
        check("./x", "not a name");
        check("a**", "must stand alone");
        check("[a", "without its `]`");
        check("[]", "without its `]`");
        check("[z-a]", "wrong way round");
        check("x\\", "nothing after it");
        check("!x", "cannot exclude");
        check(&"x".repeat(PATTERN_BYTES_MAX + 1), "longer");
        check(&"x/".repeat(SEGMENTS_MAX + 1), "segments");
    }

    /// The meaning said once more in another way: a regular expression.
    fn as_regex(pattern: &str) -> regex::Regex {
        let wild = pattern.contains(['*', '?']);
        let mut out = String::from("^");
        let segments: Vec<&str> = pattern.split('/').collect();
        for (i, segment) in segments.iter().enumerate() {
            let last = i + 1 == segments.len();
            match (*segment, last) {
                ("**", true) => out += ".+",
                ("**", false) => out += "(?:[^/]+/)*",
                (name, last) => {
                    for c in name.chars() {
                        match c {
                            '*' => out += "[^/]*",
                            '?' => out += "[^/]",
                            c => out += &regex::escape(&c.to_string()),
                        }
                    }
                    out += if last { "" } else { "/" };
                }
            }
        }
        out += if wild { "$" } else { "(?:/.*)?$" };
        regex::Regex::new(&out).unwrap()
    }

    proptest! {
        #[test]
        fn agrees_with_a_regular_expression(
            pattern in prop::collection::vec("\\*\\*|\\*|[ab]{1,2}|\\*?[ab?]\\*?", 1..5),
            path in prop::collection::vec("[ab]{1,3}", 1..6),
        ) {
            let (pattern, path) = (pattern.join("/"), path.join("/"));
            let parsed = Pattern::parse(&pattern).unwrap();
            prop_assert_eq!(
                parsed.matches(&path), as_regex(&pattern).is_match(&path), "{} on {}", pattern, path);
        }
    }
}
