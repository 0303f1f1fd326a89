//! A planted source in, the expected mutants and the expected rewritten source out.

use super::generate::mutants_of;
use super::mutant::{Mutant, Operator};
use super::rewrite::rewrite;
use super::{SCOPES, mutants};
use crate::cargo::Workspace;
use std::collections::BTreeSet;

fn all(text: &str) -> Vec<Mutant> {
    mutants_of("p", "a.rs", text).expect("Rust").mutants
}

fn shown(text: &str) -> Vec<String> {
    all(text).iter().map(|mutant| format!("{} → {}", mutant.mutation.original, mutant.mutation.replacement)).collect()
}

/// Rewrites `text` with the mutants of `operator`, numbered from 0.
fn rewritten(text: &str, operator: Operator) -> String {
    let mutants = all(text);
    let chosen = mutants.iter().filter(|mutant| mutant.mutation.operator == operator).enumerate();
    rewrite(text, chosen).text.replace("::pagewright_plant::mutant::", "")
}

#[test]
fn every_operator_makes_its_mutants() {
    let text = "fn f(a: u64, b: u64) -> bool {\n    g(a);\n    if !h(b) { return a + 1 < b.min(7); }\n    a == 0\n}\n";
    assert_eq!(
        shown(text)[2..],
        [
            "g(a); → removed",
            "!h(b) → true",
            "!h(b) → false",
            "!h(b) → h(b)",
            "a + 1 < b.min(7) → a + 1 <= b.min(7)",
            "a + 1 < b.min(7) → a + 1 >= b.min(7)",
            "a + 1 → a - 1",
            "1 → 2",
            "1 → 0",
            "b.min(7) → b.max(7)",
            "7 → 8",
            "7 → 6",
            "a == 0 → a != 0",
            "0 → 1",
        ]
    );
    assert_eq!(shown(text)[..2], ["fn f → return true", "fn f → return false"]);
}

#[test]
fn constants_types_tests_macros_and_conditions_with_let_are_left_alone() {
    for text in [
        "const A: u64 = 1 + 2;",
        "static A: [u8; 4] = [0; 4];",
        "fn f(a: [u8; 4]) -> &'static u8 { const A: u8 = 7; &A }",
        "#[cfg(test)] mod tests { fn f() { g(1); } }",
        "fn f() -> &'static u8 { assert!(1 < 2) }",
        "impl fmt::Display for A { fn fmt(&self) -> bool { 1 < 2 } }",
        "fn f(a: Option<u8>) -> &'static u8 { if let Some(b) = a && let Some(c) = b { c } else { a } }",
        "fn f(a: u8) -> &'static u8 { match a { 1..=3 => x, b => y } }",
        "fn f(a: bool) -> &'static u8 { if cfg!(miri) && a { b } else { c } }",
        "fn f(a: bool) -> &'static u8 { if a || !cfg!(miri) { b } else { c } }",
    ] {
        assert_eq!(shown(text), Vec::<String>::new(), "{text}");
    }
    assert!(all("const fn f(a: u64) -> u64 { a + 1 }").iter().all(|mutant| mutant.is_const));
}

/// Whatever its form: the parser has the attributes of each form at another node.
#[test]
fn statements_that_this_machine_does_not_compile_have_no_mutants() {
    for statement in [
        "unsafe { g(1); }",
        "{ g(1); }",
        "if a < b { g(1); }",
        "match a { A::B => 1, A::C => 2 };",
        "while a < b { g(1); }",
        "loop { break; }",
        "for c in 1..2 { g(c); }",
        "let c = 1;",
        "a = 1;",
        "a += 1;",
        "a[1] = b < c;",
        "g(1);",
        "a.b(1)?;",
        "!a",
        "a < b",
        "return 1;",
    ] {
        let with =
            |condition: &str| shown(&format!("fn f(a: bool) -> &'static u8 {{ {condition} {statement} }}")).len();
        let here = std::env::consts::ARCH;
        assert_eq!(with("#[cfg(target_arch = \"none\")]"), 0, "{statement}");
        assert_ne!(with(&format!("#[cfg(target_arch = \"{here}\")]")), 0, "{statement}");
        assert_ne!(with(""), 0, "{statement}");
    }
    let text = "fn f() -> &'static u8 { /// A comment.\n #[inline] #[cfg(test)] unsafe { g(1) } }";
    assert_eq!(shown(text), Vec::<String>::new(), "after other attributes");
}

