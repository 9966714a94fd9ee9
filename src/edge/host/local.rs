//! Owns the local host: processes, files and the lock of the machine that `matrix` runs on.
//! Does not know what a step is for.
