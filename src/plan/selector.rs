//! Slips in what cells are selected by: values that an axis does not have.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::base::diag::{Diagnostic, suggest};
use crate::config::matrix::Matrix;
use crate::config::template::Expr;
use crate::config::value::{AxisValue, Scalar};

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExprToken<'a> {
    /// A name, dotted where an attribute is taken.
    Name(&'a str),
    Text(&'a str, Range<usize>),
    /// Everything else: an operator, a bracket, a number, a word of the language.
    Other(&'a str),
}

const KEYWORDS: [&str; 7] = ["and", "or", "not", "in", "is", "if", "else"];

/// Warnings about texts that an axis is compared with and that are none of its values, in no preset
/// and no `[[include]]`. Versions are no values of a matrix.
pub fn slips(matrix: &Matrix, only: &[Expr]) -> Vec<Diagnostic> {
    let mut slips = Vec::new();
    for expr in only {
        for (name, text, place) in compared(&tokens(&expr.text)) {
            let Some(axis) = matrix.axes.iter().find(|axis| axis.name == name) else {
                continue;
            };
            let presets = matrix.presets.iter().flat_map(|preset| &preset.axes);
            let includes = matrix.includes.iter().flat_map(|include| &include.values);
            let others = presets.chain(includes);
            let others = others
                .filter(|(of, _)| of.value == name)
                .map(|(_, values)| values);
            let all = others.chain([&axis.values]).flatten();
            let known: BTreeSet<String> = all.filter_map(|at| text_of(&at.value)).collect();
            if name == "version" && !axis.declared || known.contains(text) {
                continue;
            }
            let message = format!("axis `{name}` has no value `{text}`");
            let names = known.iter().map(String::as_str);
            let is_number = axis.values.iter().any(
                |at| matches!(&at.value, AxisValue::Scalar(value) if value.to_string() == text),
            );
            let help = match is_number {
                true => format!("its value is no text: `{text}` without quotation marks"),
                false => suggest(text, names),
            };
            slips.push(
                Diagnostic::warning(message)
                    .at(expr.span.slice(place), "none of its values")
                    .help(help),
            );
        }
    }
    slips
}

fn text_of(value: &AxisValue) -> Option<String> {
    match value {
        AxisValue::Scalar(Scalar::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Names with the texts that they are compared with by `==`, `!=`, `in` and `not in`.
fn compared<'a>(tokens: &[ExprToken<'a>]) -> Vec<(&'a str, &'a str, Range<usize>)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        // An attribute, or what a filter or an operator makes of a name, has values of its own.
        let ends = |at: usize| {
            let next = tokens.get(at);
            !matches!(next, Some(ExprToken::Other("|" | "~" | "+" | "[" | "(")))
        };
        match (token, &tokens[at + 1..]) {
            (
                ExprToken::Name(name),
                [
                    ExprToken::Other("==" | "!="),
                    ExprToken::Text(text, place),
                    ..,
                ],
            ) if ends(at + 3) => {
                found.push((*name, *text, place.clone()));
            }
            (
                ExprToken::Text(text, place),
                [ExprToken::Other("==" | "!="), ExprToken::Name(name), ..],
            ) if ends(at + 3) => {
                found.push((*name, *text, place.clone()));
            }
            (
                ExprToken::Name(name),
                [
                    ExprToken::Other("in"),
                    ExprToken::Other("[" | "("),
                    list @ ..,
                ],
            )
            | (
                ExprToken::Name(name),
                [
                    ExprToken::Other("not"),
                    ExprToken::Other("in"),
                    ExprToken::Other("[" | "("),
                    list @ ..,
                ],
            ) => {
                let list = list.iter().take_while(|token| match token {
                    ExprToken::Text(..) => true,
                    ExprToken::Other(other) => !["]", ")"].contains(other),
                    ExprToken::Name(_) => false,
                });
                found.extend(list.filter_map(|token| match token {
                    ExprToken::Text(text, place) => Some((*name, *text, place.clone())),
                    ExprToken::Name(_) | ExprToken::Other(_) => None,
                }));
            }
            _ => {}
        }
    }
    found
}

fn tokens(text: &str) -> Vec<ExprToken<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let end = match first {
            '\'' | '"' => {
                let end = rest[1..].find(first).map_or(rest.len(), |end| end + 2);
                let inside = at + 1..(at + end - 1).max(at + 1);
                // What is written with escapes is not looked at.
                match &text[inside.clone()] {
                    escaped if escaped.contains('\\') => {
                        tokens.push(ExprToken::Other(&rest[..end]))
                    }
                    plain => tokens.push(ExprToken::Text(plain, inside)),
                }
                end
            }
            c if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let is_other = c.is_ascii_digit() || KEYWORDS.contains(&&rest[..end]);
                tokens.push(match is_other {
                    true => ExprToken::Other(&rest[..end]),
                    false => ExprToken::Name(&rest[..end]),
                });
                end
            }
            c if c.is_whitespace() => c.len_utf8(),
            _ => {
                let two = rest
                    .get(..2)
                    .filter(|two| ["==", "!=", "<=", ">="].contains(two));
                let one = &rest[..first.len_utf8()];
                let token = two.unwrap_or(one);
                tokens.push(ExprToken::Other(token));
                token.len()
            }
        };
        at += end;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_axis_is_compared_with() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = compared(&tokens(text));
            let found: Vec<(&str, &str)> = found
                .into_iter()
                .map(|(name, value, place)| {
                    assert_eq!(&text[place], value);
                    (name, value)
                })
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        check("cache == 'none'", &[("cache", "none")]);
        check(
            "cache!=\"none\" and 'x y'==aio",
            &[("cache", "none"), ("aio", "x y")],
        );
        check(
            "cache in ['a', 'b'] or c not in ('d')",
            &[("cache", "a"), ("cache", "b"), ("c", "d")],
        );
        check("load.jobs == '4'", &[("load.jobs", "4")]);
        check("'a' == cache | upper", &[]);
        check("cache == 'a' ~ 'b'", &[]);
        check("jobs == 4 and 'x' in cache", &[]);
        check(r"cache == 'it\'s", &[]);
        check("cache == 'žluť'", &[("cache", "žluť")]);
        check("cache == '", &[("cache", "")]);
    }
}
