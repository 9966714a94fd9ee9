//! The inputs of steps as a person would read them: those of now, and those of earlier sessions.

use std::collections::HashMap;

/// `(projection, name)` → value; a projection is the part of a cell's name that the input depends on.
pub type InputTexts = HashMap<(String, String), String>;

/// `(projection, name)` → values, ascending by session.
pub type OldInputs = HashMap<(String, String), Vec<OldValue>>;

/// A value that an input had in some sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldValue {
    /// The session in which it was first seen.
    pub since: i64,
    /// The session in which it was replaced; None: it is the latest.
    pub ended: Option<i64>,
    pub value: String,
}

/// The value of a session; None: the latest.
pub fn value_in(values: &[OldValue], session: Option<i64>) -> Option<&str> {
    let holds = |value: &&OldValue| match session {
        Some(session) => value.since <= session && value.ended.is_none_or(|ended| session < ended),
        None => value.ended.is_none(),
    };
    values.iter().find(holds).map(|value| value.value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_session_that_ends_it() {
        let value = |since, ended, value: &str| OldValue {
            since,
            ended,
            value: value.to_owned(),
        };
        let values = [
            value(2, Some(4), "a"),
            value(4, Some(5), "b"),
            value(7, None, "c"),
        ];
        let check = |session, expected| assert_eq!(value_in(&values, session), expected);
        check(Some(1), None);
        check(Some(2), Some("a"));
        check(Some(3), Some("a"));
        check(Some(4), Some("b"));
        check(Some(5), None);
        check(Some(9), Some("c"));
        check(None, Some("c"));
        assert_eq!(value_in(&values[..2], None), None);
    }
}
