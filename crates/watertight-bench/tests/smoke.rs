//! The whole measurement, as short as it gets: every part runs against the built gateway, and every figure is there.
//!
//! Leaves out nginx, which a machine that runs tests need not have, and says nothing about how large a figure is.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_watertight-bench");

#[test]
fn every_figure_is_measured_and_printed() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(BENCH)
        .args([
            "run",
            "--rounds",
            "1",
            "--seconds",
            "0.2",
            "--warm-up",
            "0.05",
            "--conns",
            "1,8",
            "--tasks",
            "250",
            "--backlog",
            "300",
            "--waiting",
            "20",
        ])
        .arg("--gateway")
        .arg(gateway())
        .arg("--out")
        .arg(dir.path())
        .output()
        .unwrap();
    let (table, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    for part in [
        "direct",
        "Watertight, durable",
        "SQLite alone",
        "a refusal, idle",
        "of ListTasks over",
        "0 tasks",
        "waiting tasks",
        "a result arrives",
    ] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }

    let report: Value = serde_json::from_slice(&std::fs::read(dir.path().join("bench.json")).unwrap()).unwrap();
    let cells = report["cells"].as_array().unwrap();
    for cell in cells {
        let round = &cell["rounds"][0];
        assert_eq!(round["errors"], 0, "{cell}\n{log}");
        assert!(round["rate"].as_f64().unwrap() > 0.0 && round["p50"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(round["p50"].as_f64() <= round["p99"].as_f64(), "{cell}");
    }
    let paths: Vec<_> =
        cells.iter().map(|cell| (cell["path"].as_str().unwrap(), cell["conns"].as_u64().unwrap())).collect();
    for path in ["direct", "memory", "durable"] {
        assert!(paths.contains(&(path, 1)) && paths.contains(&(path, 8)), "{path}: {paths:?}");
    }
    assert!(report["refusal"]["loaded"][0]["count"].as_u64().unwrap() > 0);
    let list = &report["list"];
    assert!(list["tasks"].as_u64().unwrap() >= 250 && list["walks"][0]["count"].as_u64().unwrap() >= 3, "{list}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["bench.json"], "what was needed on the way is gone");

    // The same table again, from the file alone.
    let again = Command::new(BENCH).arg("table").arg(dir.path().join("bench.json")).output().unwrap();
    assert!(table.starts_with(&*String::from_utf8_lossy(&again.stdout)));
}

/// The gateway that was built beside this: `cargo build -p watertight`, or any run of all tests.
fn gateway() -> PathBuf {
    let path = Path::new(BENCH).with_file_name(format!("watertight{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing: build it with `cargo build -p watertight`", path.display());
    path
}
