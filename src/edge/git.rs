//! Owns git repositories: revisions, trees, patches, checkouts.
//! Does not know what is planned.
