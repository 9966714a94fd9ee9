//! Reports as pages, in a real browser: with a script and without, by keyboard, for screen readers, with hostile content.

#[path = "html/browser.rs"]
mod browser;
#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;
#[allow(dead_code)]
#[path = "versions/repo.rs"]
mod repo;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use browser::Browser;
use lab::Lab;
use repo::Repo;

/// Where axe-core is: it is too large to be kept here.
const AXE: &str = "target/axe/package/axe.min.js";

fn axe() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(AXE);
    fs::read_to_string(path).unwrap_or_else(|_| {
        panic!(
            "`{AXE}` is missing: mkdir -p target/axe && cd target/axe && npm pack axe-core@4.14.1 && tar xzf axe-core-*.tgz"
        )
    })
}

/// Two versions on a machine where nothing runs: the second one is slower and has more throughput.
const MATRIX: &str = r#"
    about = "two versions of nothing"
    [subject.git]
    repo = "nowhere"
    [machines.here]
    via = "null"
    noise = "3%"
    effects = { v2 = "+9%" }
    [axes]
    machine = ["here"]
    cache = ["writeback", "none"]
    rw = ["randread", "randwrite"]
    bs = ["4k", "64k", "1024k"]
    [run]
    command = "x {{ version }} {{ cache }} {{ rw }} {{ bs }}"
    parser = "fio"
    repeat = 20
    [metrics.lat]
    better = "lower"
    unit = "ns"
    [metrics.iops]
    better = "higher"
    unit = "1/s"
    [[compare]]
    axis = "version"
    confirm = false
"#;

struct Pages {
    lab: Lab,
    repo: Repo,
}

impl Pages {
    /// A run of two versions.
    fn of(matrix: &str) -> Pages {
        let repo = Repo::new();
        let commits = ["1", "2"].map(|text| {
            repo.write("file", text);
            repo.commit(text)
        });
        let pages = Pages {
            lab: Lab::new(matrix),
            repo,
        };
        let named = [format!("v1={}", commits[0]), format!("v2={}", commits[1])];
        let words = ["--version", &named[1], "--against", &named[0]];
        pages.matrix("run", &words);
        pages
    }

    fn matrix(&self, verb: &str, more: &[&str]) {
        let repo = self.repo.path();
        let words = [&[verb, "matrix.toml", "--repo", &repo][..], more].concat();
        let output = self.lab.matrix(&words).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!([0, 1, 3].contains(&output.status.code().unwrap()), "{told}");
    }

    fn page(&self) -> PathBuf {
        let commits = [1, 0].map(|back| {
            let repo = self.repo.path();
            let git = ["-C", &repo, "rev-parse", &format!("HEAD~{back}")].map(str::to_owned);
            let output = std::process::Command::new("git")
                .args(git)
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        });
        let named = [format!("v1={}", commits[0]), format!("v2={}", commits[1])];
        let words = ["--version", &named[1], "--against", &named[0]];
        let html = [&words[..], &["--html", "page.html"]].concat();
        self.matrix("report", &html);
        self.lab.path("page.html")
    }
}

/// The texts of the cells of a column of the table, as far as they are drawn.
fn column(browser: &mut Browser, number: usize) -> Vec<String> {
    let told = browser.eval(&format!(
        "[...document.querySelectorAll('#rows tbody tr:not(.space)')].map((row) => row.children[{number}].textContent)"
    ));
    serde_json::from_value(told).unwrap()
}

fn count(browser: &mut Browser) -> Value {
    browser.eval("document.getElementById('count').textContent")
}

fn choose(browser: &mut Browser, key: &str, value: &str) {
    browser.eval(&format!(
        "(() => {{ const field = document.querySelector('#filters [data-key=\"{key}\"], #heat [data-key=\"{key}\"]'); field.value = '{value}'; \
         field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input', {{ bubbles: true }})); }})()"
    ));
    browser.frame();
}

