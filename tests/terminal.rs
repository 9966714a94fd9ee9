//! What a terminal is given: control characters of others are shown, never sent, in every verb and format.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;

use lab::Lab;

/// Escape sequences wherever a matrix or a program can put text. TOML writes them as `\u001b`.
const HOSTILE: &str = r#"
about = "\u001b]0;title\u0007about"
[machines.x]
via = "local"
[axes]
machine = ["x"]
word = ["a", "b"]
side = ["l", "r"]
[[exclude]]
when = "word == 'b' and side == 'r'"
reason = "\u001b[31mreason\u202e"
[run]
command = ["sh", "-c", '''
: {{ side }}
if [ {{ word }} = b ]; then printf 'error: \033[2J\033]0;gone\007 \033[31m\n' >&2; exit 1; fi
printf 'v=1.{{ round }}\n\033[8mhidden\r\n'
printf 'note \302\233 \377' >&2
''']
parser = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
repeat = 3
[metrics.v]
better = "higher"
unit = "\u001b[5mu\u009b"
[[compare]]
axis = "side"
"#;

/// The first character that would act on a terminal; colours are allowed where there are any.
fn acting(text: &str, color: bool) -> Option<String> {
    let colours = regex::Regex::new("\x1b\\[(0|1|2|33|1;3[12]|3[0-9]|9[0-9]|[0-9;]+)m").unwrap();
    let plain = match color {
        true => colours.replace_all(text, "").into_owned(),
        false => text.to_owned(),
    };
    let acts =
        |c: char| (c.is_control() && !"\n\t".contains(c)) || ('\u{202a}'..='\u{2069}').contains(&c);
    let at = plain.find(acts)?;
    Some(
        plain[at..]
            .chars()
            .take(40)
            .collect::<String>()
            .escape_debug()
            .to_string(),
    )
}

const VERBS: [&[&str]; 12] = [
    &["plan", "matrix.toml"],
    &["plan", "matrix.toml", "--json", "--why"],
    &["plan", "matrix.toml", "--format", "dot"],
    &["run", "matrix.toml"],
    &["compare", "matrix.toml"],
    &["compare", "matrix.toml", "--json"],
    &["compare", "matrix.toml", "--format", "markdown"],
    &["explain", "matrix.toml", "word=b,side=r"],
    &["history", "matrix.toml"],
    &["log", "matrix.toml", "word=a,side=l"],
    &["log", "matrix.toml", "word=b,side=l"],
    &["plan", "matrix.toml", "--only", "\u{1b}[31m == '\u{7}'"],
];

#[test]
fn control_characters_are_shown_and_not_sent() {
    let lab = Lab::new(HOSTILE);
    for verb in VERBS {
        let output = lab.matrix(verb).output().unwrap();
        for stream in [&output.stdout, &output.stderr] {
            let text = std::str::from_utf8(stream).unwrap();
            assert_eq!(acting(text, false), None, "{verb:?}");
        }
    }
    let log = lab.matrix(VERBS[9]).output().unwrap();
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("\\x1b[8mhidden\\r"), "{log}");
    assert!(log.contains("note \\u{9b} \\xff"), "{log}");
    let compared = lab.matrix(VERBS[4]).output().unwrap();
    let compared = String::from_utf8(compared.stdout).unwrap();
    assert!(compared.contains("\\x1b[5mu\\u{9b}"), "{compared}");
}

/// With a terminal there are colours, which are ours alone.
#[test]
fn on_a_terminal_only_colours_are_sent() {
    lab::need("script", "bsdutils");
    let lab = Lab::new(HOSTILE);
    assert_eq!(lab.run().code, Some(3));
    for verb in VERBS.iter().filter(|verb| verb[0] != "run") {
        let words: Vec<&str> = [&[env!("CARGO_BIN_EXE_matrix")], *verb].concat();
        let line = shlex::try_join(words).unwrap();
        let output = lab
            .matrix(&[])
            .get_current_dir()
            .map(|folder| {
                std::process::Command::new("script")
                    .args(["-qec", &format!("stty cols 120; {line}"), "/dev/null"])
                    .current_dir(folder)
                    .env("MATRIX_LOCK", lab.path("lock"))
                    .env("TERM", "xterm")
                    .stdin(std::process::Stdio::null())
                    .output()
                    .unwrap()
            })
            .unwrap();
        // The terminal itself ends lines so.
        let text = String::from_utf8(output.stdout)
            .unwrap()
            .replace("\r\n", "\n");
        assert_eq!(acting(&text, true), None, "{verb:?}");
        assert!(
            !text.contains("\x1b[5m") && !text.contains("\x1b[8m"),
            "{verb:?}: {text:?}"
        );
    }
}

#[test]
fn the_log_of_each_round_is_shown() {
    let lab = Lab::new(&lab::repeated("3", "echo v=1 round {{ round }}"));
    lab.run();
    let log = |round: &str| {
        let output = lab
            .matrix(&["log", "matrix.toml", "machine=local", "--round", round])
            .output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    for round in ["0", "1", "2"] {
        let (code, text) = log(round);
        assert!(
            code == Some(0) && text.contains(&format!("v=1 round {round}\n")),
            "{text}"
        );
    }
    let (code, text) = log("3");
    assert!(
        code == Some(4) && text.contains("3 rounds stored, from round 0 on"),
        "{text}"
    );
}
