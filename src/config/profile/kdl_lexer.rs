//! The way from KDL text to nodes, with the limits that keep the KDL parser from its faults.
//!
//! The `kdl` crate recurses for each nested block, each `/-` and each error that it recovers from:
//! 64 KiB of garbage overflow any usual stack. So the structure (blocks, comments, strings, ends of
//! statements) is found here with counters, and the parser sees one short statement at a time.
//! That also makes every statement's problems show, however broken the others are.

use kdl::{KdlDocument, KdlValue};

use crate::base::diag::{At, Diagnostic, SourceId, Span};

/// Size of a profile at the most.
pub const PROFILE_BYTES_MAX: usize = 64 * 1024;
/// Nesting of blocks, and of comments, at the most.
pub const DEPTH_MAX: usize = 16;
/// Nodes of one file at the most.
const NODES_MAX: usize = 2048;
/// Problems after which a file is not read further.
pub(super) const PROBLEMS_MAX: usize = 50;
/// One node without its block. The parser was seen to overflow 2 MiB of stack beyond this size.
const STATEMENT_BYTES_MAX: usize = 1024;

/// One node as it is written.
#[derive(Debug)]
pub(super) struct LexedNode {
    pub name: At<String>,
    pub args: Vec<At<KdlValue>>,
    pub props: Vec<(At<String>, At<KdlValue>)>,
    /// The block, where there is one: its opening brace and its nodes.
    pub block: Option<(Span, Vec<LexedNode>)>,
}

/// Splits a file into nodes. Where a problem is found, the nodes around it are still returned.
pub(super) fn split(source: SourceId, text: &str) -> (Vec<LexedNode>, Vec<Diagnostic>) {
    let mut splitter = Splitter {
        source,
        text,
        problems: Vec::new(),
        blocks: vec![Block::default()],
        nodes: 0,
    };
    if text.len() > PROFILE_BYTES_MAX {
        let start = Span::new(source, 0..0);
        splitter.problems.push(
            Diagnostic::error(format!("the profile has {} bytes", text.len()))
                .at(start, "this file")
                .help(format!("the limit is {PROFILE_BYTES_MAX} bytes")),
        );
        return (Vec::new(), splitter.problems);
    }
    if let Err(fatal) = splitter.run() {
        splitter.problems.push(*fatal);
    }
    // Blocks that a fatal problem left open give what they have to the blocks around them.
    while splitter.blocks.len() > 1 {
        splitter.close_block();
    }
    let nodes = splitter.blocks.pop().unwrap_or_default().nodes;
    (nodes, splitter.problems)
}

/// A block that is being read; the first is the file itself.
#[derive(Default)]
struct Block {
    opening: Option<Span>,
    nodes: Vec<LexedNode>,
    /// It belongs to a node that is commented out by `/-`, or could not be read.
    dropped: bool,
}

struct Splitter<'t> {
    source: SourceId,
    text: &'t str,
    problems: Vec<Diagnostic>,
    blocks: Vec<Block>,
    /// Read so far, in all blocks.
    nodes: usize,
}

/// Err ends the reading: what follows cannot be told apart.
type LexStep<T> = Result<T, Box<Diagnostic>>;

