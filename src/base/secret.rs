//! Passwords and tokens in addresses, which nothing that is shown or stored may hold.

use std::borrow::Cow;

/// What stands for a secret.
const MASK: &str = "***";

/// Parameters of an address that hold secrets, as GitLab, GitHub and others call them.
const PARAMETERS: [&str; 7] = [
    "access_token",
    "api_key",
    "auth",
    "job_token",
    "password",
    "private_token",
    "token",
];

/// The text with `***` for each password or token in an address: `https://me:***@host/x`, `https://***@host/x`,
/// `https://host/x?token=***`. A name alone is a secret with `http` and `https` (a token), none with `ssh`.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let is_web = before.ends_with("http://") || before.ends_with("https://");
        let ends_address = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>".contains(c);
        let address = &after[..after.find(ends_address).unwrap_or(after.len())];
        let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let mut shown_from = 0;
        if let Some(at) = address[..host_end].rfind('@') {
            match address[..at].split_once(':') {
                Some((name, _)) => {
                    masked.push_str(name);
                    masked.push(':');
                    masked.push_str(MASK);
                    shown_from = at;
                }
                None if is_web && at > 0 => {
                    masked.push_str(MASK);
                    shown_from = at;
                }
                None => {}
            }
        }
        mask_parameters(&address[shown_from..], &mut masked);
        rest = &after[address.len()..];
    }
    masked.push_str(rest);
    Cow::Owned(masked)
}

fn mask_parameters(address: &str, masked: &mut String) {
    let Some(query) = address.find('?') else {
        return masked.push_str(address);
    };
    masked.push_str(&address[..=query]);
    for (i, parameter) in address[query + 1..].split('&').enumerate() {
        if i > 0 {
            masked.push('&');
        }
        match parameter.split_once('=') {
            Some((name, _)) if PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) => {
                masked.push_str(name);
                masked.push('=');
                masked.push_str(MASK);
            }
            _ => masked.push_str(parameter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_addresses_are_masked() {
        let check = |text: &str, expected: &str| assert_eq!(mask_secrets(text), expected);
        check("a:b@c", "a:b@c");
        check("https://host/x", "https://host/x");
        check("https://me:secret@host/x", "https://me:***@host/x");
        check("https://me:se@cr:et@host/x", "https://me:***@host/x");
        check("https://token@host/x", "https://***@host/x");
        check("ssh://git@host/x", "ssh://git@host/x");
        check("ssh://git:secret@host/x", "ssh://git:***@host/x");
        check("https://host/a@b:c", "https://host/a@b:c");
        check(
            "--repo=https://me:a@h/x --against 'https://me:b@h' end",
            "--repo=https://me:***@h/x --against 'https://me:***@h' end",
        );
        check(
            "https://h/x?a=1&private_token=abc&b=2",
            "https://h/x?a=1&private_token=***&b=2",
        );
        check("\"https://u:p@h\",\"x@y\"", "\"https://u:***@h\",\"x@y\"");
        check("://", "://");
        check("https://@h", "https://@h");
    }
}
