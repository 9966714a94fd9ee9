//! Templates and expressions: compiling, the names they mention, rendering, evaluating.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::ValueKind;
use minijinja::{Environment, UndefinedBehavior, Value};

use super::template_bounds;
use crate::base::diag::{Diagnostic, Span};

/// Bytes of one template or expression.
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of what one template gives.
pub const RENDERED_BYTES_MAX: usize = 1 << 20;
/// Words that one list gives.
const WORDS_MAX: usize = 10_000;
/// Steps that one rendering may take: endless loops end here.
const FUEL_MAX: u64 = 100_000;

/// A compiled text with `{{ … }}` in it.
#[derive(Clone, Debug)]
pub struct Template {
    id: String,
    pub text: String,
    pub span: Span,
    /// Names that the text uses, dotted where an attribute is taken (`load.jobs`), sorted.
    pub mentions: Vec<String>,
}

impl Template {
    /// The text stands for itself.
    pub fn is_literal(&self) -> bool {
        !has_syntax(&self.text)
    }
}

/// A compiled expression over a cell, such as `aio == 'native' and bs == '4k'`.
#[derive(Clone, Debug)]
pub struct Expr {
    /// As written; `2%` in it means 0.02.
    pub text: String,
    pub span: Span,
    /// As in [`Template::mentions`].
    pub mentions: Vec<String>,
}

/// A value in a [`Context`].
pub type AnyValue = Value;

/// What names stand for while a template is rendered.
#[derive(Clone, Debug, Default)]
pub struct Context(BTreeMap<String, Value>);

impl Context {
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Takes over all names of another context.
    pub fn extend(&mut self, other: Context) {
        self.0.extend(other.0);
    }

    /// `name('text')`, a question that is answered with true or false.
    pub fn set_question(
        &mut self,
        name: &str,
        answer: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) {
        let function = Value::from_function(move |text: String| answer(&text));
        self.0.insert(name.to_owned(), function);
    }

    /// `name.field`.
    pub fn set_field(&mut self, name: &str, field: &str, value: impl Into<Value>) {
        let fields = self
            .0
            .get(name)
            .and_then(|old| old.try_iter().ok().map(|keys| (old.clone(), keys)));
        let mut map: BTreeMap<String, Value> = BTreeMap::new();
        if let Some((old, keys)) = fields {
            for key in keys {
                if let Ok(value) = old.get_item(&key) {
                    map.insert(key.to_string(), value);
                }
            }
        }
        map.insert(field.to_owned(), value.into());
        self.0.insert(name.to_owned(), Value::from(map));
    }
}

/// The result of a derived axis: it keeps its kind, so that numbers compare as numbers.
#[derive(Clone, Debug)]
pub struct Derived(Value);

impl From<Derived> for Value {
    fn from(derived: Derived) -> Value {
        derived.0
    }
}

impl std::fmt::Display for Derived {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&plain(&self.0).to_string())
    }
}

/// The value, if it is no list and no map: what Python would print of those is no word of a command, and a
/// small text can make lists of lists that would fill any memory.
fn scalar(value: &Value) -> Result<&Value, minijinja::Error> {
    let what = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            "a list cannot stand in a text: write `| words` behind it, or `| join(' ')`"
        }
        ValueKind::Map => "a value with fields cannot stand in a text: name one of its fields",
        _ => return Ok(value),
    };
    Err(minijinja::Error::new(
        minijinja::ErrorKind::InvalidOperation,
        what,
    ))
}

/// A boolean is written as a matrix writes it, not as Python does.
fn plain(value: &Value) -> Value {
    match value.kind() {
        ValueKind::Bool => Value::from(match value.is_true() {
            true => "true",
            false => "false",
        }),
        _ => value.clone(),
    }
}

/// Compiles and runs templates. One for each matrix.
pub struct Engine {
    env: Environment<'static>,
    count: usize,
    /// Names of minijinja's own functions that a matrix uses for something else.
    declared: BTreeSet<String>,
}

