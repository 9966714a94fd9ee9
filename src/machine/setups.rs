//! Undoing set-ups that are in a machine's journal.

use super::host::undo::{NotedSetup, UndoOp, UndoReply, UndoStep};
use super::host::{Cancel, Command, FileOp, Host, HostError, HostErrorKind, file};
use crate::base::sample::Ended;
use crate::plan::commands::show_words;

/// What an undo command may print.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// What is told of it.
const TOLD_BYTES_MAX: usize = 400;

/// What came of undoing what dead runs have left on a machine: a line about each set-up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UndoneSetups {
    pub put_away: Vec<String>,
    /// They stay in the journal.
    pub left: Vec<String>,
}

/// The set-ups in a machine's journal, the latest first.
pub async fn noted(host: &dyn Host) -> Result<Vec<NotedSetup>, HostError> {
    match host.undo(UndoOp::List).await? {
        UndoReply::Setups(setups) => Ok(setups),
        _ => Err(HostError::new(
            HostErrorKind::Other,
            "the journal of set-ups gave another answer than a list",
        )),
    }
}

/// Undoes all that is in a machine's journal. The caller has the machine's lock, and ended the processes that dead runs
/// had left.
pub async fn undo_all(host: &dyn Host) -> Result<UndoneSetups, HostError> {
    let mut undone = UndoneSetups::default();
    for setup in noted(host).await? {
        let dir = setup.undo.dir.clone();
        let of = format!("set-up `{}` of `{}`", setup.undo.setup, setup.undo.matrix);
        match undo(host, setup).await {
            Ok(()) => undone.put_away.push(format!("set-up in {dir}")),
            Err(reason) => undone.left.push(format!("{of} in {dir}: {reason}")),
        }
    }
    Ok(undone)
}

/// Takes all out of a machine's journal, undone or not. The caller has the machine's lock.
pub async fn forget_all(host: &dyn Host) -> Result<(), HostError> {
    for setup in noted(host).await? {
        host.undo(UndoOp::End(setup.id)).await?;
    }
    Ok(())
}

