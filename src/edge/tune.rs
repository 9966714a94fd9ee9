//! Owns applying a profile to a host and putting it back.
//! Does not know what is planned.
