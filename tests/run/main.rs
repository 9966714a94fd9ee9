//! End-to-end tests of `matrix run`: real programs, a matrix of each test's own, a real store.

mod agent;
mod choices;
mod crash;
mod failures;
mod hooks;
mod interrupts;
mod lab;
mod processes;
mod reruns;
mod sharing;
mod slots;
mod state;
mod surroundings;
mod writing;
