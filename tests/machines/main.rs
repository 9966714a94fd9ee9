//! Machines over ssh: namespaces with their own sshd, home, locks and identity.

mod hostile;
mod lost;
mod machines;
mod together;
mod verbs;
