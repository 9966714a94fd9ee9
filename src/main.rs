//! The way into the program: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    matrix::cli::main()
}