impl Splitter<'_> {
    fn run(&mut self) -> LexStep<()> {
        let bytes = self.text.as_bytes();
        let mut start = 0;
        let mut at = 0;
        // A string in this statement is broken: the parser need not see it.
        let mut broken = false;
        while at < bytes.len() {
            self.check_counts(at)?;
            match bytes[at] {
                b'\n' | b'\r' | b';' => {
                    self.statement(start..at, broken, false);
                    at += 1;
                    (start, broken) = (at, false);
                }
                b'{' => {
                    self.check_depth(self.blocks.len(), at, "block")?;
                    let dropped = !self.statement(start..at, broken, true);
                    self.blocks.push(Block {
                        opening: Some(self.span(at, 1)),
                        nodes: Vec::new(),
                        dropped,
                    });
                    at += 1;
                    (start, broken) = (at, false);
                }
                b'}' => {
                    self.statement(start..at, broken, false);
                    if self.blocks.len() == 1 {
                        self.problems.push(
                            Diagnostic::error("a `}` without its `{`")
                                .at(self.span(at, 1), "closes nothing"),
                        );
                    } else {
                        self.close_block();
                    }
                    at += 1;
                    (start, broken) = (at, false);
                }
                b'/' => at = self.slash(at)?,
                b'\\' => at = self.continuation(at),
                b'"' | b'#' => match self.string(at) {
                    Ok(end) => at = end,
                    Err((end, problem)) => {
                        self.problems.push(*problem);
                        broken = true;
                        at = end;
                    }
                },
                _ => at += 1,
            }
        }
        self.statement(start..at, broken, false);
        match self.blocks.last().and_then(|block| block.opening) {
            None => Ok(()),
            Some(opening) => Err(Box::new(
                Diagnostic::error("a block is not closed")
                    .at(opening, "opened here")
                    .help("add `}`"),
            )),
        }
    }

    fn span(&self, start: usize, len: usize) -> Span {
        Span::new(self.source, start..start + len)
    }

    fn check_counts(&self, at: usize) -> LexStep<()> {
        let (what, max) = match self {
            Splitter { problems, .. } if problems.len() >= PROBLEMS_MAX => {
                ("problems", PROBLEMS_MAX)
            }
            Splitter { nodes, .. } if *nodes > NODES_MAX => ("nodes", NODES_MAX),
            _ => return Ok(()),
        };
        Err(Box::new(
            Diagnostic::error(format!("the profile has too many {what}"))
                .at(self.span(at, 0), "read up to here")
                .help(format!("the limit is {max}")),
        ))
    }

    fn check_depth(&self, depth: usize, at: usize, what: &str) -> LexStep<()> {
        if depth <= DEPTH_MAX {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(format!("{what}s are nested too deeply"))
                .at(self.span(at, 1), format!("the {depth}th {what} in another"))
                .help(format!(
                    "the limit is {DEPTH_MAX} levels; nothing after this was read"
                )),
        ))
    }

    /// A comment, or `/-`. Returns where it ends.
    fn slash(&self, at: usize) -> LexStep<usize> {
        let rest = &self.text[at..];
        if rest.starts_with("//") {
            let len = rest.find(['\n', '\r']).unwrap_or(rest.len());
            return Ok(at + len);
        }
        if let Some(after) = rest.strip_prefix("/-") {
            let after = after.trim_start();
            return match after.starts_with("/-") || after.starts_with('{') {
                false => Ok(at + 2),
                true => Err(Box::new(
                    Diagnostic::error("`/-` is not before a node, an argument or a property")
                        .at(self.span(at, 2), "comments out nothing")
                        .help("put one `/-` before the node's name, or use `//`"),
                )),
            };
        }
        if !rest.starts_with("/*") {
            return Ok(at + 1);
        }
        let bytes = self.text.as_bytes();
        let (mut depth, mut end) = (0, at);
        loop {
            match bytes.get(end..end + 2) {
                Some(b"/*") => {
                    depth += 1;
                    self.check_depth(depth, end, "comment")?;
                    end += 2;
                }
                Some(b"*/") => {
                    depth -= 1;
                    end += 2;
                    if depth == 0 {
                        return Ok(end);
                    }
                }
                Some(_) => end += 1,
                None => {
                    return Err(Box::new(
                        Diagnostic::error("a comment is not closed")
                            .at(self.span(at, 2), "opened here")
                            .help("add `*/`; nothing after this was read"),
                    ));
                }
            }
        }
    }

    /// A backslash before the end of a line goes on with the statement in the next one.
    fn continuation(&self, at: usize) -> usize {
        let rest = &self.text[at + 1..];
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let mut end = at + 1 + blanks;
        let rest = &self.text[end..];
        if rest.starts_with("//") {
            end += rest.find(['\n', '\r']).unwrap_or(rest.len());
        }
        let rest = &self.text[end..];
        match rest.starts_with("\r\n") {
            true => end + 2,
            false if rest.starts_with(['\n', '\r']) => end + 1,
            false => at + 1,
        }
    }

    /// A quoted or raw string, or just a `#`. Returns where it ends; Err where it is not closed,
    /// with the place at which reading can go on.
    fn string(&self, at: usize) -> Result<usize, (usize, Box<Diagnostic>)> {
        let rest = &self.text[at..];
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        if !rest[hashes..].starts_with('"') {
            return Ok(at + hashes.max(1));
        }
        let multi_line = rest[hashes..].starts_with("\"\"\"");
        let quotes = if multi_line { "\"\"\"" } else { "\"" };
        let closing = format!("{quotes}{}", "#".repeat(hashes));
        let mut end = at + hashes + quotes.len();
        while let Some(next) = self.text[end..].chars().next() {
            if self.text[end..].starts_with(&closing) {
                return Ok(end + closing.len());
            }
            if !multi_line && (next == '\n' || next == '\r') {
                break;
            }
            end += next.len_utf8();
            if next == '\\' && hashes == 0 {
                end = self.escape(end);
            }
        }
        let opening = self.span(at, hashes + quotes.len());
        let problem = Diagnostic::error("a string is not closed")
            .at(opening, "opened here")
            .help(format!("add `{closing}`"));
        Err((end, Box::new(problem)))
    }

    /// What follows a backslash in a string: one character, or blanks and line ends.
    fn escape(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        match rest.len() - rest.trim_start().len() {
            0 => at + rest.chars().next().map_or(0, char::len_utf8),
            blanks => at + blanks,
        }
    }

    /// Gives one statement to the parser and adds what it reads to the current block. Returns
    /// whether there is a node that a following block would belong to.
    fn statement(&mut self, range: std::ops::Range<usize>, broken: bool, has_block: bool) -> bool {
        let text = &self.text[range.clone()];
        if broken || (text.trim().is_empty() && !has_block) {
            return false;
        }
        let span = Span::new(self.source, range.clone());
        if text.len() > STATEMENT_BYTES_MAX {
            // Comments count too: they stand before the node whose statement they are part of.
            self.problems.push(
                Diagnostic::error(format!("one node has {} bytes", text.len()))
                    .at(span.slice(0..40.min(text.len())), "begins here")
                    .help(format!(
                        "the limit is {STATEMENT_BYTES_MAX} bytes, `/* */` comments included"
                    )),
            );
            return false;
        }
        if text.trim().is_empty() {
            self.problems.push(
                Diagnostic::error("a block without a node")
                    .at(self.span(range.end, 1), "belongs to nothing")
                    .help("put the node's name on the same line, before the `{`"),
            );
            return false;
        }
        match KdlDocument::parse_v2(text) {
            Ok(document) => {
                self.refuse_types(&document, span);
                let nodes = document.nodes().iter();
                let nodes: Vec<LexedNode> = nodes.map(|node| convert(node, span)).collect();
                let any = !nodes.is_empty();
                self.nodes += nodes.len();
                if let Some(block) = self.blocks.last_mut() {
                    block.nodes.extend(nodes);
                }
                any
            }
            Err(error) => {
                let problem = error.diagnostics.first();
                self.problems.push(of_kdl(problem, text, span));
                false
            }
        }
    }

    fn refuse_types(&mut self, document: &KdlDocument, statement: Span) {
        let types = document.nodes().iter().flat_map(|node| {
            let entries = node.entries().iter().filter_map(|entry| entry.ty());
            node.ty().into_iter().chain(entries)
        });
        for ty in types {
            let span = ty.span();
            self.problems.push(
                Diagnostic::error("a profile has no type annotations")
                    .at(
                        statement.slice(span.offset()..span.offset() + span.len()),
                        "not here",
                    )
                    .help(format!("remove `({})`", ty.value())),
            );
        }
    }

    /// Ends the innermost block and gives it to the node before it.
    fn close_block(&mut self) {
        let Some(block) = self.blocks.pop() else {
            return;
        };
        let outer = self.blocks.last_mut();
        let node = outer.and_then(|outer| outer.nodes.last_mut());
        if let (Some(node), Some(opening), false) = (node, block.opening, block.dropped) {
            node.block = Some((opening, block.nodes));
        }
    }
}

