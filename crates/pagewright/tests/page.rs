//! Pages in a browser: no error, no request, no page wider than its window, figures as in JSON.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, process};

/// Widths of a telephone and of a laptop, in pixels.
const WIDTHS: [u64; 2] = [400, 1280];
/// The height that a page must not reach, in pixels.
const HEIGHT: u64 = 16_000;

/// Refuses every request, and sends refusals, errors, sizes and texts to the frame around the page.
const OBSERVER: &str = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<script>
const wrong = [];
addEventListener("securitypolicyviolation", event => wrong.push("request of " + event.blockedURI));
addEventListener("error", event => wrong.push("error: " + event.message), true);
addEventListener("load", () => {
  const texts = selector => [...document.querySelectorAll(selector)].map(element => element.textContent.trim());
  const root = document.documentElement;
  const rows = [...document.querySelectorAll("tbody tr")].map(row => [...row.children].map(cell => cell.textContent.trim()));
  const claims = [...document.querySelectorAll("article")].map(article => [...article.querySelectorAll("h4,.verdict,dd")].map(part => part.textContent.trim()));
  const seen = {wrong, width: root.scrollWidth, window: innerWidth, height: root.scrollHeight, rows, claims, facts: texts(".facts dd"), svgs: document.querySelectorAll("svg").length};
  document.querySelectorAll("details").forEach(details => { details.open = true; });
  seen.open = root.scrollWidth;
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"#;

/// Shows the page in a frame of some width, and has in its title what the page sends.
const FRAME: &str = r#"<!doctype html><script>
onmessage = event => { document.title = "seen " + encodeURIComponent(event.data) + " end"; };
</script><iframe style="width:WIDTHpx;height:1000px;border:0" src="observed.html"></iframe>"#;

/// A folder for one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("pagewright-page-{name}-{}", process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program with a page and a document, and returns both.
fn made(folder: &Folder, args: &[&str]) -> (String, Value) {
    let (html, json) = (folder.file("page.html"), folder.file("page.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
    command.args(args).args(["--html", &html, "--json", &json]).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(command.stderr(Stdio::null()).status().expect("the program starts").success());
    let json = serde_json::from_slice(&fs::read(json).expect("a document")).expect("JSON");
    (fs::read_to_string(html).expect("a page"), json)
}

/// What the browser sees of a page in a window of this width.
fn seen(folder: &Folder, page: &str, width: u64) -> Value {
    let path = folder.file("observed.html");
    let (head, rest) = page.split_once("<meta charset=\"utf-8\">").expect("the page has a head");
    fs::write(&path, format!("{head}<meta charset=\"utf-8\">{OBSERVER}{rest}")).expect("our own file");
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.file("profile"))).arg("--virtual-time-budget=2000");
    // The browser has no window as narrow as a telephone, but a frame can be.
    let frame = folder.file("frame.html");
    let html = FRAME.replace("WIDTH", &width.to_string());
    fs::write(&frame, html).expect("our own file");
    command.arg(format!("--window-size={},1100", width + 100)).arg(format!("file://{frame}")).stderr(Stdio::null());
    let output = command.output().expect("chromium is installed (cargo xtask setup)");
    let dom = String::from_utf8(output.stdout).expect("text");
    let seen = dom.split_once("<title>seen ").and_then(|(_, rest)| rest.split_once(" end</title>"));
    let (seen, _) = seen.unwrap_or_else(|| panic!("the page was not loaded: {dom}"));
    serde_json::from_slice(&percent_decoded(seen)).expect("JSON")
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// Asserts what is true of every page, and returns what a wide window shows.
fn check(folder: &Folder, (page, json): &(String, Value)) -> Value {
    let [narrow, wide] = WIDTHS.map(|width| seen(folder, page, width));
    for seen in [&narrow, &wide] {
        assert_eq!(seen["wrong"], Value::Array(Vec::new()), "errors and requests");
        for width in ["width", "open"] {
            assert!(seen[width].as_u64() <= seen["window"].as_u64(), "{width} in {}: {}", seen["window"], seen[width]);
        }
        assert!(seen["height"].as_u64() < Some(HEIGHT), "{}", seen["height"]);
    }
    assert_eq!([&narrow["window"], &wide["window"]].map(Value::as_u64), WIDTHS.map(Some));
    for part in ["command", "date", "version", "commit"] {
        let made_by = &json["made_by"][part];
        assert!(wide["facts"].as_array().expect("a list").contains(made_by), "{made_by}");
    }
    wide
}

fn digits(value: &Value) -> String {
    value.as_str().expect("text").replace(',', "")
}

#[test]
fn a_page_of_a_replay_shows_the_counts_of_its_document() {
    let folder = Folder::new("replay");
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/sort.pwt");
    let made = made(&folder, &["replay", capture.to_str().expect("UTF-8"), "--cpus", "2"]);
    let seen = check(&folder, &made);
    let counters = made.1["runs"][0]["counters"].as_object().expect("counters");
    let rows = seen["rows"].as_array().expect("rows");
    let mut shown = 0;
    for (name, count) in counters.iter().filter(|(name, count)| !name.ends_with("_ps") && count.as_u64() > Some(0)) {
        let row = rows.iter().find(|row| row[0] == name.as_str()).unwrap_or_else(|| panic!("no row of {name}"));
        assert_eq!(digits(&row[1]), count.to_string(), "{name}");
        shown += 1;
    }
    assert!(shown > 20 && seen["svgs"].as_u64() > Some(0), "{shown} counts");
    // Another page is found to be wrong.
    let wider =
        made.0.replace("</html>", "<p style=\"width:3000px\"><img src=\"http://example.invalid/a.png\"></html>");
    let seen = self::seen(&folder, &wider, WIDTHS[0]);
    assert!(seen["width"].as_u64() >= Some(3000) && seen["wrong"].as_array().is_some_and(|wrong| !wrong.is_empty()));
}

#[test]
fn a_page_of_an_evaluation_shows_the_claims_of_its_document() {
    let folder = Folder::new("evaluate");
    let made = made(&folder, &["evaluate", "lines"]);
    let seen = check(&folder, &made);
    let claims = made.1["evaluations"][0]["claims"].as_array().expect("claims");
    assert!(!claims.is_empty());
    let shown = seen["claims"].as_array().expect("articles");
    assert_eq!(shown.len(), claims.len());
    for (shown, claim) in shown.iter().zip(claims) {
        assert_eq!((&shown[0], &shown[1]), (&claim["what"], &claim["verdict"]));
        assert!(shown.as_array().expect("parts").contains(&claim["ours"]), "{shown} without {}", claim["ours"]);
    }
}
