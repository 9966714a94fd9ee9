//! Simulated histories of sessions: faults, kills and signals by seed, on fake hosts and in simulated time.
//!
//! `MATRIX_HISTORIES=100000 cargo test --release --lib run::session -- --nocapture` runs so many; each failure names
//! its seed, and `MATRIX_SEED=N` runs that history alone.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Weak;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::base::diag::Sources;
use crate::base::sample::Ended;
use crate::config::decode::tests::read;
use crate::config::matrix::Matrix;
use crate::config::profile::{Facts, load};
use crate::edge::artifact::Artifacts;
use crate::edge::store::{Record, Recorded, StoreErrorKind, Written};
use crate::machine::host::fake::{FakeHost, HostFault, printed};
use crate::machine::host::{Command, Host, HostError, Output};
use crate::machine::setups;
use crate::plan::cell::CellChoice;
use crate::resolve::prepare::{Machines, PrepareOptions};
use crate::resolve::versions::{VersionRequest, Versions};

const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
const HISTORIES: u64 = 60;
/// Sessions with faults before the one without.
const SESSIONS_MAX: u64 = 3;
const ROUNDS: u32 = 3;

/// A fault that is put in on purpose, which the invariants have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// An undo command says that it did what it did not.
    MissedUndo,
    /// A result is told to be on the disk that is not.
    LostResult,
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn new(seed: u64) -> Random {
        Random(Rc::new(Cell::new(seed)))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let z = self.0.get();
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    fn is(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What goes wrong at the moment, on hosts and on the disk of the store.
#[derive(Clone)]
struct Weather {
    random: Random,
    faults_per_mille: Rc<Cell<u64>>,
    sabotage: Sabotage,
    /// Samples that programs gave, so that each is another one.
    given: Rc<Cell<u32>>,
}

impl Weather {
    fn fault(&self) -> Option<HostFault> {
        if !self.random.is(self.faults_per_mille.get()) {
            return None;
        }
        let kind = match self.random.below(3) {
            0 => HostErrorKind::NoSpace,
            _ => HostErrorKind::Other,
        };
        let error = HostError::new(kind, "a fault of the simulation");
        Some(match self.random.below(2) {
            0 => HostFault::Refused(error),
            _ => HostFault::LostAnswer(error),
        })
    }

    fn takes(&self) -> Duration {
        match self.random.below(3) {
            0 => Duration::ZERO,
            1 => Duration::from_millis(self.random.below(50)),
            _ => Duration::from_millis(self.random.below(3000)),
        }
    }
}

thread_local! {
    /// For those who write results: a session takes a plain function.
    static WEATHER: RefCell<Option<Weather>> = const { RefCell::new(None) };
}

/// Writes at once, so that a history is the same each time.
struct InlineResults(RefCell<Store>, Weather);

impl WriteResults for InlineResults {
    fn write(&self, record: Record, _: bool, tell: Box<dyn FnOnce(Written) + Send>) {
        let InlineResults(store, weather) = self;
        if weather.sabotage == Sabotage::LostResult && weather.random.is(200) {
            return tell(Ok(Recorded::AlreadyDone));
        }
        if weather.random.is(weather.faults_per_mille.get() / 4) {
            let kind = StoreErrorKind::DiskFull;
            return tell(Err(StoreError::new(Path::new("matrix.db"), kind, "full")));
        }
        let written = store.borrow_mut().record_all(&[record]);
        tell(written.map(|mut all| all.remove(0)));
    }
}

fn inline(store: &Store) -> Result<Box<dyn WriteResults>, StoreError> {
    let weather = WEATHER.with_borrow(Clone::clone).unwrap();
    Ok(Box::new(InlineResults(
        RefCell::new(store.another()?),
        weather,
    )))
}

/// Hears nothing.
struct Deaf;

impl Progress for Deaf {
    fn event(&mut self, _: &TimedEvent) {}
}

fn matrix(seed: u64, random: &Random) -> Matrix {
    let scope = || ["session", "round", "run"][random.below(3) as usize];
    read(&format!(
        r#"
        [matrix]
        name = "m{seed}"
        [machines.a]
        via = "local"
        [machines.b]
        via = "local"
        [axes]
        machine = ["a", "b"]
        kind = ["x", "y"]
        size = [1, 2]
        [[setup]]
        name  = "disk"
        run   = ["mount {{{{ dir }}}}/disk"]
        undo  = ["umount {{{{ dir }}}}/disk"]
        scope = "{}"
        [[setup]]
        name    = "server"
        service = ["serve", "{{{{ kind }}}}", "{{{{ disk.dir }}}}"]
        ready   = ["ping"]
        scope   = "{}"
        timeout = "20s"
        [run]
        command = ["measure", "{seed}", "{{{{ size }}}}", "{{{{ server.dir }}}}"]
        parser  = "json"
        repeat  = {ROUNDS}
        [metrics.v]
        better = "higher"
        "#,
        scope(),
        scope()
    ))
}

fn host(name: &str, weather: &Weather) -> Rc<FakeHost> {
    let own: Rc<OnceCell<Weak<FakeHost>>> = Rc::default();
    let (world, answers) = (Rc::clone(&own), weather.clone());
    let ended = |code: i32| {
        let ended = Ended::Exit(code);
        Ok(Output {
            ended,
            ..printed("")
        })
    };
    let answer = move |command: &Command| {
        let host = world.get().and_then(Weak::upgrade).unwrap();
        let path = command.argv.get(1).map(Path::new);
        let is_done = match (command.argv[0].as_str(), path) {
            ("mount", Some(path)) => host.mount(path, true),
            ("umount", _) if answers.sabotage == Sabotage::MissedUndo && answers.random.is(300) => {
                true
            }
            ("umount", Some(path)) => host.mount(path, false),
            ("ping", _) => host.left().1 > 0 && answers.random.is(700),
            ("measure", _) => {
                let (mounted, services) = host.left();
                assert!(!mounted.is_empty() && services > 0, "measured on nothing");
                let fails = answers.random.is(answers.faults_per_mille.get());
                answers.given.set(answers.given.get() + 1);
                match fails {
                    true => false,
                    false => return Ok(printed(format!("{{\"v\": {}}}", answers.given.get()))),
                }
            }
            _ => true,
        };
        ended(i32::from(!is_done))
    };
    let faults = weather.clone();
    let host = FakeHost::new(name, answer)
        .with_file("/proc/sys/kernel/osrelease", "6.1\n")
        .with_file("/proc/sys/kernel/random/boot_id", "0\n")
        .with_file(SWAPPINESS, "60\n")
        .with_faults(move |_| (faults.takes(), faults.fault()));
    let host = Rc::new(host);
    own.set(Rc::downgrade(&host)).unwrap();
    host
}

/// The store that histories share; each has keys of its own.
struct Bed {
    folder: TempDir,
    store: RefCell<Store>,
}

impl Bed {
    fn new() -> Bed {
        let shared = Path::new("/dev/shm");
        let folder = match shared.is_dir() {
            true => TempDir::new_in(shared),
            false => TempDir::new(),
        };
        let folder = folder.unwrap();
        let store = RefCell::new(Store::open(folder.path()).unwrap());
        Bed { folder, store }
    }
}

/// One history; Err is an invariant that does not hold.
fn history(bed: &Bed, seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulate(bed, seed, sabotage))
}

async fn simulate(bed: &Bed, seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let random = Random::new(seed);
    let weather = Weather {
        random: random.clone(),
        faults_per_mille: Rc::new(Cell::new(0)),
        sabotage,
        given: Rc::default(),
    };
    WEATHER.set(Some(weather.clone()));
    let matrix = matrix(seed, &random);
    let hosts = ["a", "b"].map(|name| (name.to_owned(), host(name, &weather)));
    let state = bed.folder.path();
    let options = PrepareOptions {
        state,
        lock: Some("/run/lock".into()),
    };
    let through = hosts
        .clone()
        .map(|(name, host)| (name, host as Rc<dyn Host>));
    let mut machines = Machines::through(&matrix, through.into(), &options)
        .await
        .unwrap();
    let mut text = |_: &str| {
        let text = "sysctl \"vm.swappiness\" 10\n";
        Ok(("quiet".to_owned(), text.to_owned()))
    };
    let (chain, problems) = load("quiet", &mut Sources::default(), &mut text);
    assert!(problems.is_empty(), "{problems:?}");
    for (name, _) in &hosts {
        let (profile, _) = chain.resolve(&Facts::new(), &|_| Ok(true));
        machines.set_profile(name, profile);
        machines.set_slots(name, 1 + random.below(2) as usize);
    }
    let wanted = VersionRequest::default();
    let versions = Versions::resolve(&matrix, &wanted, state, state).unwrap();
    let artifacts = Artifacts::default();
    let planner = Planner::new(
        &matrix,
        &machines,
        &versions,
        &artifacts,
        CellChoice::default(),
    );
    let progress = RefCell::new(Deaf);
    let readers = [Reader {
        parsers: vec![Parser::new("json", &[]).unwrap()],
        fail_pattern: None,
        fail_when: None,
    }];
    let settings = SessionSettings {
        preset: None,
        seed,
        retries_builds: false,
        arguments: String::new(),
        readers: &readers,
        monitors: &[],
        hooks: &Hooks::none(),
        profiles: &BTreeMap::new(),
        writer: inline,
    };
    let session = Session {
        planner: &planner,
        store: &bed.store,
        progress: &progress,
        settings: &settings,
    };
    let names: BTreeSet<String> = hosts.iter().map(|(name, _)| name.clone()).collect();
    for number in 0..=random.below(SESSIONS_MAX + 1) {
        weather
            .faults_per_mille
            .set([0, 5, 30, 200][random.below(4) as usize]);
        let what = one_session(&session, &names, &random).await;
        let what = what.map_err(|what| format!("session {number}: {what}"))?;
        let well = match what {
            Way::Whole => each_sample_once(&session),
            Way::Ended => left_behind(&hosts).await,
            Way::Killed => Ok(()),
        };
        well.map_err(|what| format!("session {number}: {what}"))?;
    }
    // Whatever was before: one session without faults makes all of it good.
    weather.faults_per_mille.set(0);
    let way = one(&session, &names, None, None).await;
    let way = way.map_err(|error| format!("the last session: {}", error.error))?;
    if way != Way::Whole {
        return Err(format!("the last session: {way:?}"));
    }
    for (name, host) in &hosts {
        let (mounted, services) = host.left();
        if !mounted.is_empty() || services > 0 {
            return Err(format!(
                "{name}: {mounted:?} and {services} services are left"
            ));
        }
        let knob = host.file(SWAPPINESS).unwrap_or_default();
        if knob.trim_ascii() != b"60" {
            let knob = String::from_utf8_lossy(&knob);
            return Err(format!("{name}: the knob is at {knob}"));
        }
    }
    for (name, host) in &hosts {
        if !setups::noted(host.as_ref()).await.unwrap().is_empty() {
            return Err(format!("{name}: the journal of set-ups is not empty"));
        }
    }
    each_sample_once(&session)
}

/// How a session went.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// Nothing failed.
    Whole,
    /// Something failed, or it was told to stop.
    Ended,
    Killed,
}

