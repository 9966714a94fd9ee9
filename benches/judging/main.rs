//! The figures of `judge`: prints `figure | measured | asked` for each protocol.
//!
//! `cargo bench --bench judging -- [quick] [aa] [bisect] [kinds] [cp] [place] [noise] [tcpd] [speed]`

mod aa;
mod bisect;
mod cp;
mod data;
mod kinds;
mod noise;
mod place;
mod speed;
mod tcpd;

fn main() {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let quick = words.iter().any(|word| word == "quick");
    let names = [
        "aa", "bisect", "kinds", "cp", "place", "noise", "tcpd", "speed",
    ];
    let chosen = |name: &str| {
        let any = words.iter().any(|word| names.contains(&word.as_str()));
        !any || words.iter().any(|word| word == name)
    };
    println!("| figure | measured | asked |");
    println!("|---|---|---|");
    if chosen("aa") {
        aa::run(quick);
    }
    if chosen("bisect") {
        bisect::run(quick);
    }
    if chosen("kinds") {
        kinds::run(quick);
    }
    if chosen("cp") {
        cp::run(quick);
    }
    if chosen("place") {
        place::run(quick);
    }
    if chosen("noise") {
        noise::run(quick);
    }
    if chosen("tcpd") {
        tcpd::run();
    }
    if chosen("speed") {
        speed::run(quick);
    }
}

/// One row of the table.
fn figure(name: &str, measured: String, asked: &str) {
    println!("| {name} | {measured} | {asked} |");
}
