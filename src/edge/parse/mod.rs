//! Owns the parsers: a program's output to readings, or a refusal with the reason.
//! Does not know what the readings are used for. Touches no file: bytes come in.
