//! Times as they are printed.

/// Milliseconds since 1970 as ISO 8601, UTC, to the second.
pub fn time(ms: i64) -> String {
    let at = jiff::Timestamp::from_second(ms.div_euclid(1000));
    at.map_or_else(|_| ms.to_string(), |at| at.to_string())
}
