//! Limits for the values that a template builds: a small text can make a list of lists that would fill any memory.
//!
//! The template language charges steps and texts, not lists: `{% set a = [a, a] %}` forty times is a list that no
//! machine can print. A list can only grow from step to step through a name that is set anew, so each `set` checks
//! what it sets; ways to bind a name that are not needed here are refused.

use std::borrow::Cow;
use std::io;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

/// Values in all lists and maps of one value, counted as often as they stand there.
const PARTS_MAX: usize = 20_000;

/// The filter that each `set` gets.
const FILTER: &str = "__within_limits";

/// Makes an environment know the limits; templates go through [`with_limits`].
pub fn limit(env: &mut Environment) {
    env.add_filter(FILTER, |value: Value| {
        let mut left = PARTS_MAX;
        count(&value, &mut left)
            .map(|()| value)
            .ok_or_else(|| wrong(format!("a value here has more than {PARTS_MAX} parts")))
    });
    // Prints all names with all that they hold.
    env.remove_global("debug");
}

/// Takes what is rendered up to a limit, and fails from there on.
pub struct LimitedOutput {
    pub bytes: Vec<u8>,
    pub is_full: bool,
    bytes_max: usize,
}

impl LimitedOutput {
    pub fn new(bytes_max: usize) -> LimitedOutput {
        LimitedOutput {
            bytes: Vec::new(),
            is_full: false,
            bytes_max,
        }
    }
}

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.is_full = true;
            let reason = format!("it writes more than {} bytes", self.bytes_max);
            return Err(io::Error::other(reason));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// None where there are more parts than are left.
fn count(value: &Value, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(1)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter().ok()? {
                count(&item, left)?;
            }
        }
        ValueKind::Map => {
            for key in value.try_iter().ok()? {
                count(&key, left)?;
                count(&value.get_item(&key).ok()?, left)?;
            }
        }
        _ => {}
    }
    Some(())
}

/// The template with a check behind each `{% set … %}`. Err says which tag is not known here. Positions move: the
/// text as it was written is to be compiled first, for its errors.
pub fn with_limits(text: &str) -> Result<Cow<'_, str>, String> {
    let mut limited = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['{']) {
        let open = at + found;
        at = match text[open..].get(..2) {
            Some("{#") => skip_to(text, open, "#}"),
            Some("{{") => tag_end(text, open + 2, "}}"),
            Some("{%") => {
                let end = tag_end(text, open + 2, "%}");
                let inner = text[open + 2..end].trim_end_matches("%}");
                let words = inner.trim_start_matches(['-', '+']).trim_start();
                let word = words.split(|c: char| !c.is_alphanumeric()).next();
                match word {
                    Some("with") => return Err("`with` is not known here: write `set`".to_owned()),
                    Some("for")
                        if words
                            .trim_end_matches(['-', '+', ' ', '\n'])
                            .ends_with(" recursive") =>
                    {
                        return Err("`recursive` loops are not known here".to_owned());
                    }
                    Some("raw") => {
                        at = skip_to(text, end, "endraw");
                        continue;
                    }
                    Some("set") => {
                        if let Some(equals) = equals(inner) {
                            let value_end = inner.trim_end_matches(['-', '+']).len();
                            limited.push_str(&text[copied..open + 2 + equals + 1]);
                            limited.push('(');
                            limited.push_str(&inner[equals + 1..value_end]);
                            limited.push_str(")|");
                            limited.push_str(FILTER);
                            copied = open + 2 + value_end;
                        }
                    }
                    _ => {}
                }
                end
            }
            _ => open + 1,
        };
    }
    match copied {
        0 => Ok(Cow::Borrowed(text)),
        _ => Ok(Cow::Owned(limited + &text[copied..])),
    }
}

fn skip_to(text: &str, from: usize, what: &str) -> usize {
    text[from..]
        .find(what)
        .map_or(text.len(), |found| from + found + what.len())
}

/// Behind the end of a tag: the first `close` that is not in a quoted text.
fn tag_end(text: &str, from: usize, close: &str) -> usize {
    let mut quote = None;
    let mut chars = text[from..].char_indices();
    while let Some((i, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, _) if text[from + i..].starts_with(close) => return from + i + close.len(),
            _ => {}
        }
    }
    text.len()
}

/// Where the `=` of a `set` is; none in the block form `{% set a %}…{% endset %}`.
fn equals(tag: &str) -> Option<usize> {
    tag.find(['=', '|', '"', '\'', '('])
        .filter(|at| tag[*at..].starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> Result<String, String> {
        let mut env = Environment::new();
        env.set_fuel(Some(100_000));
        limit(&mut env);
        let limited = with_limits(text)?;
        let detail = |error: Error| match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.kind().to_string(),
        };
        env.render_str(&limited, ()).map_err(detail)
    }

    #[test]
    fn values_that_are_set_stay_within_limits() {
        let check = |text: &str, expected: &str| {
            assert_eq!(render(text), Ok(expected.to_owned()), "{text}");
        };
        check("{% set a = [1, 2] %}{{ a | length }}", "2");
        check(
            "{%- set a = 'x' -%} {{ a }}{% set a = a ~ '%}' %}{{ a }}",
            "xx%}",
        );
        check("{% set a, b = 1, [2] %}{{ a }}{{ b[0] }}", "12");
        check("{% set a = {'x': 1 == 1} %}{{ a.x }}", "True");
        check("{% set a %}x{% endset %}{{ a }}", "x");
        check(
            "{# {% set #}{% raw %}{% set a = 1 %}{% endraw %}",
            "{% set a = 1 %}",
        );
        check(
            "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        );
        check("{a: 1} {", "{a: 1} {");
    }

    #[test]
    fn what_would_fill_the_memory_is_refused() {
        let check = |text: &str| {
            let error = render(text).unwrap_err();
            assert!(
                error.contains("parts") || error.contains("not known here"),
                "{error}: {text}"
            );
        };
        for step in [
            "[a, a]",
            "{'x': a, 'y': a}",
            "a + a",
            "a * 9",
            "[a] * 9",
            "namespace(x=a, y=a)",
            "[[a], [a]]",
        ] {
            let steps = format!("{{% set a = {step} %}}").repeat(60);
            check(&format!("{{% set a = ['x'] %}}{steps}{{{{ a ~ 'x' }}}}"));
        }
        let doubled = "{% set a %}{{ a }}{{ a }}{% endset %}".repeat(60);
        let error = render(&format!("{{% set a = 'x' %}}{doubled}")).unwrap_err();
        assert_eq!(error, "engine ran out of fuel");
        check("{% with a = [1] %}{% endwith %}");
        check("{% for a in [1] recursive %}{{ loop([[a, a]]) }}{% endfor %}");
        let grown = "{% set ns.a = [ns.a, ns.a] %}";
        check(&format!(
            "{{% set ns = namespace(a=1) %}}{{% for i in range(60) %}}{grown}{{% endfor %}}"
        ));
    }
}