/// The statement's node with spans in the whole file.
fn convert(node: &kdl::KdlNode, statement: Span) -> LexedNode {
    let place = |offset: usize, length: usize| statement.slice(offset..offset + length);
    let mut args = Vec::new();
    let mut props = Vec::new();
    for entry in node.entries() {
        let value = At::new(
            entry.value().clone(),
            place(entry.span().offset(), entry.span().len()),
        );
        match entry.name() {
            None => args.push(value),
            Some(name) => {
                let name = At::new(
                    name.value().to_owned(),
                    place(name.span().offset(), name.span().len()),
                );
                // An entry's span begins at its name.
                let skipped = (name.span.end - value.span.start) as usize + 1;
                let len = (value.span.end - value.span.start) as usize;
                let span = value.span.slice(skipped.min(len)..len);
                props.push((name, At::new(value.value, span)));
            }
        }
    }
    LexedNode {
        name: At::new(
            node.name().value().to_owned(),
            place(node.name().span().offset(), node.name().span().len()),
        ),
        args,
        props,
        block: None,
    }
}

/// Words that KDL 1 wrote bare.
const KEYWORDS: [&str; 5] = ["true", "false", "null", "inf", "nan"];

/// The parser's diagnostic as ours.
fn of_kdl(problem: Option<&kdl::KdlDiagnostic>, text: &str, statement: Span) -> Diagnostic {
    let Some(problem) = problem else {
        return Diagnostic::error("this is not KDL").at(statement, "cannot be read");
    };
    let range = problem.span.offset()..problem.span.offset() + problem.span.len();
    let span = statement.slice(range.clone());
    let word = text.get(range).unwrap_or("").trim();
    if KEYWORDS.contains(&word) {
        return Diagnostic::error(format!("`{word}` is not a keyword of KDL 2"))
            .at(span, "without `#`")
            .help(format!(
                "KDL 2 writes `#{word}`, or `\"{word}\"` for the text"
            ));
    }
    let message = problem.message.as_deref().unwrap_or("it cannot be read");
    let diagnostic = Diagnostic::error(format!("this is not KDL 2: {}", lower_first(message)))
        .at(span, problem.label.as_deref().unwrap_or("here"));
    match &problem.help {
        Some(help) => diagnostic.help(lower_first(help)),
        None => diagnostic,
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_text(text: &str) -> (Vec<LexedNode>, Vec<String>) {
        let (nodes, problems) = split(SourceId(0), text);
        (nodes, problems.into_iter().map(|p| p.message).collect())
    }

    /// Nodes as `name(arg,…;prop=value,…){…}`.
    fn shape(nodes: &[LexedNode]) -> String {
        let one = |node: &LexedNode| {
            let args: Vec<String> = node.args.iter().map(|arg| arg.value.to_string()).collect();
            let props = node.props.iter();
            let props = props.map(|(name, value)| format!("{}={}", name.value, value.value));
            let inner = [args.join(","), props.collect::<Vec<_>>().join(",")].join(";");
            match &node.block {
                None => format!("{}({inner})", node.name.value),
                Some((_, nodes)) => format!("{}({inner}){{{}}}", node.name.value, shape(nodes)),
            }
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn structure() {
        let check = |text: &str, expected: &str| {
            let (nodes, problems) = split_text(text);
            assert_eq!(problems, [] as [&str; 0], "{text}");
            assert_eq!(shape(&nodes), expected, "{text}");
        };
        check("a 1 x=2; b", "a(1;x=2) b(;)");
        check("a {\n b { c 1; }\n}\nd", "a(;){b(;){c(1;)}} d(;)");
        check("a \"} { ; //\" // } {\nb", "a(\"} { ; //\";) b(;)");
        check("a #\"\\\"#; b /* } /* { */ ; */ 2", "a(\"\\\\\";) b(2;)");
        check("a \\ // more\n 1\nb", "a(1;) b(;)");
        check("/- a 1 { b; }\nc /- 1 2", "c(2;)");
        check("a \"\"\"\n {\n \"\"\"\nb", "a(\"{\";) b(;)");
        check("a \"x\\\"y\" \"\\\n  z\"", "a(\"x\\\"y\",z;)");
        check("\u{feff}a 1\r\nb 2", "a(1;) b(2;)");
        check("", "");
    }

    #[test]
    fn spans_point_into_the_file() {
        let text = "// žluť\na 1\nwhen disk=nvme {\n  thp \"never\"   optional=#true\n}\n";
        let (nodes, _) = split_text(text);
        let part = |span: Span| &text[span.start as usize..span.end as usize];
        assert_eq!(part(nodes[1].name.span), "when");
        assert_eq!(part(nodes[1].props[0].0.span), "disk");
        assert_eq!(part(nodes[1].props[0].1.span), "nvme");
        let (opening, inner) = nodes[1].block.as_ref().unwrap();
        assert_eq!(part(*opening), "{");
        assert_eq!(part(inner[0].args[0].span), "\"never\"");
        assert_eq!(part(inner[0].props[0].1.span), "#true");
    }

    #[test]
    fn limits_hold_before_the_parser_sees_the_text() {
        let check = |text: String, expected: &str| {
            let (_, problems) = split_text(&text);
            assert_eq!(problems.last().map(String::as_str), Some(expected));
        };
        check("a {".repeat(10_000), "blocks are nested too deeply");
        check("a {\n".repeat(17), "blocks are nested too deeply");
        check("/* ".repeat(10_000), "comments are nested too deeply");
        check("x".repeat(2_000), "one node has 2000 bytes");
        check(
            "x\n".repeat(PROFILE_BYTES_MAX),
            "the profile has 131072 bytes",
        );
        let deepest = format!("{}{}", "a {\n".repeat(16), "}\n".repeat(16));
        assert_eq!(split_text(&deepest).1, [] as [&str; 0]);
    }

    #[test]
    fn garbage_up_to_the_limit_is_only_refused() {
        for piece in [
            "=", "a =\n", "}", "\"", "/- ", "a /-{}", "(", "#", "\\", "a{}", "{}", "/-",
        ] {
            let text = piece.repeat(PROFILE_BYTES_MAX / piece.len());
            assert_ne!(split_text(&text).1, [] as [&str; 0], "{piece}");
            // As many as one statement can hold.
            split_text(
                &piece
                    .replace('\n', "")
                    .repeat(STATEMENT_BYTES_MAX / piece.len()),
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A crash would end the test program; nothing else is claimed but that spans are in the text.
        #[test]
        fn any_text_is_read_or_refused(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "{", "a {", "}", "\"", "\"\"\"", "#", "#\"", "\"#", "/*", "*/", "//", "/-",
                    "\n", "\\", ";", "=", "(", ")", " ", "a", "1", "ž", "\r\n", "#true", "\u{2028}",
                ]),
                0..200,
            )
        ) {
            let text = pieces.concat();
            let (_, problems) = split(SourceId(0), &text);
            for (span, _) in problems.iter().filter_map(|problem| problem.label.as_ref()) {
                prop_assert!(span.start <= span.end && span.end as usize <= text.len());
            }
        }
    }
}