#[test]
fn an_expression_is_switched_and_inner_changes_are_in_its_original_only() {
    let text = "fn f() -> Self { a || b || c }";
    assert_eq!(
        rewritten(text, Operator::Logic),
        "fn f() -> Self { (if is(0) { a || b && c } else { (if is(1) { a && b } else { a || b }) || c }) }"
    );
    let text = "fn f() -> Self { a < b }";
    assert_eq!(
        rewritten(text, Operator::Comparison),
        "fn f() -> Self { (if is(0) { a <= b } else if is(1) { a >= b } else { a < b }) }"
    );
}

#[test]
fn a_statement_is_skipped_and_a_function_returns_early() {
    let text = "fn f() { a.b(); }";
    assert_eq!(rewritten(text, Operator::Statement), "fn f() { if !is(0) { a.b(); } }");
    assert_eq!(rewritten(text, Operator::Body), "fn f() {if is(0) { return }  a.b(); }");
    assert_eq!(shown("fn f() { fence(Ordering::SeqCst); }"), ["fn f → return"], "no ordering is mutated");
    assert_eq!(shown("fn f() { a.assert_b(); }"), ["fn f → return"], "no assertion is mutated");
    assert_eq!(shown("fn f() { b::assert_c(); }"), ["fn f → return"], "no assertion is mutated");
    assert_eq!(shown("fn f() { A::point(); }"), ["fn f → return"], "no scheduling point is mutated");
    for name in ["point", "assert_a"] {
        assert_eq!(shown(&format!("fn {name}() {{ a.b(); }}")), ["a.b(); → removed"], "{name}, as at its calls");
    }
    let text = "fn f() -> u8 { a.b() }";
    assert_eq!(rewritten(text, Operator::Body), "fn f() -> u8 {if is(0) { return 0 } if is(1) { return 1 }  a.b() }");
}

#[test]
fn arms_without_bindings_swap_their_results() {
    let text = "fn f() -> Self { match a { A::B => { c } A::D => e, A::F(g) => g } }";
    assert_eq!(
        rewritten(text, Operator::Arms),
        "fn f() -> Self { match a { A::B => { if is(0) { e } else { { c } } } A::D => { if is(0) { { c } } else { e } }, \
         A::F(g) => g } }"
    );
}

#[test]
fn a_compiler_error_belongs_to_the_changed_text_or_else_to_the_innermost_switch() {
    let text = "fn f() -> Self { a || b < c }";
    let mutants = all(text);
    let rewritten = rewrite(text, mutants.iter().enumerate());
    let at = |part: &str| {
        let start = rewritten.text.find(part).expect("the part");
        rewritten.mutants_at(&(start..start + part.len()))
    };
    let number = |replacement: &str| {
        mutants.iter().position(|mutant| mutant.mutation.replacement == replacement).expect("the mutant")
    };
    assert_eq!(at("a && b < c"), [number("a && b < c")]);
    assert_eq!(at("b <= c"), [number("b <= c")]);
    assert_eq!(at("b < c })"), [number("b <= c"), number("b >= c")], "the switch around both");
    assert!(at("fn f").is_empty());
    assert_eq!(rewritten.mutants_before(rewritten.text.len()), [number("b <= c"), number("b >= c")]);
}

#[test]
fn ids_do_not_depend_on_lines_and_equal_changes_of_one_function_differ() {
    let text = "fn f() -> Self { g(a < b, a < b) }";
    let ids = |text: &str| all(text).into_iter().map(|mutant| mutant.mutation.id).collect::<Vec<_>>();
    let found = ids(text);
    assert_eq!(found, ids(&format!("\n\n{text}")));
    let mut unique = found.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), found.len());
}

#[test]
fn every_area_of_the_source_has_mutants_and_each_has_its_own_id() {
    let workspace = Workspace::load().expect("the workspace");
    let found = mutants(&workspace).expect("every file is Rust");
    for scope in &SCOPES {
        let areas = scope.modules.iter().map(|module| format!("{}/{module}", scope.source));
        let areas: Vec<String> = if scope.modules.is_empty() { vec![scope.source.to_owned()] } else { areas.collect() };
        for area in areas {
            assert!(found.iter().any(|mutant| mutant.mutation.file.starts_with(&area)), "{area}");
        }
    }
    let ids: BTreeSet<&str> = found.iter().map(|mutant| mutant.mutation.id.as_str()).collect();
    assert_eq!(ids.len(), found.len());
}
