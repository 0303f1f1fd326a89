//! Whether this machine's build of the tests compiles an item, by its `#[cfg]` attributes.
//!
//! Code that is not compiled has no mutants: no test can kill them.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Whether the attributes let the item be compiled, and not only for tests.
pub(super) fn is_compiled(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).all(|attribute| {
        // A condition that is not understood excludes the item.
        attribute.parse_args::<Meta>().ok().and_then(|meta| holds(&meta)).unwrap_or(false)
    })
}

/// The value of a condition, or `None` if it is not known.
fn holds(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) => ["test", "loom", "miri"].iter().any(|name| path.is_ident(name)).then_some(false),
        Meta::NameValue(pair) => {
            let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { return None };
            let value = value.value();
            if pair.path.is_ident("target_arch") {
                Some(value == std::env::consts::ARCH)
            } else if pair.path.is_ident("feature") {
                // The workspace's tests enable `std`; mutants are built without planted bugs.
                match value.as_str() {
                    "std" => Some(true),
                    "planted" | "per-thread" => Some(false),
                    _ => None,
                }
            } else {
                None
            }
        }
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
            let values: Vec<Option<bool>> = parts.iter().map(holds).collect();
            if list.path.is_ident("not") {
                values.first().copied().flatten().map(|value| !value)
            } else if list.path.is_ident("all") {
                if values.contains(&Some(false)) {
                    Some(false)
                } else {
                    values.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
                }
            } else if list.path.is_ident("any") {
                if values.contains(&Some(true)) {
                    Some(true)
                } else {
                    values.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
                }
            } else {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_the_tests_on_this_machine() {
        let compiled = |text: &str| {
            let item: syn::ItemFn = syn::parse_str(&format!("{text} fn f() {{}}")).expect("a function");
            is_compiled(&item.attrs)
        };
        let here = std::env::consts::ARCH;
        assert!(compiled(""));
        assert!(compiled("#[inline]"));
        assert!(compiled("#[cfg(not(loom))]"));
        assert!(compiled(&format!("#[cfg(all(target_arch = \"{here}\", not(any(loom, miri))))]")));
        assert!(compiled("#[cfg(feature = \"std\")]"));
        assert!(!compiled("#[cfg(test)]"));
        assert!(!compiled("#[cfg(feature = \"planted\")]"));
        assert!(!compiled("#[cfg(target_arch = \"none\")]"));
        assert!(!compiled("#[cfg(some_flag)]"), "an unknown flag");
    }
}
