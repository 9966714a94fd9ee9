//! The tests of expansion and of cell names.

use proptest::prelude::*;

use super::*;
use crate::config::decode::tests::read;
use crate::config::value::Scalar;

fn names(text: &str, choice: &CellChoice) -> Vec<String> {
    let matrix = read(text);
    let cells = expand(&matrix, choice).unwrap();
    cells.iter().map(|cell| cells.name(cell)).collect()
}

const TWO_AXES: &str = r#"
    [matrix]
    name = "m"
    [axes]
    bs = ["4k", "64k"]
    rw = ["read", "write"]
    [run]
    command = "fio {{ bs }} {{ rw }}"
    parser = "fio"
    [metrics.iops]
"#;

#[test]
fn the_last_axis_turns_fastest() {
    let expected = [
        "bs=4k,rw=read",
        "bs=4k,rw=write",
        "bs=64k,rw=read",
        "bs=64k,rw=write",
    ];
    assert_eq!(names(TWO_AXES, &CellChoice::default()), expected);
}

#[test]
fn versions_of_the_command_line_show_in_names() {
    let choice = CellChoice {
        versions: vec!["v1".into(), "v2".into()],
        ..CellChoice::default()
    };
    let names = names(TWO_AXES, &choice);
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "version=v1,bs=4k,rw=read");
}

#[test]
fn a_cell_without_declared_axes_has_a_name() {
    let matrix = read(
        r#"
        [matrix]
        name = "m"
        [run]
        command = "sync"
        parser = "json"
        [metrics.seconds]
    "#,
    );
    let cells = expand(&matrix, &CellChoice::default()).unwrap();
    assert_eq!(cells.name(cells.cell(0)), "machine=local");
    assert_eq!(cells.parse("machine=local").unwrap(), cells.cell(0));
    assert_eq!(cells.parse("").unwrap(), cells.cell(0));
}

#[test]
fn names_are_read_in_any_order_and_refused_when_incomplete() {
    let matrix = read(TWO_AXES);
    let cells = expand(&matrix, &CellChoice::default()).unwrap();
    let cell = cells.parse("rw=write,bs=64k,machine=local").unwrap();
    assert_eq!(cells.name(&cell), "bs=64k,rw=write");
    let refusal = |name: &str| cells.parse(name).unwrap_err().message;
    assert_eq!(refusal("bs=64k"), "the cell `bs=64k` does not say: rw");
    assert_eq!(
        refusal("bs=64k,bs=4k,rw=read"),
        "the cell `bs=64k,bs=4k,rw=read` says `bs` twice"
    );
    assert_eq!(refusal("bs"), "`bs` is not `axis=value`");
}

fn text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(
        ",=+:% \t\n'\"$\\/%~@-._é\u{1F980}\u{0}"
            .chars()
            .collect::<Vec<_>>(),
    );
    let char = prop_oneof![any::<char>(), odd];
    prop::collection::vec(char, 0..8).prop_map(String::from_iter)
}

fn scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        text().prop_map(Scalar::Text),
        any::<i64>().prop_map(Scalar::Integer),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Scalar::Float),
        any::<bool>().prop_map(Scalar::Boolean),
    ]
}

fn value() -> impl Strategy<Value = AxisValue> {
    prop_oneof![
        scalar().prop_map(AxisValue::Scalar),
        prop::collection::vec((text(), scalar()), 1..4).prop_map(AxisValue::Zipped),
    ]
}

/// All cells of a few axes with any values. Axes are numbered apart, values kept once.
fn product_of_anything() -> impl Strategy<Value = Cells> {
    let axis = (
        "[a-zA-Z_][a-zA-Z0-9_]{0,8}",
        prop::collection::vec(value(), 1..5),
        any::<bool>(),
    );
    prop::collection::vec(axis, 1..5).prop_map(|axes| {
        let plan_axis =
            |(index, (name, values, silent)): (usize, (String, Vec<AxisValue>, bool))| {
                let mut seen = HashSet::new();
                let values: Vec<_> = values
                    .into_iter()
                    .filter(|v| seen.insert(v.label()))
                    .collect();
                PlanAxis {
                    name: format!("{name}{index}"),
                    labels: values.iter().map(AxisValue::label).collect(),
                    silent: silent && values.len() == 1,
                    values,
                    origin: Origin::Axis,
                }
            };
        let axes: Vec<PlanAxis> = axes.into_iter().enumerate().map(plan_axis).collect();
        let sizes = sizes(&axes);
        let mut data = Vec::new();
        let all = Projection::new((0..axes.len()).collect(), &sizes);
        all.for_each(&sizes, |cell| data.extend_from_slice(cell));
        Cells {
            axes,
            data,
            excluded: Vec::new(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_name_is_one_plain_word_and_parses_back(cells in product_of_anything()) {
        let mut seen = HashSet::new();
        for cell in cells.iter() {
            let name = cells.name(cell);
            prop_assert_eq!(cells.parse(&name).unwrap(), cell, "{}", &name);
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || ",=+:%._-@~".contains(c)), "{}", &name);
            prop_assert!(seen.insert(name));
        }
    }

    #[test]
    fn reading_any_text_as_a_name_is_no_panic(cells in product_of_anything(), text in text()) {
        if let Ok(cell) = cells.parse(&text) {
            prop_assert!(cells.find(&cell).is_some());
        }
    }
}
