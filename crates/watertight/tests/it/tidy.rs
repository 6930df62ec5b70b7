//! The house rules that no lint can check: who may depend on whom, headers, sizes, what must not be in the tree.
//!
//! Reads the manifests through `cargo metadata` and the tree through `git ls-files`, so that what is checked is what is published.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Lines that a source file may have.
const MOST_LINES: usize = 600;

/// Source files above the limit: path, the lines it may have, why. The list may only shrink, and so may each number in it.
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// The bytes that a tracked file may have.
const MOST_BYTES: u64 = 500_000;

/// A crate, the crates of ours that it may see, and, where it is pure, the others that it may see.
type Floor = (&'static str, &'static [&'static str], Option<&'static [&'static str]>);

/// What each crate may depend on: crates of ours, and, where the crate is pure, everything else too.
const ARROWS: &[Floor] = &[
    ("watertight-policy", &[], Some(&[])),
    ("watertight-a2a", &[], Some(&["bytes", "http", "memchr", "serde", "serde_json", "sha2"])),
    ("watertight-engine", &["watertight-policy"], Some(&[])),
    ("watertight-store", &["watertight-engine", "watertight-policy"], None),
    ("watertight-sim", &["watertight-engine", "watertight-policy"], Some(&["serde", "toml"])),
    ("watertight-gateway", &["watertight-policy", "watertight-a2a", "watertight-engine", "watertight-store"], None),
    ("watertight-bench", &[], None),
    (
        "watertight",
        &[
            "watertight-policy",
            "watertight-a2a",
            "watertight-engine",
            "watertight-store",
            "watertight-sim",
            "watertight-gateway",
        ],
        None,
    ),
];

#[test]
fn arrows_point_down_only() {
    let metadata = run("cargo", &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let allowed: BTreeMap<_, _> = ARROWS.iter().map(|(krate, ours, others)| (*krate, (*ours, *others))).collect();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some((ours, others)) = allowed.get(name) else {
            wrong.push(format!("{name}: a crate that has no place on a floor yet"));
            continue;
        };
        seen.insert(name);
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            let fine = if to.starts_with("watertight") {
                ours.contains(&to)
            } else {
                // What only tests use does not make a crate impure.
                dependency["kind"] == "dev" || others.is_none_or(|others| others.contains(&to))
            };
            if !fine {
                wrong.push(format!("{name} must not depend on {to}"));
            }
        }
    }
    let missing = allowed.keys().filter(|krate| !seen.contains(*krate));
    wrong.extend(missing.map(|krate| format!("{krate} is not in the workspace")));
    report(&wrong);
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent = |path: &&PathBuf| !read(path).trim_start().starts_with("//!");
    report(
        &rust_files("").iter().filter(silent).map(|p| format!("{}: no //! header", p.display())).collect::<Vec<_>>(),
    );
}

#[test]
fn source_files_are_short() {
    let mut wrong = Vec::new();
    let mut exceptions: BTreeMap<_, _> =
        LONG_FILES.iter().map(|(path, most, _)| (PathBuf::from(path), *most)).collect();
    for path in rust_files("src") {
        let lines = read(&path).lines().count();
        match exceptions.remove(&path) {
            None if lines > MOST_LINES => {
                wrong.push(format!("{}: {lines} lines, at most {MOST_LINES}", path.display()))
            }
            Some(most) if lines > most => {
                wrong.push(format!("{}: {lines} lines, its exception is for {most}", path.display()))
            }
            Some(_) if lines <= MOST_LINES => {
                wrong.push(format!("{}: short now, take it off the list", path.display()))
            }
            Some(most) if lines + 50 < most => {
                wrong.push(format!("{}: {lines} lines, lower its exception of {most}", path.display()))
            }
            _ => {}
        }
    }
    wrong.extend(exceptions.keys().map(|path| format!("{}: gone, take it off the list", path.display())));
    report(&wrong);
}

#[test]
fn nothing_is_left_unfinished() {
    // Written in two halves, so that this file does not accuse itself.
    let marks = [concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimplemented", "!(")];
    report(&mentions(&marks));
}

#[test]
fn nothing_points_outside_the_tree() {
    let words = [
        concat!("../sha", "red"),
        concat!("sha", "red/design"),
        concat!("../.lib", "rary"),
        concat!("/wo", "rk/sha"),
        concat!("/wo", "rk/main"),
        concat!("field", "-cases"),
    ];
    report(&mentions(&words));
}

#[test]
fn no_tracked_file_is_big() {
    let big = tracked().into_iter().filter_map(|path| {
        let bytes = fs::metadata(root().join(&path)).ok()?.len();
        (bytes > MOST_BYTES).then(|| format!("{}: {bytes} bytes, at most {MOST_BYTES}", path.display()))
    });
    report(&big.collect::<Vec<_>>());
}

#[test]
fn readme_names_the_two_commands() {
    let readme = read(Path::new("README.md"));
    let missing = ["make demo", "watertight serve"].into_iter().filter(|command| !readme.contains(command));
    report(&missing.map(|command| format!("README.md does not name `{command}`")).collect::<Vec<_>>());
}

#[track_caller]
fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).current_dir(root()).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What git tracks and is still there, by path from the root.
fn tracked() -> Vec<PathBuf> {
    run("git", &["ls-files", "-z"])
        .split('\0')
        .filter(|p| !p.is_empty())
        .map(PathBuf::from)
        .filter(|p| root().join(p).exists())
        .collect()
}

/// The tracked Rust files of the crates, or only those below a folder of each.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    let wanted = |path: &PathBuf| {
        let mut parts = path.components().map(|c| c.as_os_str());
        parts.next().is_some_and(|p| p == "crates")
            && parts.nth(1).is_some_and(|p| folder.is_empty() || p == folder)
            && path.extension().is_some_and(|e| e == "rs")
    };
    tracked().into_iter().filter(wanted).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every line of a tracked text file that has one of the words.
fn mentions(words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in tracked() {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (n, line) in text.lines().enumerate() {
            let words = words.iter().filter(|word| line.contains(**word));
            found.extend(words.map(|word| format!("{}:{}: {word}", path.display(), n + 1)));
        }
    }
    found
}
