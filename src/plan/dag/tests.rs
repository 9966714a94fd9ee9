//! The tests of the plan: which cells share a step, and which edits change which keys.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::decode::tests::read;
use crate::plan::commands::Places;
use crate::plan::steps::NoDigests;

const MATRIX: &str = r#"
    [matrix]
    name = "m"
    [subject]
    installed = ["qemu-nbd"]
    [machines.here]
    via = "null"
    [axes]
    cache = ["none", "writeback"]
    bs    = ["4k", "64k"]
    [axes.derived]
    size = "'1M' if bs == '4k' else '2M'"
    [[setup]]
    name = "image"
    run  = ["truncate -s 1G {{ dir }}/disk.img"]
    [[setup]]
    name    = "nbd"
    service = ["{{ bin }}/qemu-nbd", "-t", "{{ cache }}", "{{ image.dir }}/disk.img"]
    ready   = "qemu-img info {{ dir }}"
    undo    = ["sync"]
    [run]
    command = "fio --bs={{ bs }} --size={{ size }} --uri={{ nbd.dir }}"
    parser  = "fio"
    [metrics.iops]
    [[compare]]
    axis = "cache"
"#;

/// The key of each cell's run step.
fn keys(text: &str) -> BTreeMap<String, Key> {
    keys_with(text, &NoDigests)
}

fn keys_with(text: &str, digests: &dyn Digests) -> BTreeMap<String, Key> {
    let matrix = read(text);
    let plan = plan(&matrix, &CellChoice::default(), digests).unwrap();
    let step = |cell: usize| plan.key_of(cell as u32);
    let cells = plan.cells.iter().enumerate();
    cells
        .map(|(index, cell)| (plan.cells.name(cell), step(index)))
        .collect()
}

/// The matrix with one text in the place of another, which must be there once.
fn edited(from: &str, to: &str) -> String {
    assert_eq!(MATRIX.matches(from).count(), 1, "{from}");
    MATRIX.replace(from, to)
}

/// The cells that must be measured again after an edit.
fn rerun(from: &str, to: &str) -> Vec<String> {
    let before: BTreeSet<Key> = keys(MATRIX).into_values().collect();
    let after = keys(&edited(from, to)).into_iter();
    after
        .filter(|(_, key)| !before.contains(key))
        .map(|(name, _)| name)
        .collect()
}

const ALL: [&str; 4] = [
    "cache=none,bs=4k",
    "cache=none,bs=64k",
    "cache=writeback,bs=4k",
    "cache=writeback,bs=64k",
];

/// How many steps each set-up has.
fn setups_of(plan: &Plan) -> Vec<usize> {
    let setups = plan.steps.setups.iter();
    setups.map(|setup| setup.steps.len()).collect()
}

/// The matrix with a subject that can be built, and a rule about its sources.
fn with_rule() -> String {
    let subject = edited(
        "installed = [\"qemu-nbd\"]",
        "installed = [\"qemu-nbd\"]\n[subject.git]\nrepo = \"x\"",
    );
    subject + "\n[[affects]]\npaths = [\"a.c\"]\nwhen = \"bs == '4k'\"\n[build]\nrun = [\"make\"]\n"
}

#[test]
fn cells_share_the_steps_whose_axes_they_agree_on() {
    let matrix = read(MATRIX);
    let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    assert_eq!((setups_of(&plan), plan.steps.runs.len()), (vec![1, 2], 4));
    let steps = |setup: usize| -> Vec<_> {
        let cells = plan.cells.iter();
        cells
            .map(|cell| plan.steps.setups[setup].of(cell))
            .collect()
    };
    assert_eq!(steps(0), [0, 0, 0, 0].map(Some));
    assert_eq!(steps(1), [0, 0, 1, 1].map(Some));
    assert_eq!(plan.compares[0].groups, 2);
    assert_eq!(plan.compares[0].of_cell, [0, 1, 0, 1]);
}

#[test]
fn what_is_only_used_in_a_probe_or_to_undo_tells_steps_apart() {
    for command in ["ready   = \"qemu-img info {{ dir }}", "undo    = [\"sync"] {
        let matrix = read(&edited(command, &format!("{command} {{{{ bs }}}}")));
        let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
        assert_eq!(plan.steps.setups[1].steps.len(), 4, "{command}");
        let places = Places {
            work: "w".to_owned(),
            installed: "i".to_owned(),
            artifacts: "a".to_owned(),
            ..Places::default()
        };
        let folder = |step| plan.setup_dir(1, step, &places);
        assert_eq!((0..4).map(folder).collect::<BTreeSet<_>>().len(), 4);
    }
}

