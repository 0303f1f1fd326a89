//! `evaluate` writes the same document each time, except for the date and the command.
//!
//! The document has the schema that `docs/json.md` describes.

use serde_json::{Map, Value};
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

/// An evaluation without measured figures, and the least numbers of its runs and claims.
///
/// A soak takes the longest one.
fn subject() -> (&'static str, usize, usize) {
    if env::var_os("PAGEWRIGHT_SOAK").is_some() { ("batch", 100, 10) } else { ("lines", 30, 2) }
}

/// Starts an evaluation with its document in a file.
fn evaluate(name: &str, file: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
    command.args(["evaluate", name, "--json", file]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

fn object<'a>(value: &'a Value, keys: &[&str]) -> &'a Map<String, Value> {
    let object = value.as_object().expect("an object");
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut keys = keys.to_vec();
    found.sort_unstable();
    keys.sort_unstable();
    assert_eq!(found, keys);
    object
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("{key} is text: {object:?}"))
}

fn check_run(run: &Value) {
    let run = object(run, &["label", "input", "counters", "modelled", "measured"]);
    assert!(!text(run, "label").is_empty() && !text(run, "input").is_empty());
    for part in ["counters", "modelled"] {
        let figures = run[part].as_object().expect("figures by name");
        assert!(!figures.is_empty() && figures.values().all(Value::is_u64), "{part}: whole numbers");
    }
    assert_eq!(run["measured"], Value::Object(Map::new()), "nothing is measured");
}

fn check_claim(claim: &Value) {
    let keys = ["what", "published", "source", "ours", "kind", "verdict", "reason", "leaves_out", "rests_on"];
    let claim = object(claim, &keys);
    for key in ["what", "published", "source", "ours"] {
        assert!(!text(claim, key).is_empty(), "{key} of {claim:?}");
    }
    assert!(["counted", "modelled"].contains(&text(claim, "kind")), "{claim:?}");
    let verdicts: &[&str] = match text(claim, "source") {
        "our own promise" => &["kept", "undecided", "missed"],
        _ => &["reproduced", "better", "undecided", "differs"],
    };
    assert!(verdicts.contains(&text(claim, "verdict")), "{claim:?}");
    if text(claim, "kind") == "modelled" {
        assert!(!text(claim, "rests_on").is_empty(), "a modelled figure rests on assumed costs: {claim:?}");
    }
}

#[test]
fn evaluate_writes_the_same_valid_document_twice() {
    let (name, runs, claims) = subject();
    let files = ["first", "second"].map(|which| {
        let path = env::temp_dir().join(format!("pagewright-evaluate-{which}-{}.json", process::id()));
        path.to_str().expect("a path in UTF-8").to_owned()
    });
    for mut child in files.each_ref().map(|file| evaluate(name, file)) {
        assert!(child.wait().expect("it was started").success());
    }
    let [document, other] = files.map(|file| {
        let bytes = fs::read(&file).expect("a document");
        fs::remove_file(&file).expect("our own file");
        let mut document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let made_by = document.as_object_mut().and_then(|document| document.remove("made_by")).expect("it is said");
        let made_by = object(&made_by, &["version", "commit", "date", "command"]);
        assert!(text(made_by, "command").starts_with(&format!("pagewright evaluate {name} --json ")), "{made_by:?}");
        assert_eq!(text(made_by, "version"), env!("CARGO_PKG_VERSION"));
        document
    });
    assert!(document == other, "the documents differ");
    let document = object(&document, &["schema", "evaluations"]);
    assert_eq!(document["schema"], 1);
    let [evaluation] = &document["evaluations"].as_array().expect("a list")[..] else { panic!("one evaluation") };
    let keys = ["name", "isa", "config", "measured_on", "runs", "claims", "notes"];
    let evaluation = object(evaluation, &keys);
    assert_eq!(text(evaluation, "name"), name);
    assert_eq!(evaluation["measured_on"], Value::Object(Map::new()));
    let list = |key: &str| evaluation[key].as_array().expect("a list");
    list("runs").iter().for_each(check_run);
    list("claims").iter().for_each(check_claim);
    assert!(list("runs").len() >= runs && list("claims").len() >= claims, "{} runs", list("runs").len());
}
