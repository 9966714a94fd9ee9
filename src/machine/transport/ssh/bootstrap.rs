//! What a machine's shell is told to do until an agent serves there, and what it says meanwhile.

use super::OwnProgram;
use crate::config::ssh::SshTarget;

/// Begins each line that is ours: a login shell may print others.
const MARK: &str = "matrix-bootstrap ";
/// The only system that `matrix` runs on, as uname(1) says it.
const SYSTEM: &str = "Linux";

/// From a POSIX shell to an agent.
pub struct Bootstrap<'a> {
    pub target: &'a SshTarget,
    /// None where the machine has one.
    pub program: Option<&'a OwnProgram>,
    /// The agent's arguments.
    pub arguments: &'a str,
}

impl Bootstrap<'_> {
    /// The script. It stands in braces: a shell may read its input in blocks, and must have all of the script before
    /// what it starts reads the same input.
    pub fn text(&self) -> String {
        let (digest, bytes) = match self.program {
            Some(program) => (program.digest.to_string(), program.bytes),
            None => (String::new(), 0),
        };
        let [agent, state] = [&self.target.agent, &self.target.state]
            .map(|path| quote(path.as_deref().unwrap_or("")));
        SCRIPT
            .replace("@MARK@", MARK)
            .replace("@AGENT@", &agent)
            .replace("@STATE@", &state)
            .replace("@DIGEST@", &digest)
            .replace("@BYTES@", &bytes.to_string())
            .replace("@ARGUMENTS@", self.arguments)
    }
}

/// Copies are named by content. One that nobody has used for a month is removed.
const SCRIPT: &str = r#"{
say() { printf '\n@MARK@%s\n' "$*"; }
fail() { say "failed $*"; exit 1; }
say "machine $(uname -s) $(uname -m)"
program=@AGENT@
state=@STATE@
folder=$state
if [ -z "$state" ]; then
    [ -n "$HOME" ] || [ -n "$XDG_CACHE_HOME" ] || fail 'there is no HOME on it: say where builds are kept, `state = "/PATH"`'
    folder="${XDG_CACHE_HOME:-$HOME/.cache}/matrix"
    state="$folder/state"
fi
if [ -n "$program" ]; then
    [ -f "$program" ] && [ -x "$program" ] || fail "it has no program \`$program\` (\`agent\` in its table)"
else
    program="$folder/agent/matrix-@DIGEST@"
    if [ ! -x "$program" ]; then
        new="$program.$$"
        why=$( (umask 077; LC_ALL=C mkdir -p "$folder/agent" && : > "$new") 2>&1) ||
            fail "the program cannot be copied to it: $why: \`state = \"/PATH\"\` names another folder"
        say wanted
        why=$( (umask 077; LC_ALL=C head -c @BYTES@ > "$new") 2>&1)
        [ $(($(wc -c < "$new"))) -eq @BYTES@ ] && chmod 700 "$new" && mv -f "$new" "$program" || {
            rm -f "$new"
            fail "the program cannot be copied to it: ${why:-it came in part}: \`state = \"/PATH\"\` names another folder"
        }
    fi
    touch "$program" 2>/dev/null
    find "$folder/agent" -name 'matrix-*' -mtime +30 -exec rm -f {} + 2>/dev/null
fi
say found
MATRIX_STATE=$state
export MATRIX_STATE
exec "$program" agent @ARGUMENTS@
}
"#;

/// One word for a POSIX shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What the script says.
#[derive(Debug, PartialEq, Eq)]
pub enum ShellSays {
    /// As uname(1) calls them.
    Machine {
        system: String,
        processor: String,
    },
    /// The program is to be sent.
    Wanted,
    /// The agent is started next.
    Found,
    Failed(String),
}

impl ShellSays {
    /// None for a line that is not the script's.
    pub fn parse(line: &str) -> Option<ShellSays> {
        let line = line.strip_prefix(MARK)?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "machine" => {
                let (system, processor) = rest.split_once(' ')?;
                ShellSays::Machine {
                    system: system.to_owned(),
                    processor: processor.to_owned(),
                }
            }
            "wanted" => ShellSays::Wanted,
            "found" => ShellSays::Found,
            "failed" => ShellSays::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

/// Err where this program cannot run on such a machine.
pub fn check_machine(system: &str, processor: &str) -> Result<(), String> {
    let own = std::env::consts::ARCH;
    match (system, processor) {
        (SYSTEM, processor) if processor == own => Ok(()),
        (SYSTEM, processor) => Err(format!(
            "it is {processor}, and this program is for {own}: build `matrix` for it, put it there, and name it with \
             `agent = \"/PATH\"` in its table"
        )),
        (system, _) => Err(format!("it runs {system}: `matrix` measures on Linux only")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |line: &str, expected| assert_eq!(ShellSays::parse(line), expected, "{line}");
        let machine = ShellSays::Machine {
            system: "Linux".to_owned(),
            processor: "x86_64".to_owned(),
        };
        check("matrix-bootstrap machine Linux x86_64", Some(machine));
        check("matrix-bootstrap wanted", Some(ShellSays::Wanted));
        check("matrix-bootstrap found", Some(ShellSays::Found));
        let failed = ShellSays::Failed("no room: really".to_owned());
        check("matrix-bootstrap failed no room: really", Some(failed));
        check("matrix-bootstrap machine", None);
        check("Welcome to lab1", None);
        check("", None);
    }

    #[test]
    fn other_machines_are_refused_with_a_remedy() {
        assert_eq!(check_machine("Linux", std::env::consts::ARCH), Ok(()));
        let error = check_machine("Linux", "riscv64").unwrap_err();
        assert!(error.contains("it is riscv64"), "{error}");
        assert!(error.contains("agent = \"/PATH\""), "{error}");
        let error = check_machine("FreeBSD", "amd64").unwrap_err();
        assert!(error.starts_with("it runs FreeBSD"), "{error}");
    }

    #[test]
    fn paths_are_one_word() {
        assert_eq!(quote("/a b/c'd"), r"'/a b/c'\''d'");
    }
}