#[test]
fn cosmetic_edits_change_no_key() {
    for (from, to) in [
        ("{{ bs }}", "{{bs}}"),
        (
            "--bs={{ bs }} --size",
            "--bs={{ bs | upper | lower }}   --size",
        ),
        (
            "\"fio --bs={{ bs }} --size={{ size }} --uri={{ nbd.dir }}\"",
            "[\"fio\", \"--bs={{ bs }}\", \"--size={{ size }}\", \"--uri={{ nbd.dir }}\"]",
        ),
        ("[run]", "# a remark\n[run]\ntimeout = \"3m\"\nrepeat = 9"),
        (
            "[metrics.iops]",
            "[metrics.iops]\nbetter = \"higher\"\n[metrics.lat]",
        ),
        ("axis = \"cache\"", "axis = \"bs\""),
        ("name = \"m\"", "name = \"other\""),
        ("[\"4k\", \"64k\"]", "[\"64k\", \"4k\"]"),
        ("undo    = [\"sync\"]", "timeout = \"1m\""),
        ("qemu-img info", "qemu-img  info --force-share"),
        (
            "'1M' if bs == '4k' else '2M'",
            "{'4k': '1M', '64k': '2M'}[bs]",
        ),
    ] {
        assert_eq!(rerun(from, to), [""; 0], "{to}");
    }
}

#[test]
fn the_name_of_an_axis_is_in_no_key() {
    let renamed = MATRIX
        .replace("bs    =", "block =")
        .replace("{{ bs }}", "{{ block }}")
        .replace("if bs ==", "if block ==")
        .replace("size =", "much =")
        .replace("{{ size }}", "{{ much }}");
    assert!(!renamed.contains("bs ") && !renamed.contains("size "));
    let values = |text: &str| keys(text).into_values().collect::<BTreeSet<Key>>();
    assert_eq!(values(&renamed), values(MATRIX));
}

#[test]
fn an_edit_reruns_the_cells_whose_text_it_changes() {
    let check = |from: &str, to: &str, cells: &[&str]| assert_eq!(rerun(from, to), cells, "{to}");
    check("fio --bs", "fio --direct=1 --bs", &ALL);
    check("parser  = \"fio\"", "parser  = \"json\"", &ALL);
    check("[run]", "[env]\nTZ = \"UTC\"\n[run]", &ALL);
    check("truncate -s 1G", "truncate -s 2G", &ALL);
    check("\"-t\"", "\"--cache\"", &ALL);
    check("undo    = [\"sync\"]", "scope = \"round\"", &ALL);
    check(
        "'1M'",
        "'3M'",
        &["cache=none,bs=4k", "cache=writeback,bs=4k"],
    );
    check(
        "[\"4k\", \"64k\"]",
        "[\"4k\", \"8k\", \"64k\"]",
        &["cache=none,bs=8k", "cache=writeback,bs=8k"],
    );
    check(
        "\"{{ cache }}\"",
        "\"{{ cache | replace('back', 'through') }}\"",
        &ALL[2..],
    );
    check(
        "[run]",
        "[env]\nSEEN = \"{{ 'yes' if cache == 'none' and bs == '4k' else '' }}\"\n[run]",
        &ALL,
    );
}

#[test]
fn words_do_not_change_places_unseen() {
    assert_eq!(
        rerun(
            "--bs={{ bs }} --size={{ size }}",
            "--size={{ size }} --bs={{ bs }}"
        ),
        ALL
    );
}

#[test]
fn programs_and_machines_are_in_the_keys() {
    struct Other;
    impl Digests for Other {
        fn tools(&self, _: &str) -> Vec<(String, crate::base::key::Key)> {
            Vec::new()
        }
        fn installed(&self, _: &str) -> Key {
            Key::of(b"another build")
        }
        fn source(&self, version: &str, part: Option<usize>) -> Key {
            NoDigests.source(version, part)
        }
        fn artifact(&self, build: Key) -> Option<Key> {
            NoDigests.artifact(build)
        }
    }
    let (before, after) = (keys(MATRIX), keys_with(MATRIX, &Other));
    assert!(before.iter().all(|(name, key)| after[name] != *key));
    let moved = keys(&edited("[machines.here]", "[machines.there]"));
    assert!(before.iter().all(|(name, key)| moved[name] != *key));
}

#[test]
fn cells_with_the_same_command_share_a_run_step() {
    let text = edited(
        "--bs={{ bs }} --size={{ size }}",
        "--size={{ '1M' if bs else size }}",
    );
    let matrix = read(&text);
    let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    assert_eq!((plan.cells.len(), plan.steps.runs.len()), (4, 2));
}

