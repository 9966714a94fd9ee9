//! Owns the way into the program: arguments in, exit code out.
//! Does not know what a verb does.

fn main() -> std::process::ExitCode {
    matrix::cli::main()
}
