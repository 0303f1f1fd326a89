//! What the command line asks for, and what rustc is told.
//!
//! **INV-CARGO-CFG** rustc gets a `cfg` for the crate that `--cfg` names and for no other, and no
//! build without that `cfg` is reused.
//!
//! Its dependencies and its build script get none.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

/// A `cfg` of one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrateCfg {
    /// The crate, with underscores.
    pub(crate) of: String,
    name: String,
    value: Option<String>,
}

impl FromStr for CrateCfg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("--cfg {text}: not of the form CRATE:NAME or CRATE:NAME=VALUE");
        let (of, cfg) = text.split_once(':').ok_or_else(malformed)?;
        let (name, value) = match cfg.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches('"').to_owned())),
            None => (cfg, None),
        };
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_word(of) || !is_word(name) || !value.as_deref().is_none_or(is_word) {
            return Err(malformed());
        }
        Ok(Self { of: of.replace('-', "_"), name: name.to_owned(), value })
    }
}

impl fmt::Display for CrateCfg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, name, value } = self;
        write!(f, "{of}:{name}")?;
        value.iter().try_for_each(|value| write!(f, "={value}"))
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) cfgs: Vec<CrateCfg>,
    /// The words for cargo.
    pub(crate) cargo: Vec<String>,
}

impl Plan {
    /// Parses the words after `cargo pagewright`.
    pub(crate) fn parse(words: Vec<String>) -> Result<Self, String> {
        let (mut cfgs, mut words) = (Vec::new(), words.into_iter().peekable());
        while words.peek().is_some_and(|word| word == "--cfg") {
            words.next();
            cfgs.push(words.next().ok_or("--cfg: CRATE:CFG is missing")?.parse()?);
        }
        let cargo: Vec<String> = words.collect();
        let of_cargo = cargo.iter().take_while(|word| *word != "--");
        if let Some(word) = of_cargo.into_iter().find(|word| word.starts_with("--target-dir")) {
            return Err(format!("{word}: each set of --cfg has a directory below CARGO_TARGET_DIR, which may be set"));
        }
        if cfgs.is_empty() || cargo.is_empty() {
            return Err("usage: cargo pagewright --cfg CRATE:CFG [--cfg …] COMMAND-OF-CARGO …".to_owned());
        }
        Ok(Self { cfgs, cargo })
    }

    /// The words for cargo that `cargo metadata` needs, too.
    pub(crate) fn metadata_words(&self) -> Vec<&str> {
        let (mut kept, mut words) = (Vec::new(), self.cargo.iter().map(String::as_str));
        while let Some(word) = words.next() {
            match word {
                // What follows is for the program that cargo runs.
                "--" => break,
                "--locked" | "--offline" | "--frozen" => kept.push(word),
                "--manifest-path" => kept.extend([word].into_iter().chain(words.next())),
                _ if word.starts_with("--manifest-path=") => kept.push(word),
                _ => {}
            }
        }
        kept
    }

    /// The name of the target directory.
    pub(crate) fn directory(&self) -> String {
        let names: Vec<String> = self.cfgs.iter().map(|cfg| cfg.to_string().replace([':', '='], "-")).collect();
        names.join("+")
    }

    /// The cfgs, one a line.
    pub(crate) fn cfgs_as_text(&self) -> String {
        self.cfgs.iter().map(|cfg| format!("{cfg}\n")).collect()
    }
}

/// What `words`, a call of rustc, lack (INV-CARGO-CFG).
pub(crate) fn rustc_words(cfgs: &[CrateCfg], words: &[OsString]) -> Vec<String> {
    let name = words.iter().skip_while(|word| *word != "--crate-name").nth(1);
    let of_crate = cfgs.iter().filter(|cfg| name.is_some_and(|name| *name == *cfg.of));
    let mut added: Vec<String> = Vec::new();
    for CrateCfg { name, value, .. } in of_crate {
        let cfg = value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}=\"{value}\""));
        added.extend(["--cfg".to_owned(), cfg]);
    }
    if !added.is_empty() {
        // rustc refuses to be given one of its own cfgs, because it may contradict the target.
        added.extend(["-A".to_owned(), "explicit_builtin_cfgs_in_flags".to_owned()]);
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Result<Plan, String> {
        Plan::parse(words.split(' ').map(str::to_owned).collect())
    }

    fn added(cfgs: &[&str], rustc: &str) -> Vec<String> {
        let cfgs: Vec<CrateCfg> = cfgs.iter().map(|cfg| cfg.parse().expect("well-formed")).collect();
        rustc_words(&cfgs, &rustc.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    /// INV-CARGO-CFG.
    #[test]
    fn only_the_named_crate_gets_the_cfg() {
        let cfgs = ["page-table:target_os=none", "other:loom"];
        let builtin = ["-A", "explicit_builtin_cfgs_in_flags"];
        assert_eq!(
            added(&cfgs, "rustc --crate-name page_table --edition 2021 src/lib.rs"),
            [&["--cfg", "target_os=\"none\""], &builtin[..]].concat()
        );
        assert_eq!(added(&cfgs, "rustc --crate-name other"), [&["--cfg", "loom"], &builtin[..]].concat());
        for rustc in ["rustc -vV", "rustc --crate-name build_script_build", "rustc --crate-name page_table_entry"] {
            assert_eq!(added(&cfgs, rustc), [""; 0], "{rustc}");
        }
    }

    #[test]
    fn words_after_the_cfgs_are_for_cargo() {
        let plan = plan("--cfg a:b=\"c\" --cfg d:e test --locked --manifest-path x/Cargo.toml -- --cfg f:g --offline")
            .expect("well-formed");
        assert_eq!(plan.cfgs_as_text(), "a:b=c\nd:e\n");
        assert_eq!(plan.cargo.join(" "), "test --locked --manifest-path x/Cargo.toml -- --cfg f:g --offline");
        assert_eq!(plan.metadata_words().join(" "), "--locked --manifest-path x/Cargo.toml");
        assert_eq!(plan.directory(), "a-b-c+d-e");
    }

    #[test]
    fn a_malformed_cfg_is_refused_with_its_text() {
        for bad in ["a", "a:", ":b", "a:b=", "a:b c", "a:b\"c"] {
            assert!(bad.parse::<CrateCfg>().is_err_and(|error| error.contains(bad)), "{bad}");
        }
        for usage in ["--cfg a:b", "test", "--cfg", "--cfg a:b test --target-dir=x"] {
            assert!(plan(usage).is_err(), "{usage}");
        }
    }
}