impl Default for Engine {
    fn default() -> Self {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.set_fuel(Some(FUEL_MAX));
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_formatter(|out, state, value| {
            minijinja::escape_formatter(out, state, &plain(scalar(value)?))
        });
        template_bounds::limit(&mut env);
        env.add_filter("optional", |value: &Value| optional(value));
        env.add_filter("words", |value: &Value| split_value(value));
        env.add_filter("join", |value: &Value, joiner: Option<&str>| {
            join(value, joiner)
        });
        env.add_filter("string", |value: &Value| {
            scalar(value).map(|value| plain(value).to_string())
        });
        Engine {
            env,
            count: 0,
            declared: BTreeSet::new(),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Engine({} templates)", self.count)
    }
}

impl Engine {
    /// Axes and set-ups of these names are meant where a template names them, not functions.
    pub fn declare(&mut self, names: impl IntoIterator<Item = String>) {
        self.declared.extend(names);
    }

    /// Whether a template can use this name: not a word of the language itself.
    pub fn is_usable(&self, name: &str) -> bool {
        let compiled = self.env.compile_expression(name);
        compiled.is_ok_and(|compiled| compiled.undeclared_variables(true).contains(name))
    }

    /// Compiles `text`, which stands at `span`; the diagnostic underlines the fault.
    pub fn template(&mut self, text: &str, span: Span) -> Result<Template, Diagnostic> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(too_long(text.len(), span));
        }
        let mut template = Template {
            id: String::new(),
            text: text.to_owned(),
            span,
            mentions: Vec::new(),
        };
        if template.is_literal() {
            return Ok(template);
        }
        self.count += 1;
        template.id = format!("t{}", self.count);
        self.env
            .add_template_owned(template.id.clone(), template.text.clone())
            .map_err(|error| syntax_error("template", text, span, &error))?;
        let limited = template_bounds::with_limits(text).map_err(|reason| {
            Diagnostic::error(format!("this template cannot be used: {reason}")).at(span, "here")
        })?;
        if let Cow::Owned(limited) = limited {
            self.env
                .add_template_owned(template.id.clone(), limited)
                .map_err(|error| syntax_error("template", text, span, &error))?;
        }
        if let Ok(compiled) = self.env.get_template(&template.id) {
            template.mentions = self.mentions(compiled.undeclared_variables(true));
        }
        Ok(template)
    }

    /// Compiles an expression, which stands at `span`.
    pub fn expr(&self, text: &str, span: Span) -> Result<Expr, Diagnostic> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(too_long(text.len(), span));
        }
        match self.env.compile_expression_owned(percent_as_number(text)) {
            Ok(compiled) => Ok(Expr {
                text: text.to_owned(),
                span,
                mentions: self.mentions(compiled.undeclared_variables(true)),
            }),
            Err(error) => Err(syntax_error("expression", text, span, &error)),
        }
    }

    fn mentions(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let globals: BTreeSet<&str> = self.env.globals().map(|(name, _)| name).collect();
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| {
                let root = name.split('.').next().unwrap_or(name);
                self.declared.contains(root) || !globals.contains(name.as_str())
            })
            .collect();
        names.sort();
        names
    }

    /// The text with its names replaced. The error is one line, without place.
    pub fn render(&self, template: &Template, context: &Context) -> Result<String, String> {
        if template.is_literal() {
            return Ok(template.text.clone());
        }
        let compiled = self.env.get_template(&template.id);
        let mut rendered = template_bounds::LimitedOutput::new(RENDERED_BYTES_MAX);
        let result = compiled.and_then(|compiled| {
            compiled
                .render_captured_to(&context.0, &mut rendered)
                .map(|_| ())
        });
        match result {
            _ if rendered.is_full => Err(format!(
                "it gives more than {RENDERED_BYTES_MAX} bytes: make it shorter"
            )),
            Ok(()) => Ok(String::from_utf8_lossy(&rendered.bytes).into_owned()),
            Err(error) => Err(in_words(&error)),
        }
    }

    /// Whether the expression holds; anything but a boolean is an error.
    pub fn test(&self, expr: &Expr, context: &Context) -> Result<bool, String> {
        let value = self.value(expr, context)?;
        match value.0.kind() {
            minijinja::value::ValueKind::Bool => Ok(value.0.is_true()),
            kind => Err(format!("it gives a {kind}, not true or false")),
        }
    }

    /// The value of a derived axis: text, a number or a boolean.
    pub fn value(&self, expr: &Expr, context: &Context) -> Result<Derived, String> {
        self.env
            .compile_expression_owned(percent_as_number(&expr.text))
            .and_then(|compiled| compiled.eval(&context.0))
            .map(Derived)
            .map_err(|error| in_words(&error))
    }
}

