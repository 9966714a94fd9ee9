//! A headless Chromium, driven over a pair of pipes (`--remote-debugging-pipe`: JSON, each message ended by a zero byte).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAMS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = all.into_iter().find(|path| path.is_file());
    found.expect("no Chromium: apt-get install chromium-headless-shell")
}

/// One page in a browser of its own.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    /// Errors and warnings of the console, exceptions, and requests for anything but the page.
    pub complaints: Vec<String>,
    loaded: bool,
    has_scripts: bool,
    _profile: TempDir,
}

impl Browser {
    pub fn new() -> Browser {
        let profile = TempDir::new().unwrap();
        // Its pipes are the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(program())
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Browser {
            child,
            to,
            from,
            next: 0,
            session: None,
            complaints: Vec::new(),
            loaded: false,
            has_scripts: true,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Lets no page have a script from now on; what the test evaluates still runs.
    pub fn forbid_scripts(&mut self) {
        self.has_scripts = false;
        let asked = json!({ "value": true });
        self.call("Emulation.setScriptExecutionDisabled", asked);
    }

    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.to, "{message}\0").unwrap();
        loop {
            let message = self.read();
            if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert!(bytes.pop() == Some(0), "the browser has ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let told = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loaded = true,
            "Runtime.exceptionThrown" | "Log.entryAdded" => self.complaints.push(told.to_string()),
            "Runtime.consoleAPICalled" if told["type"] != "log" => {
                self.complaints.push(told.to_string());
            }
            "Network.requestWillBeSent" => {
                let url = told["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file:") {
                    self.complaints.push(format!("a request: {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file; `hash` is the end of its address.
    pub fn open(&mut self, file: &Path, hash: &str) {
        // The same address with another hash would be no load.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.loaded = false;
        while !self.loaded {
            self.read();
        }
        self.loaded = false;
        let url = format!("file://{}{hash}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        while !self.loaded {
            self.read();
        }
        self.frame();
    }

    /// What an expression gives; a promise is waited for.
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let told = self.call("Runtime.evaluate", asked);
        assert!(
            told["exceptionDetails"].is_null(),
            "{expression}: {}",
            told["exceptionDetails"]
        );
        told["result"]["value"].clone()
    }

    /// Waits until what was changed is drawn.
    pub fn frame(&mut self) {
        // Without scripts nothing is told of frames.
        if !self.has_scripts {
            return;
        }
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }

    /// Presses keys by their names, such as `Tab`, `Enter`, `ArrowDown`.
    pub fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let (code, text) = match *key {
                "Enter" => (13, "\r"),
                "Tab" => (9, ""),
                "Escape" => (27, ""),
                "ArrowDown" => (40, ""),
                "ArrowUp" => (38, ""),
                _ => panic!("what is {key}?"),
            };
            let mut asked = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
            if !text.is_empty() {
                asked["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", asked);
            let asked =
                json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", asked);
            self.frame();
        }
    }

    /// The window, the scheme of colours (`light` or `dark`), and the medium (`screen` or `print`).
    pub fn look(&mut self, width: u32, scheme: &str, medium: &str) {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let asked = json!({ "media": medium, "features": features });
        self.call("Emulation.setEmulatedMedia", asked);
        self.frame();
    }

    /// Violations that axe-core finds, as `rule: element`.
    pub fn violations(&mut self, axe: &str) -> Vec<String> {
        if self.eval("typeof axe") != "object" {
            self.eval(&format!("{axe}; 1"));
        }
        let found = self.eval(
            "axe.run(document, { resultTypes: ['violations'] }).then((told) => told.violations.flatMap((rule) => \
             rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`)))",
        );
        let list = found.as_array().unwrap().iter();
        list.map(|line| line.as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
