//! Owns the store: samples, attempts, logs under .matrix.
//! Does not know what is planned.