/// Undoes one set-up: its commands, even if one fails, then its folder. Err says what is left; the entry stays then.
///
/// A command that fails leaves something behind where all of the set-up was made and the command has not begun before.
/// Else it may have nothing to undo: what counts then is that the folder can be removed, in which nothing may be
/// mounted.
pub async fn undo(host: &dyn Host, setup: NotedSetup) -> Result<(), String> {
    let id = setup.id;
    let mut reasons = Vec::new();
    let dir = || (&setup.undo.dir).into();
    let is_there = file(host, FileOp::List { path: dir() }).await.is_ok();
    // Without its folder nothing had been done yet, or all of it is undone.
    let is_begun = is_there || setup.is_made();
    if is_begun && !is_there && !setup.undo.commands.is_empty() {
        // Somebody has removed it: the commands still need a place to run in.
        let made = file(host, FileOp::MakeDir { path: dir() }).await;
        reasons.extend(made.err().map(|error| error.message));
    }
    let commands = setup.undo.commands.iter().enumerate();
    for (number, argv) in commands.filter(|_| is_begun) {
        let before = setup.last_of(number);
        if matches!(before, Some(UndoStep::Undone(_))) {
            continue;
        }
        // Without this note nobody could tell later whether it had anything to undo.
        if let Err(error) = note(host, &setup, UndoStep::Undoing(number)).await {
            reasons.push(error.message);
            continue;
        }
        let Err((reason, has_ended)) = run(host, &setup, argv).await else {
            let _ = note(host, &setup, UndoStep::Undone(number)).await;
            continue;
        };
        let is_in_doubt = !is_there || matches!(before, Some(UndoStep::Undoing(_)));
        // What was in doubt stays so.
        let must_succeed = setup.is_made() && setup.is_of_this_boot && !is_in_doubt;
        if has_ended && must_succeed {
            let _ = note(host, &setup, UndoStep::Failed(number)).await;
        }
        if must_succeed || !has_ended {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        let removed = file(host, FileOp::Remove { path: dir() }).await;
        reasons.extend(removed.err().map(|error| error.message));
    }
    if reasons.is_empty() {
        let ended = host.undo(UndoOp::End(id)).await;
        reasons.extend(ended.err().map(|error| error.message));
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(reasons.join("; ")),
    }
}

async fn note(host: &dyn Host, setup: &NotedSetup, step: UndoStep) -> Result<(), HostError> {
    host.undo(UndoOp::Note(setup.id, step)).await.map(|_| ())
}

/// Err: why it failed, and whether it ran to its end.
async fn run(host: &dyn Host, setup: &NotedSetup, argv: &[String]) -> Result<(), (String, bool)> {
    let command = Command {
        argv: argv.to_vec(),
        dir: (&setup.undo.dir).into(),
        env: setup.undo.env.clone(),
        stdin: Vec::new(),
        timeout: setup.undo.timeout,
        output_bytes_max: OUTPUT_BYTES_MAX,
    };
    let output = match host.run(command, Cancel::never()).await {
        Ok(output) if output.ended.is_success() => return Ok(()),
        Ok(output) => output,
        Err(error) => return Err((error.message, false)),
    };
    let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    let line = said.iter().find_map(|text| {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.next_back()
    });
    let line = line.map(|line| {
        format!(
            ": {}",
            line.chars().take(TOLD_BYTES_MAX).collect::<String>()
        )
    });
    let line = line.unwrap_or_default();
    let reason = format!("`{}`: {}{line}", show_words(argv), output.ended);
    Err((reason, output.ended != Ended::Interrupted))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::machine::host::Output;
    use crate::machine::host::fake::{FakeHost, printed};
    use crate::machine::host::undo::{SetupUndo, UndoId};

    /// Commands that fail end with 1, `gone` is answered by nobody.
    fn host(failing: &Rc<RefCell<Vec<&'static str>>>) -> FakeHost {
        let failing = failing.clone();
        FakeHost::new("h", move |command| {
            let word = command.argv[0].as_str();
            if word == "gone" {
                return Err(HostError::new(HostErrorKind::Other, "no answer"));
            }
            let is_bad = failing.borrow().contains(&word);
            let ended = Ended::Exit(i32::from(is_bad));
            Ok(Output {
                ended,
                ..printed("")
            })
        })
    }

    async fn begin(host: &FakeHost, commands: &[&str], is_made: bool) -> UndoId {
        let undo = SetupUndo {
            matrix: "m".to_owned(),
            setup: "s".to_owned(),
            dir: "/work/s".to_owned(),
            commands: commands.iter().map(|it| vec![(*it).to_owned()]).collect(),
            env: Vec::new(),
            timeout: Duration::from_secs(1),
        };
        let made = file(
            host,
            FileOp::MakeDir {
                path: "/work/s".into(),
            },
        );
        made.await.unwrap();
        let Ok(UndoReply::Begun(id)) = host.undo(UndoOp::Begin(undo)).await else {
            panic!("no entry");
        };
        if is_made {
            host.undo(UndoOp::Note(id, UndoStep::Made)).await.unwrap();
        }
        id
    }

    fn runs(host: &FakeHost) -> Vec<String> {
        let log = host.log().into_iter();
        log.filter_map(|line| Some(line.strip_prefix("run ")?.to_owned()))
            .collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_left_stays_until_it_can_be_undone() {
        let failing = Rc::new(RefCell::new(vec!["b"]));
        let host = host(&failing);
        begin(&host, &["a", "b", "c"], true).await;
        for _ in 0..2 {
            let undone = undo_all(&host).await.unwrap();
            assert_eq!(undone.put_away, Vec::<String>::new());
            assert_eq!(
                undone.left,
                ["set-up `s` of `m` in /work/s: `b`: exit status 1"]
            );
        }
        failing.borrow_mut().clear();
        let undone = undo_all(&host).await.unwrap();
        assert_eq!(undone.put_away, ["set-up in /work/s"]);
        // What ended well is not done twice.
        assert_eq!(runs(&host), ["a", "b", "c", "b", "b"]);
        assert_eq!(noted(&host).await, Ok(vec![]));
    }

    /// Half made, in doubt after a lost answer, or of an earlier boot: then the folder tells.
    #[tokio::test(flavor = "current_thread")]
    async fn what_may_have_nothing_to_undo_is_told_by_its_folder() {
        let failing = Rc::new(RefCell::new(vec!["a"]));
        let undone = async |commands: &[&str], is_made: bool, steps: &[UndoStep], mount: bool| {
            let host = host(&failing);
            let id = begin(&host, commands, is_made).await;
            for step in steps {
                host.undo(UndoOp::Note(id, *step)).await.unwrap();
            }
            host.mount("/work/s/m".as_ref(), mount);
            undo_all(&host).await.unwrap()
        };
        assert_eq!(undone(&["a"], false, &[], false).await.put_away.len(), 1);
        let left = undone(&["a"], false, &[], true).await.left;
        assert!(left[0].contains("busy"), "{left:?}");
        assert_eq!(undone(&["a"], true, &[], false).await.left.len(), 1);
        let in_doubt = [UndoStep::Undoing(0)];
        assert_eq!(
            undone(&["a"], true, &in_doubt, false).await.put_away.len(),
            1
        );
        let failed = [UndoStep::Undoing(0), UndoStep::Failed(0)];
        assert_eq!(undone(&["a"], true, &failed, false).await.left.len(), 1);
        // Nobody knows what came of it.
        assert_eq!(undone(&["gone"], false, &[], false).await.left.len(), 1);
    }
}
