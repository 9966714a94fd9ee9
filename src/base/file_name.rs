//! Names of matrices, cells and versions as names of files.

use std::fmt::Write as _;

use super::key::Key;

/// Longest name that is made; most file systems allow 255 bytes.
const BYTES_MAX: usize = 200;

/// One name of a file for any text, another one for another text. Letters, digits and `-_=+,:@.~` stay as they are,
/// other bytes become `%2f`; so nothing that somebody writes leaves its folder, hides or means the folder itself.
/// A long one is cut and ends with a hash.
pub fn file_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_=+,:@.~".contains(&byte);
        match is_plain && !(at == 0 && b".-~".contains(&byte)) {
            true => name.push(char::from(byte)),
            false => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    if name.is_empty() {
        name.push('%');
    }
    if name.len() > BYTES_MAX {
        let hash = Key::of(text.as_bytes()).to_string();
        name.truncate(BYTES_MAX - hash.len() - 2);
        // Not the form of a name that was not cut: there two digits follow each `%`.
        let _ = write!(name, "%-{hash}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    #[test]
    fn a_name_is_one_part_of_a_path() {
        let check = |text: &str, expected: &str| assert_eq!(file_name(text), expected);
        check("qemu-block", "qemu-block");
        check("cc=gcc-12,opt=-O2", "cc=gcc-12,opt=-O2");
        check("../../x", "%2e.%2f..%2fx");
        check("/etc", "%2fetc");
        check("..", "%2e.");
        check("", "%");
        check("a\0b", "a%00b");
        check("50%", "50%25");
        check("é", "%c3%a9");
    }

    proptest::proptest! {
        #[test]
        fn no_text_leaves_its_folder(text in ".*|[./]{0,9}", other in ".*") {
            let name = file_name(&text);
            let path = Path::new(&name);
            let parts: Vec<Component> = path.components().collect();
            proptest::prop_assert!(matches!(parts[..], [Component::Normal(part)] if part == path));
            proptest::prop_assert!(name.len() <= BYTES_MAX);
            proptest::prop_assert_eq!(name == file_name(&other), text == other);
        }
    }

    #[test]
    fn long_names_that_differ_stay_different() {
        let long = "x".repeat(1000);
        let [one, other] = ["a", "b"].map(|end| file_name(&format!("{long}{end}")));
        assert!(one != other && one.len() <= BYTES_MAX);
    }
}
