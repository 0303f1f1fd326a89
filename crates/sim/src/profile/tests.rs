//! All profiles load, every figure has a source, and malformed profiles are refused.

use super::*;

fn text(name: &str) -> &'static str {
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text).expect("a profile that is compiled in")
}

fn broken(from: &str, to: &str) -> ProfileError {
    let text = text("icelake");
    assert!(text.contains(from), "the profile no longer has {from:?}");
    Profile::parse("broken", &text.replacen(from, to, 1)).expect_err("a broken profile")
}

#[test]
fn every_profile_loads_and_every_figure_has_a_source() {
    for name in Profile::names() {
        let profile = Profile::named(name).expect(name);
        for figure in profile.figures() {
            assert!(figure.source.len() > 20, "{name}: {} has no real source", figure.name);
        }
        for cost in Cost::ALL.iter().filter(|cost| cost.applies_to(profile.isa())) {
            assert!(profile.cost(*cost) > Picos::ZERO, "{name}: {} is free", cost.name());
        }
        let reached = |kinds: [TlbKind; 3], level: Level| {
            profile.geometry.tlbs.iter().any(|tlb| kinds.contains(&tlb.kind) && tlb.levels.contains(&level))
        };
        for level in [Level::PTE, Level::PMD] {
            assert!(reached([TlbKind::L1Data, TlbKind::L2, TlbKind::L2Data], level), "{name}: data {level}");
            assert!(
                reached([TlbKind::L1Instruction, TlbKind::L2, TlbKind::L2Instruction], level),
                "{name}: code {level}"
            );
        }
    }
    for isa in IsaKind::ALL {
        assert_eq!(Profile::named(Profile::default_for(isa)).expect("a default").isa(), isa);
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Profile::named("pentium").expect_err("no such profile").to_string();
    assert!(error.starts_with("there is no profile 'pentium'; the profiles are icelake, "), "{error}");
}

#[test]
fn cycles_become_picoseconds_of_the_clock() {
    let profile =
        Profile::parse("half", &text("icelake").replacen("mhz = 3000", "mhz = 500", 1)).expect("a slower clock");
    let cost = |profile: &Profile| profile.cost(Cost::L2TlbHit);
    assert_eq!(cost(&profile), Picos::new(7 * 2000));
    assert_eq!(profile.cost(Cost::IpiAck), Picos::from_nanos(100), "a cost in ns does not depend on the clock");
}

#[test]
fn costs_of_flushing_move_to_the_ends_of_their_bands() {
    let profile = Profile::named("snapdragon888").expect("a shipped profile");
    let cheap = profile.clone().with_flushes_at(BandEnd::Low, BandEnd::High);
    let ns = |profile: &Profile, cost| profile.cost(cost).raw() / 1000;
    assert_eq!([Cost::DsbWait, Cost::TlbiComplete].map(|cost| ns(&profile, cost)), [200, 12]);
    assert_eq!([Cost::DsbWait, Cost::TlbiComplete].map(|cost| ns(&cheap, cost)), [20, 145]);
    // Without a band: half, and one and a half.
    assert_eq!(profile.band(Cost::IpiSend).map(Picos::raw), [100_000, 300_000]);
    assert_eq!(cheap.cost(Cost::SwapOut), profile.cost(Cost::SwapOut), "no cost of flushing");
}

#[test]
fn malformed_profiles_are_refused() {
    let name = || "broken".to_owned();
    assert!(matches!(broken("isa = \"x86-64\"", "isa = \"mips\""), ProfileError::Syntax { .. }));
    assert_eq!(broken("mhz = 3000", "mhz = 0"), ProfileError::Stopped { name: name() });
    let renamed = broken("[cost.syscall]", "[cost.sysenter]");
    assert_eq!(renamed, ProfileError::UnknownCost { name: name(), cost: "sysenter".to_owned(), isa: IsaKind::X86_64 });
    let foreign = broken("[cost.flush_all]", "[cost.tlbi]");
    assert_eq!(foreign, ProfileError::UnknownCost { name: name(), cost: "tlbi".to_owned(), isa: IsaKind::X86_64 });
    let twice = broken("[cost.ipi_ack]\n", "[cost.ipi_ack]\ncycles = 5\n");
    assert_eq!(twice, ProfileError::Unit { name: name(), cost: "ipi_ack".to_owned() });
    let banded =
        |table: &str, band: &str| broken(&format!("[cost.{table}]\n"), &format!("[cost.{table}]\nband = {band}\n"));
    assert_eq!(banded("ipi_ack", "[101, 200]"), ProfileError::Band { name: name(), cost: "ipi_ack".to_owned() });
    assert_eq!(banded("ipi_ack", "[50, 99]"), ProfileError::Band { name: name(), cost: "ipi_ack".to_owned() });
    assert_eq!(banded("syscall", "[1, 900]"), ProfileError::Band { name: name(), cost: "syscall".to_owned() });
    let sets = broken("entries = 2048", "entries = 1536");
    assert_eq!(sets, ProfileError::Sets { name: name(), entries: 1536, ways: 16 });
    let start = text("icelake").find("[cost.ipi_ack]").expect("a cost");
    let end = start + text("icelake")[start..].find("\n\n").expect("another table");
    let lacking = broken(&text("icelake")[start..end], "");
    assert_eq!(lacking, ProfileError::MissingCost { name: name(), cost: "ipi_ack" });
    let source = text("icelake").lines().find(|line| line.starts_with("source")).expect("a source");
    assert_eq!(
        broken(source, "source = \" \""),
        ProfileError::NoSource { name: name(), table: "frequency".to_owned() }
    );
}
