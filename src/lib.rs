//! Plans, runs and judges performance test matrices.
//! `docs/architecture.md` shows how the layers stand to each other.

pub mod words;