/// Stands in a rendered word that is to be left out.
const LEFT_OUT: char = '\u{2}';
/// Stands in a rendered word where one word ends and the next begins.
const NEXT_WORD: char = '\u{3}';

/// Characters that values cannot hold: they have a meaning in rendered words.
pub fn is_reserved(c: char) -> bool {
    ('\u{1}'..=NEXT_WORD).contains(&c)
}

/// `{{ … | optional }}`: the word is left out where the value is empty, `false` or none; `true` adds nothing.
fn optional(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => LEFT_OUT.to_string(),
        ValueKind::Bool => match value.is_true() {
            true => String::new(),
            false => LEFT_OUT.to_string(),
        },
        _ => match value.to_string() {
            text if text.is_empty() => LEFT_OUT.to_string(),
            text => text,
        },
    }
}

/// `{{ … | words }}`: a word each of a list, or of a text that is split as a shell would; none of an empty one.
fn split_value(value: &Value) -> Result<String, minijinja::Error> {
    let wrong =
        |text: &str| minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, text.to_owned());
    let words: Vec<String> = match value.as_str() {
        Some(text) => split_words(text).ok_or_else(|| wrong("a quote is not closed"))?,
        None if value.kind() == ValueKind::Seq => {
            let items = value.try_iter()?;
            let items = items
                .take(WORDS_MAX)
                .map(|item| Ok(plain(scalar(&item)?).to_string()));
            items.collect::<Result<_, minijinja::Error>>()?
        }
        None => return Err(wrong("`words` takes a list or a text")),
    };
    match words.is_empty() {
        true => Ok(LEFT_OUT.to_string()),
        false => Ok(words.join(&NEXT_WORD.to_string())),
    }
}

/// The items of a list, which are no lists, with a text between them.
fn join(value: &Value, joiner: Option<&str>) -> Result<String, minijinja::Error> {
    let mut text = String::new();
    for (index, item) in value.try_iter()?.enumerate() {
        if index > 0 {
            text.push_str(joiner.unwrap_or(""));
        }
        text.push_str(&plain(scalar(&item)?).to_string());
        if text.len() > RENDERED_BYTES_MAX {
            let what = format!("it gives more than {RENDERED_BYTES_MAX} bytes");
            return Err(minijinja::Error::new(
                minijinja::ErrorKind::InvalidOperation,
                what,
            ));
        }
    }
    Ok(text)
}

/// The words that a rendered word of a command becomes: mostly one.
pub fn words_of(rendered: String) -> Vec<String> {
    if rendered.contains(LEFT_OUT) {
        return Vec::new();
    }
    match rendered.contains(NEXT_WORD) {
        true => rendered.split(NEXT_WORD).map(str::to_owned).collect(),
        false => vec![rendered],
    }
}