/// A session of which anything may happen.
async fn one_session(
    session: &Session<'_>,
    names: &BTreeSet<String>,
    random: &Random,
) -> Result<Way, String> {
    let after = |per_mille: u64| {
        let is_it = random.is(per_mille);
        is_it.then(|| Duration::from_millis(random.below(60_000)))
    };
    let (kill, stop) = (after(400), after(300));
    match one(session, names, kill, stop).await {
        Ok(way) => Ok(way),
        // It says so, and all is put back as far as that goes.
        Err(SessionError { error, .. }) => match error {
            RunError::Lookup(_) | RunError::Plan(_) | RunError::Template(_) => {
                Err(error.to_string())
            }
            _ => Ok(Way::Ended),
        },
    }
}

async fn one(
    session: &Session<'_>,
    names: &BTreeSet<String>,
    kill: Option<Duration>,
    stop: Option<Duration>,
) -> Result<Way, SessionError> {
    let selection = SelectionOptions::default();
    let chosen = session.choose(&selection, Some(names))?;
    let planned = session.announce(&chosen)?;
    let missing = Missing::new(selection, chosen.out, planned.clone());
    let strategies = vec![Asked::new(missing, session.planner)];
    let (sender, mut signals) = mpsc::unbounded_channel();
    let work = session.run(names, strategies, planned, None, &mut signals);
    tokio::pin!(work);
    let until = |time: Option<Duration>| async move {
        match time {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let (kill, stop) = (until(kill), until(stop));
    tokio::pin!(kill, stop);
    let mut is_stopped = false;
    loop {
        tokio::select! {
            biased;
            () = &mut kill => return Ok(Way::Killed),
            () = &mut stop, if !is_stopped => {
                is_stopped = true;
                let _ = sender.send(());
            }
            done = &mut work => {
                let tally = done?.tally;
                let is_whole = tally.failed.is_empty() && !tally.interrupted;
                return Ok(if is_whole { Way::Whole } else { Way::Ended });
            }
        }
    }
}

/// What a session that ended by itself has left must be in the journal.
async fn left_behind(hosts: &[(String, Rc<FakeHost>)]) -> Result<(), String> {
    for (name, host) in hosts {
        let noted = setups::noted(host.as_ref()).await.unwrap();
        for mounted in host.left().0 {
            let dir = mounted.parent().unwrap().display().to_string();
            if !noted.iter().any(|it| it.undo.dir == dir) {
                return Err(format!(
                    "{name}: {} is left and not noted",
                    mounted.display()
                ));
            }
        }
    }
    Ok(())
}

fn each_sample_once(session: &Session) -> Result<(), String> {
    let plan = session.plan().map_err(|error| error.to_string())?;
    let samples = session
        .store
        .borrow()
        .samples(&plan.steps.runs.keys)
        .unwrap();
    let mut seen: Vec<(Key, u32)> = samples.iter().map(|it| (it.key, it.sample.round)).collect();
    seen.sort_unstable();
    let keys = plan.steps.runs.keys.iter();
    let expected = keys.flat_map(|key| (0..ROUNDS).map(|round| (*key, round)));
    if !seen.iter().copied().eq(expected) {
        return Err(format!("{} samples, not each round once", seen.len()));
    }
    let mut values: Vec<u64> = samples.iter().map(|it| it.sample.value as u64).collect();
    values.sort_unstable();
    values.dedup();
    match values.len() == samples.len() {
        true => Ok(()),
        false => Err("one sample stands for two".to_owned()),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_history_ends_well() {
    let histories = number("MATRIX_HISTORIES").unwrap_or(HISTORIES);
    let seeds = match number("MATRIX_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..histories,
    };
    let began = std::time::Instant::now();
    let mut bed = Bed::new();
    for seed in seeds {
        if seed % 200 == 199 {
            bed = Bed::new();
        }
        if let Err(what) = history(&bed, seed, Sabotage::None) {
            panic!("history {seed}: {what}; again with MATRIX_SEED={seed}");
        }
    }
    println!("{histories} histories in {:.1?}", began.elapsed());
}

#[test]
fn a_fault_put_in_on_purpose_is_found() {
    let bed = Bed::new();
    let mut from = 1 << 40;
    for sabotage in [Sabotage::MissedUndo, Sabotage::LostResult] {
        let found = (from..from + 20).find_map(|seed| history(&bed, seed, sabotage).err());
        assert!(found.is_some(), "{sabotage:?} is not found");
        println!("{sabotage:?}: {}", found.unwrap_or_default());
        from += 20;
    }
}