#[test]
fn only_what_is_missing_is_to_be_done() {
    let matrix = read(MATRIX);
    let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let cell = plan.cells.parse("cache=none,bs=4k").unwrap();
    let run = plan.steps.runs.of_cell[plan.cells.find(&cell).unwrap()];
    let mut rounds = vec![0; 4];
    rounds[run as usize] = 3;
    let todo = plan.todo(rounds, &|_| true);
    let counts = todo.counts();
    let to_run = [counts.setup.run, counts.run.run, counts.compare.run];
    assert_eq!((to_run, todo.measurements()), ([2, 1, 1], 3));
    let graph = graph(&plan, &todo);
    let nodes: Vec<Node> = graph.node_weights().copied().collect();
    assert_eq!(
        nodes,
        [
            Node::Setup(0, 0),
            Node::Setup(1, 0),
            Node::Run(run),
            Node::Compare(0, 0)
        ]
    );
    assert_eq!(graph.edge_count(), 4);
}

#[test]
fn the_estimate_adds_up_a_machine_and_finds_the_longest_chain() {
    let matrix = read(MATRIX);
    let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let todo = plan.todo(vec![2; 4], &|_| true);
    let slow = plan.steps.runs.keys[2];
    let seconds = |n| move |_: Key| Duration::from_secs(n);
    let estimate = estimate(
        &plan,
        &todo,
        &Durations {
            build: &seconds(100),
            setup: &seconds(1),
            run: &|key| Duration::from_secs(if key == slow { 10 } else { 5 }),
        },
    );
    assert_eq!(estimate.total, Duration::from_secs(3 + 2 * (10 + 3 * 5)));
    let path: Vec<u64> = estimate
        .critical_path
        .iter()
        .map(|(_, d)| d.as_secs())
        .collect();
    assert_eq!(path, [1, 1, 20, 0]);
    assert_eq!(estimate.critical_path[2].0, Node::Run(2));
}

#[test]
fn rules_about_sources_split_nothing_that_is_not_built() {
    let matrix = read(&with_rule());
    let plan = plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    assert_eq!(setups_of(&plan), [1, 2]);
}

#[test]
fn set_ups_with_the_same_key_are_one_step() {
    // The artifact is another one where bs is 4k; versions that give the same bytes are the same.
    struct Bytes;
    impl Digests for Bytes {
        fn tools(&self, _: &str) -> Vec<(String, Key)> {
            Vec::new()
        }
        fn installed(&self, _: &str) -> Key {
            Key::default()
        }
        fn source(&self, version: &str, part: Option<usize>) -> Key {
            match (version, part) {
                ("new", Some(_)) => Key::of(b"changed"),
                _ => Key::of(b"as before"),
            }
        }
        fn artifact(&self, build: Key) -> Option<Key> {
            Some(build)
        }
    }
    let text = with_rule().replace("[\"4k\", \"64k\"]", "[\"4k\", \"64k\", \"1m\"]");
    let check = |text: &str, versions: &[&str], steps: usize, axes: &[&str]| {
        let matrix = read(text);
        let choice = CellChoice {
            versions: versions
                .iter()
                .map(|version| (*version).to_owned())
                .collect(),
            ..CellChoice::default()
        };
        let plan = plan(&matrix, &choice, &Bytes).unwrap();
        let nbd = &plan.steps.setups[1];
        let names: Vec<&str> = nbd
            .axes
            .iter()
            .map(|axis| plan.cells.axes[*axis].name.as_str())
            .collect();
        assert_eq!(
            (nbd.steps.len(), names.as_slice()),
            (steps, axes),
            "{versions:?}"
        );
        // Each cell has a set-up with the key that it would have alone.
        for (index, cell) in plan.cells.iter().enumerate() {
            let step = nbd.of(cell).unwrap();
            let of_step = nbd.steps[step as usize].cell as usize;
            assert_eq!(plan.subject_of(of_step), plan.subject_of(index));
        }
    };
    check(&text, &["old"], 4, &["machine", "cache", "bs"]);
    check(&text, &["old", "same"], 4, &["machine", "cache", "bs"]);
    check(
        &text,
        &["old", "new"],
        6,
        &["machine", "version", "cache", "bs"],
    );
    // What a probe uses tells the steps apart, whatever their keys are.
    let probed = text.replace(
        "qemu-img info {{ dir }}",
        "qemu-img info {{ dir }} {{ bs }}",
    );
    check(&probed, &["old", "same"], 6, &["machine", "cache", "bs"]);
}