fn has_syntax(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

/// `ci95 < 2%` is read as `ci95 < 0.02`: a number that touches a percent sign which no operand follows.
fn percent_as_number(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let digits = before.len()
            - before
                .bytes()
                .rev()
                .take_while(|b| b.is_ascii_digit() || *b == b'.')
                .count();
        let stands_alone = before[..digits]
            .chars()
            .next_back()
            .is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '\'' && c != '"');
        let no_operand = after.chars().next().is_none_or(|c| " )],".contains(c))
            && !after
                .trim_start()
                .starts_with(|c: char| c.is_ascii_digit() || c == '(' || c == '\'');
        match before[digits..].parse::<f64>() {
            Ok(number) if stands_alone && no_operand => {
                out.push_str(&before[..digits]);
                out.push_str(&(number / 100.0).to_string());
            }
            _ => {
                out.push_str(before);
                out.push('%');
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Splits a command line into words by POSIX rules; `{{ … }}` stays whole and is not split, so
/// that a value can never become two words. None for an unclosed quote.
pub fn split_words(text: &str) -> Option<Vec<String>> {
    // Blocks are put aside as single private-use characters while the shell rules are applied.
    const FIRST: u32 = 0xF0000;
    let mut blocks: Vec<&str> = Vec::new();
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let start = ["{{", "{%", "{#"]
            .into_iter()
            .filter_map(|open| rest.find(open))
            .min();
        let Some(start) = start else { break };
        let close = match &rest[start..start + 2] {
            "{{" => "}}",
            "{%" => "%}",
            _ => "#}",
        };
        let Some(length) = rest[start..].find(close) else {
            break;
        };
        let end = start + length + close.len();
        plain.push_str(&rest[..start]);
        plain.push(char::from_u32(FIRST + blocks.len() as u32)?);
        blocks.push(&rest[start..end]);
        rest = &rest[end..];
    }
    plain.push_str(rest);
    let words = shlex::split(&plain)?;
    let put_back = |word: String| {
        word.chars().fold(String::new(), |mut out, c| {
            match (c as u32)
                .checked_sub(FIRST)
                .and_then(|i| blocks.get(i as usize))
            {
                Some(block) => out.push_str(block),
                None => out.push(c),
            }
            out
        })
    };
    Some(words.into_iter().map(put_back).collect())
}

fn in_words(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn too_long(length: usize, span: Span) -> Diagnostic {
    Diagnostic::error(format!(
        "this text has {length} bytes; at most {TEMPLATE_BYTES_MAX} are allowed"
    ))
    .at(span, "too long")
    .help("put long texts into a file and name the file in the command")
}

fn syntax_error(what: &str, text: &str, span: Span, error: &minijinja::Error) -> Diagnostic {
    // A literal has two quotes more than its text, a word of a command line has none. With escapes
    // in it, offsets of the text are not offsets of the file.
    let quote =
        match (span.end - span.start) as usize - text.len().min((span.end - span.start) as usize) {
            0 => Some(0),
            2 => Some(1),
            _ => None,
        };
    let range = error.range().filter(|range| range.end <= text.len());
    let found = range.clone().and_then(|range| text.get(range));
    let exact = range.zip(quote).map(|(range, quote)| {
        span.slice(range.start + quote..range.end.max(range.start + 1) + quote)
    });
    let detail = error.detail().unwrap_or("cannot be read");
    let help = match found {
        Some("=") => "to compare is written `==`",
        _ => {
            "templates and expressions are minijinja's (Jinja2): `{{ axis }}`, `axis == 'value' and other in ['a', 'b']`"
        }
    };
    Diagnostic::error(format!("this {what} cannot be read: {detail}"))
        .at(exact.unwrap_or(span), "here")
        .help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::diag::SourceId;

    fn nowhere() -> Span {
        Span::new(SourceId(0), 0..1)
    }

    #[test]
    fn a_command_line_is_split_before_values_are_filled_in() {
        let check = |text: &str, words: Option<&[&str]>| {
            assert_eq!(
                split_words(text),
                words.map(|w| w.iter().map(|s| s.to_string()).collect()),
                "{text}"
            )
        };
        check("a b", Some(&["a", "b"]));
        check("a '{{ x y }} z'", Some(&["a", "{{ x y }} z"]));
        check("{{ dir }}/disk.img 1G", Some(&["{{ dir }}/disk.img", "1G"]));
        check("a{{ 'b c' }}d", Some(&["a{{ 'b c' }}d"]));
        check("'open", None);
    }

    #[test]
    fn a_percentage_is_a_number() {
        let check = |text, rewritten| assert_eq!(percent_as_number(text), rewritten);
        check("ci95 < 2%", "ci95 < 0.02");
        check("ci95 < 2.5% and n > 3", "ci95 < 0.025 and n > 3");
        check("jobs % 2 == 0", "jobs % 2 == 0");
        check("jobs%2 == 0", "jobs%2 == 0");
        check("x1% ", "x1% ");
        check("10% 3", "10% 3");
    }

    #[test]
    fn mentions_are_dotted_and_free_of_globals() {
        let mut engine = Engine::default();
        let template = engine
            .template("{{ load.jobs }} {{ range(3) }} {{ bs }}", nowhere())
            .unwrap();
        assert_eq!(template.mentions, ["bs", "load.jobs"]);
        let expr = engine
            .expr("aio == 'x' and load.jobs > 1", nowhere())
            .unwrap();
        assert_eq!(expr.mentions, ["aio", "load.jobs"]);
    }

    #[test]
    fn endless_templates_run_dry() {
        let mut engine = Engine::default();
        let template = engine
            .template(
                "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
                nowhere(),
            )
            .unwrap();
        assert!(
            engine
                .render(&template, &Context::default())
                .unwrap_err()
                .contains("fuel")
        );
    }

    #[test]
    fn lists_of_lists_fill_no_memory() {
        let mut engine = Engine::default();
        let ten = "[a,a,a,a,a,a,a,a,a,a]";
        let sets: String = (0..14).map(|_| format!("{{% set a = {ten} %}}")).collect();
        for use_of_it in [
            "{{ a }}",
            "{{ a | string }}",
            "{{ a | words }}",
            "{{ a | join }}",
        ] {
            let text = format!("{{% set a = 1 %}}{sets}{use_of_it}");
            let template = engine.template(&text, nowhere()).unwrap();
            assert!(
                engine.render(&template, &Context::default()).is_err(),
                "{use_of_it}"
            );
        }
        let template = engine
            .template("{{ 'x' * 99999 * 20 }}", nowhere())
            .unwrap();
        let error = engine.render(&template, &Context::default()).unwrap_err();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn words_disappear_and_become_several() {
        let mut engine = Engine::default();
        let mut check = |text: &str, words: &[&str]| {
            let template = engine.template(text, nowhere()).unwrap();
            let mut context = Context::default();
            context.set("empty", "");
            context.set("no", false);
            context.set("yes", true);
            context.set("x", "a b");
            let rendered = engine.render(&template, &context).unwrap();
            assert_eq!(words_of(rendered), words, "{text}");
        };
        check("--flag{{ yes | optional }}", &["--flag"]);
        check("--flag{{ no | optional }}", &[]);
        check("--x={{ x | optional }}", &["--x=a b"]);
        check("--x={{ empty | optional }}", &[]);
        check("{{ '-p' if no else '' }}", &[""]);
        check("{{ x | words }}", &["a", "b"]);
        check("{{ ['-n', 4, yes] | words }}", &["-n", "4", "true"]);
        check("{{ (['-p'] if no else []) | words }}", &[]);
    }

    #[test]
    fn a_field_can_be_added_to_a_name() {
        let mut engine = Engine::default();
        let template = engine.template("{{ a.x }}{{ a.y }}", nowhere()).unwrap();
        let mut context = Context::default();
        context.set_field("a", "x", "1");
        context.set_field("a", "y", "2");
        assert_eq!(engine.render(&template, &context).unwrap(), "12");
    }
}
