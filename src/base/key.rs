//! The key: the content hash of all that a step's result depends on.

use std::cmp::Ordering;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 128 bits of BLAKE3: at 10^9 keys the chance of any two colliding is below 10^-20.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key(pub [u8; 16]);

/// By bytes, as the database orders them; compared as numbers, which is faster.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub fn of(bytes: &[u8]) -> Key {
        KeyHasher::new("bytes").bytes(bytes).finish()
    }

    /// The key written as 32 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Key> {
        if hex.len() != 32 || !hex.is_ascii() {
            return None;
        }
        let mut bytes = [0u8; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Key(bytes))
    }

    /// The first eight digits: enough for a person.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

/// Hexadecimal in texts such as JSON, the bytes elsewhere.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_str(self),
            false => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Key);
        }
        let hex = String::deserialize(deserializer)?;
        Key::parse(&hex).ok_or_else(|| D::Error::custom("a key has 32 hexadecimal digits"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Hashes fields so that no two different lists of fields give the same bytes: each is
/// preceded by its length.
pub struct KeyHasher(blake3::Hasher);

impl KeyHasher {
    /// `what` names the kind of thing that is hashed, so that kinds never collide.
    pub fn new(what: &str) -> Self {
        let mut hasher = KeyHasher(blake3::Hasher::new());
        hasher.bytes(what.as_bytes());
        hasher
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    pub fn str(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// A key is of fixed length and needs no prefix.
    pub fn key(&mut self, key: Key) -> &mut Self {
        self.0.update(&key.0);
        self
    }

    pub fn finish(&self) -> Key {
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        Key(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_together() {
        let ab_c = KeyHasher::new("t").str("ab").str("c").finish();
        let a_bc = KeyHasher::new("t").str("a").str("bc").finish();
        assert_ne!(ab_c, a_bc);
    }

    #[test]
    fn a_key_parses_back() {
        let key = Key::of(b"x");
        assert_eq!(Key::parse(&key.to_string()), Some(key));
        assert_eq!(Key::parse("xyz"), None);
        assert_eq!(Key::parse(&"g".repeat(32)), None);
    }
}