#[test]
fn a_page_is_sorted_filtered_and_shared() {
    let pages = Pages::of(MATRIX);
    let page = pages.page();
    let mut browser = Browser::new();
    browser.open(&page, "");
    let headline = browser.eval("document.querySelector('h1').textContent");
    let headline = headline.as_str().unwrap().to_owned();
    assert!(
        headline.starts_with("v2 is worse than v1: lat +"),
        "{headline}"
    );
    assert_eq!(count(&mut browser), "24 rows");

    // Sorted by a click on a column, then the other way, then not.
    let click = "document.querySelector('#rows th[data-name=change] button').click()";
    let sorted = |browser: &mut Browser| -> Vec<f64> {
        let told = column(browser, 5);
        let number = |text: &String| text.replace('−', "-").trim_end_matches('%').parse();
        told.iter().map(|text| number(text).unwrap()).collect()
    };
    browser.eval(click);
    let up = sorted(&mut browser);
    assert!(up.len() == 24 && up.is_sorted(), "{up:?}");
    browser.eval(click);
    let down = sorted(&mut browser);
    assert!(down.is_sorted_by(|a, b| a >= b), "{down:?}");
    let state = browser
        .eval("document.querySelector('#rows th[data-name=change]').getAttribute('aria-sort')");
    assert_eq!(state, "descending");

    // Filtered by metric, axis and text; the address says so.
    choose(&mut browser, "metric", "iops");
    choose(&mut browser, "axis.cache", "none");
    choose(&mut browser, "text", "randread bs=4k");
    assert_eq!(count(&mut browser), "1 of 24 rows");
    let hash = browser.eval("location.hash");
    browser.open(&page, hash.as_str().unwrap());
    assert_eq!(count(&mut browser), "1 of 24 rows");
    assert_eq!(column(&mut browser, 1), ["cache=none rw=randread bs=4k"]);
    assert_eq!(column(&mut browser, 2), ["iops"]);

    // A link of the counts shows what it counts.
    browser.open(&page, "");
    browser.eval("document.querySelector('.counts .worse a').click()");
    browser.frame();
    let rows = column(&mut browser, 0);
    let counted = browser.eval("Number(document.querySelector('.counts .worse b').textContent)");
    assert_eq!(json!(rows.len()), counted);
    assert!(rows.iter().all(|row| row == "▼ regression"), "{rows:?}");

    // Another layout of the map.
    choose(&mut browser, "map.bs", "rows");
    choose(&mut browser, "map.rw", "worst");
    let map = browser.eval("[...document.querySelectorAll('#heat thead th')].map((head) => head.textContent).join('|')");
    assert_eq!(map, "cache bs \\ |all");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_page_is_used_by_keyboard_and_read_to_the_blind() {
    let axe = axe();
    let pages = Pages::of(MATRIX);
    let page = pages.page();
    let mut browser = Browser::new();
    browser.open(&page, "");
    browser.press(&["Tab"]);
    assert_eq!(browser.eval("document.activeElement.className"), "skip");
    // From row to row, into one and back.
    browser.eval("document.querySelector('#rows .open').focus()");
    browser.press(&["ArrowDown", "ArrowDown", "ArrowUp"]);
    let row = browser.eval("document.activeElement.dataset.row");
    assert_eq!(
        row,
        browser.eval("document.querySelectorAll('#rows .open')[1].dataset.row")
    );
    browser.press(&["Enter"]);
    assert_eq!(browser.eval("document.querySelector('dialog').open"), true);
    let samples = browser.eval("document.querySelectorAll('dialog .strip circle').length");
    assert_eq!(samples, 40);
    assert_eq!(browser.violations(&axe), [""; 0]);
    browser.press(&["Escape"]);
    assert_eq!(browser.eval("document.querySelector('dialog').open"), false);
    assert_eq!(row, browser.eval("document.activeElement.dataset.row"));
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (400, "light")] {
        browser.look(width, scheme, "screen");
        assert_eq!(browser.violations(&axe), [""; 0], "{width} {scheme}");
        let wide = browser.eval("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(wide, true, "{width}: it scrolls sideways");
    }
    browser.look(800, "light", "print");
    let seen = browser.eval("getComputedStyle(document.querySelector('.controls')).display");
    assert_eq!(seen, "none");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_page_is_read_without_a_script() {
    let axe = axe();
    let pages = Pages::of(MATRIX);
    let page = pages.page();
    let mut browser = Browser::new();
    browser.forbid_scripts();
    browser.open(&page, "");
    // The test's own script still runs.
    assert_eq!(
        browser.eval("document.getElementById('count')"),
        Value::Null
    );
    assert_eq!(column(&mut browser, 0).len(), 24);
    assert!(
        browser
            .eval("document.querySelectorAll('#heat td.worse').length")
            .as_u64()
            > Some(0)
    );
    assert!(
        browser
            .eval("document.querySelectorAll('.card svg title').length")
            .as_u64()
            > Some(0)
    );
    assert_eq!(browser.complaints, [""; 0]);
    // What axe-core does needs scripts: so of a page that has none.
    let text = fs::read_to_string(&page).unwrap();
    let (without, _) = text.rsplit_once("<script>").unwrap();
    let page = pages.lab.path("plain.html");
    fs::write(&page, without).unwrap();
    let mut browser = Browser::new();
    browser.open(&page, "");
    assert_eq!(browser.violations(&axe), [""; 0]);
}

#[test]
fn a_series_shows_where_it_moved() {
    let repo = Repo::new();
    let commits = (0..30).map(|n| {
        repo.write("file", &n.to_string());
        repo.commit("c")
    });
    let commits: Vec<String> = commits.collect();
    let effects: Vec<String> = (17..30).map(|n| format!("c{n} = \"+20%\"")).collect();
    let matrix = MATRIX.replace("v2 = \"+9%\"", &effects.join(", "));
    let pages = Pages {
        lab: Lab::new(&matrix.replace("\"writeback\", \"none\"", "\"none\"")),
        repo,
    };
    let named: Vec<String> = (0..30).map(|n| format!("c{n}={}", commits[n])).collect();
    let mut words: Vec<&str> = named.iter().flat_map(|name| ["--version", name]).collect();
    pages.matrix("run", &[&words[..], &["--repeat", "3"]].concat());
    words.truncate(0);
    words.extend([
        "--version",
        &named[29],
        "--against",
        &named[0],
        "--html",
        "page.html",
    ]);
    pages.matrix("report", &words);
    let mut browser = Browser::new();
    browser.open(&pages.lab.path("page.html"), "");
    let headline = browser.eval("document.querySelector('header').textContent");
    assert!(
        headline.as_str().unwrap().contains("since c17"),
        "{headline}"
    );
    let told = browser.eval("document.querySelector('#changes').textContent");
    assert!(
        told.as_str().unwrap().contains("Most likely since c17"),
        "{told}"
    );
    assert!(
        browser
            .eval("document.querySelectorAll('.card .course .set').length")
            .as_u64()
            > Some(0)
    );
    browser.eval("document.querySelector('#rows .open').click()");
    browser.frame();
    let drawn = browser.eval("document.querySelectorAll('dialog .course circle').length");
    assert_eq!(drawn, 30);
    assert_eq!(browser.complaints, [""; 0]);

    // As a site: each link leads to a file, and what is there already is not written again.
    let site = pages.lab.path("site");
    let written = || -> String {
        let repo = pages.repo.path();
        let words = ["report", "matrix.toml", "--repo", &repo, "--site", "site"];
        let words = [
            &words[..],
            &["--version", &named[29], "--against", &named[0]],
        ]
        .concat();
        let output = pages.lab.matrix(&words).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!written().starts_with("0 files"));
    let told = written();
    assert!(told.starts_with("0 files written"), "{told}");
    let mut seen = BTreeSet::new();
    let mut left = vec![site.join("index.html")];
    while let Some(path) = left.pop() {
        if !seen.insert(path.clone()) || path.extension().is_some_and(|it| it == "atom") {
            assert!(path.is_file(), "{}", path.display());
            continue;
        }
        browser.open(&path, "");
        let links = browser.eval("[...document.querySelectorAll('a')].map((link) => link.getAttribute('href')).filter((href) => !href.startsWith('#'))");
        for link in links.as_array().unwrap() {
            let next = path.parent().unwrap().join(link.as_str().unwrap());
            left.push(next.canonicalize().unwrap_or(next));
        }
    }
    // The overview, the result, the contents, 30 commits, 6 cells and a change at least, and the feed.
    assert!(seen.len() >= 41, "{seen:?}");
    let feed = json!(fs::read_to_string(site.join("feed.atom")).unwrap());
    let entry = browser.eval(&format!(
        "(() => {{ const feed = new DOMParser().parseFromString({feed}, 'application/xml'); if (feed.querySelector('parsererror')) return 'broken'; \
         return ['feed > id', 'feed > updated', 'feed > author > name', 'entry > id', 'entry > updated', 'entry > link', 'entry > title'].map((name) => feed.querySelector(name) ? 'has' : name).join() + feed.querySelector('entry > title').textContent; }})()"
    ));
    let entry = entry.as_str().unwrap();
    assert!(
        entry.starts_with(&["has"; 7].join(",")) && entry.ends_with("since c17"),
        "{entry}"
    );
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn hostile_content_is_harmless() {
    let hostile = r#"</script><script>window.hit=1</script><img src=x onerror=window.hit=1>"#;
    let matrix = format!(
        r#"
        about = '''{hostile} "quoted" & more'''
        [machines.here]
        via = "local"
        [axes]
        machine = ["here"]
        what = ['''<b onmouseover=window.hit=1>x</b>''', "</td>", "plain\u202Eesrever", "fails"]
        [run]
        command = ["sh", "-c", '''
            case "$1" in fails) printf '%s\033[31m\377\n' "$2"; head -c 10000000 /dev/zero | tr '\0' y; exit 7;; esac
            echo v=1''', "x", "{{{{ what }}}}", '''{hostile}''']
        parser = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
        repeat = 3
        [metrics.v]
        better = "lower"
        [[compare]]
        axis = "what"
        baseline = "</td>"
        "#
    );
    let pages = Pages {
        lab: Lab::new(&matrix),
        repo: Repo::new(),
    };
    let html = ["--html", "page.html"];
    let run = pages.lab.matrix(&["run", "matrix.toml"]).output().unwrap();
    assert_eq!(
        run.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let words = [&["report", "matrix.toml"][..], &html].concat();
    let output = pages.lab.matrix(&words).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let page = pages.lab.path("page.html");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.len() < 1_000_000, "{}", text.len());
    assert!(!text.contains(|c: char| c == '\u{202e}' || c.is_control() && c != '\n'));
    for script in [true, false] {
        let mut browser = Browser::new();
        if !script {
            browser.forbid_scripts();
        }
        browser.open(&page, "");
        assert_eq!(browser.eval("typeof window.hit"), "undefined");
        assert_eq!(
            browser.eval("document.querySelectorAll('img, b[onmouseover]').length"),
            0
        );
        let about = browser.eval("document.querySelector('.about').textContent");
        assert_eq!(about, json!(format!("{hostile} \"quoted\" & more")));
        let failed = browser.eval("document.querySelector('#failed').textContent");
        let failed = failed.as_str().unwrap();
        assert!(
            failed.contains("what=fails") && failed.contains("yyyy"),
            "{failed}"
        );
        if script {
            browser.eval("document.querySelector('#rows .open').click()");
            browser.frame();
            assert_eq!(
                browser.eval("document.querySelectorAll('img, b[onmouseover]').length"),
                0
            );
        }
        assert_eq!(browser.complaints, [""; 0]);
    }
}

#[test]
fn ten_thousand_cells_stay_fluid() {
    let values = |n: usize| -> String {
        let values: Vec<String> = (0..n).map(|value| format!("\"v{value}\"")).collect();
        values.join(", ")
    };
    let matrix = MATRIX
        .replace("\"writeback\", \"none\"", &values(50))
        .replace("\"4k\", \"64k\", \"1024k\"", &values(100))
        .replace("repeat = 20", "repeat = 6")
        .replace(
            "unit = \"ns\"\n    [metrics.iops]\n    better = \"higher\"\n    unit = \"1/s\"",
            "unit = \"ns\"",
        );
    let pages = Pages::of(&matrix);
    let page = pages.page();
    let size = fs::metadata(&page).unwrap().len();
    assert!(size <= 8 << 20, "{size} bytes");
    let mut browser = Browser::new();
    browser.open(&page, "");
    assert_eq!(count(&mut browser), "10000 rows");
    let drawn = |browser: &mut Browser| column(browser, 1).len();
    assert!(drawn(&mut browser) < 100);
    // The last row is drawn where one scrolls to it.
    browser.eval("document.querySelector('.virtual').scrollTop = 1e9");
    browser.frame();
    browser.frame();
    assert!(drawn(&mut browser) < 100);
    let last = browser.eval("[...document.querySelectorAll('#rows tbody tr:not(.space)')].at(-1).getAttribute('aria-rowindex')");
    assert_eq!(last, "10001");
    choose(&mut browser, "text", "cache=v49 randwrite bs=v99");
    assert_eq!(count(&mut browser), "1 of 10000 rows");
    assert_eq!(browser.complaints, [""; 0]);
}
