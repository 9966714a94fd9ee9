//! What a second `matrix run` measures: what is new, and in which order steps come.

use super::lab::{Lab, Ran, repeated};

/// `sizes` as TOML, `line` prints the sample.
fn sizes(sizes: &str, repeat: &str, line: &str) -> String {
    let axes = format!("[axes]\nsize = {sizes}\n[[compare]]\naxis = \"size\"\n");
    axes + &repeated(repeat, line)
}

#[test]
fn only_what_is_new_is_measured() {
    let lab = Lab::new(&sizes("[1, 2]", "3", "echo v={{ size }} w=7"));
    let first = lab.run();
    first.assert_code(0);
    assert_eq!(first.measured().len(), 6);
    let verdict = &first.document["verdicts"][0];
    // Equal values of three repetitions may be a coincidence.
    assert_eq!(verdict["verdict"], "inconclusive", "{verdict}");
    assert_eq!(verdict["ratio"], 2.0, "{verdict}");
    assert_eq!(first.document["format"], 2);

    let second = lab.run();
    second.assert_code(0);
    assert_eq!(second.events, Vec::<serde_json::Value>::new());
    assert_eq!(second.document, first.document);
    let check = |ran: &Ran, what: &str| assert!(ran.stderr.contains(what), "{}", ran.stderr);
    check(&second, "nothing to do: all 2 cells are stored");
    let one = ["--only", "size == 1"];
    let one = lab.start_with("matrix.toml", "events", &one).wait();
    check(&one, "nothing to do: the cell is stored");

    lab.write(&sizes("[1, 2, 3]", "3", "echo v={{ size }} w=7"));
    let wider = lab.run();
    wider.assert_code(0);
    assert_eq!(wider.cells(), ["size=3"]);
    assert_eq!(wider.measured().len(), 3);

    // A word that only one cell's command has.
    let line = "echo v={{ 20 if size == 2 else size }} w=7";
    lab.write(&sizes("[1, 2, 3]", "3", line));
    let changed = lab.run();
    changed.assert_code(0);
    assert_eq!(changed.cells(), ["size=2"]);
    assert_eq!(changed.measured().len(), 3);
    lab.assert_clean();
}

#[test]
fn a_metric_that_the_parser_gave_already_needs_no_rerun() {
    let lab = Lab::new(&sizes("[1, 2]", "3", "echo v={{ size }} w=7"));
    lab.run().assert_code(0);
    let more = "[metrics.w]\nbetter = \"lower\"";
    lab.write(&(sizes("[1, 2]", "3", "echo v={{ size }} w=7") + more));
    let again = lab.run();
    again.assert_code(0);
    assert_eq!(again.measured(), []);
    let cells = again.document["cells"].as_array().unwrap();
    let values: Vec<_> = cells.iter().filter(|cell| cell["metric"] == "w").collect();
    assert_eq!(values.len(), 2, "{}", again.document);
    assert!(
        values
            .iter()
            .all(|cell| cell["n"] == 3 && cell["better"] == "lower")
    );
}

#[test]
fn scopes_in_order() {
    let setup = |name: &str, scope: &str| {
        format!(
            r#"
            [[setup]]
            name = "{name}"
            run  = [["sh", "-c", "echo {name} >> $TMPDIR/log"]]
            undo = [["sh", "-c", "echo /{name} >> $TMPDIR/log"]]
            scope = "{scope}"
            "#
        )
    };
    let setups = setup("s", "session") + &setup("r", "round") + &setup("x", "run");
    let line = "echo m >> $TMPDIR/log; echo v={{ size }}";
    let lab = Lab::new(&(setups + &sizes("[1, 2]", "2", line)));
    lab.run().assert_code(0);
    let round = "r x m /x x m /x /r";
    assert_eq!(lab.log().join(" "), format!("s {round} {round} /s"));
    lab.assert_clean();
}

#[test]
fn repeats_until_the_interval_is_tight() {
    // `wide` alternates between 100 and 200.
    let line = "case {{ kind }} in steady) echo v=100;; wide) echo v=$((100 + {{ round }} % 2 * 100));; esac";
    let matrix = |max: u32| {
        let rule = format!(r#"{{ min = 4, max = {max}, until = "ci95 < 5%" }}"#);
        "[axes]\nkind = [\"steady\", \"wide\"]\n".to_owned() + &repeated(&rule, line)
    };
    let lab = Lab::new(&matrix(7));
    let ran = lab.run();
    ran.assert_code(0);
    let rounds = |ran: &Ran, cell: &str| {
        let of_cell = ran.measured().into_iter().filter(|(name, _)| name == cell);
        of_cell.map(|(_, round)| round).collect::<Vec<_>>()
    };
    assert_eq!(rounds(&ran, "kind=steady"), [0, 1, 2, 3]);
    assert_eq!(rounds(&ran, "kind=wide"), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(lab.run().measured(), []);

    // A stricter rule goes on where it stopped; one that is met measures nothing.
    lab.write(&matrix(9));
    let more = lab.run();
    assert_eq!(rounds(&more, "kind=steady").len(), 0);
    assert_eq!(rounds(&more, "kind=wide"), [7, 8]);
}
