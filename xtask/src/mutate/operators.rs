//! The replacements: of operators, of methods, and of results by their type.

use super::mutant::Operator;
use syn::{BinOp, GenericArgument, PathArguments, ReturnType, Type};

/// What stands for a binary operator in a mutant, and by which rule.
pub(super) fn binary(operator: &BinOp) -> &'static [(&'static str, Operator)] {
    use Operator::{Arithmetic, Comparison, Logic};
    match operator {
        BinOp::Lt(_) => &[("<=", Comparison), (">=", Comparison)],
        BinOp::Le(_) => &[("<", Comparison), (">", Comparison)],
        BinOp::Gt(_) => &[(">=", Comparison), ("<=", Comparison)],
        BinOp::Ge(_) => &[(">", Comparison), ("<", Comparison)],
        BinOp::Eq(_) => &[("!=", Comparison)],
        BinOp::Ne(_) => &[("==", Comparison)],
        BinOp::And(_) => &[("||", Logic)],
        BinOp::Or(_) => &[("&&", Logic)],
        BinOp::Add(_) => &[("-", Arithmetic)],
        BinOp::Sub(_) => &[("+", Arithmetic)],
        BinOp::Mul(_) => &[("+", Arithmetic)],
        BinOp::Div(_) | BinOp::Rem(_) => &[("*", Arithmetic)],
        BinOp::BitAnd(_) => &[("|", Arithmetic)],
        BinOp::BitOr(_) | BinOp::BitXor(_) => &[("&", Arithmetic)],
        BinOp::Shl(_) => &[(">>", Arithmetic)],
        BinOp::Shr(_) => &[("<<", Arithmetic)],
        BinOp::AddAssign(_) => &[("-=", Arithmetic)],
        BinOp::SubAssign(_) => &[("+=", Arithmetic)],
        BinOp::BitAndAssign(_) => &[("|=", Arithmetic)],
        BinOp::BitOrAssign(_) | BinOp::BitXorAssign(_) => &[("&=", Arithmetic)],
        _ => &[],
    }
}

/// Whether the operator also assigns.
pub(super) fn assigns(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Methods with the same types and the opposite meaning.
const OPPOSITE: [(&str, &str); 7] = [
    ("min", "max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("is_some_and", "is_none_or"),
    ("saturating_add", "saturating_sub"),
    ("wrapping_add", "wrapping_sub"),
];

/// The method with the opposite meaning.
pub(super) fn opposite(method: &str) -> Option<&'static str> {
    OPPOSITE.iter().find_map(|(one, other)| {
        if method == *one {
            Some(*other)
        } else if method == *other {
            Some(*one)
        } else {
            None
        }
    })
}

/// The plain values of a function's result; `""` for a function without one.
///
/// None for a type of which no plain value is known, such as a reference.
pub(super) fn plain_results(output: &ReturnType) -> Vec<&'static str> {
    match output {
        ReturnType::Default => vec![""],
        ReturnType::Type(_, result) => plain_values(result),
    }
}

fn plain_values(result: &Type) -> Vec<&'static str> {
    let path = match result {
        Type::Tuple(tuple) if tuple.elems.is_empty() => return vec![""],
        Type::Tuple(_) => return vec!["Default::default()"],
        Type::Path(path) => &path.path,
        _ => return Vec::new(),
    };
    let Some(last) = path.segments.last() else { return Vec::new() };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "isize" => vec!["0", "1"],
        "Option" => vec!["None", "Some(Default::default())"],
        "Result" if first_argument_is_unit(&last.arguments) => vec!["Ok(())"],
        "Result" => vec!["Ok(Default::default())"],
        // A constructor without its effects would need a value that only it can make.
        "Self" => Vec::new(),
        _ => vec!["Default::default()"],
    }
}

fn first_argument_is_unit(arguments: &PathArguments) -> bool {
    let PathArguments::AngleBracketed(arguments) = arguments else { return false };
    matches!(arguments.args.first(), Some(GenericArgument::Type(Type::Tuple(tuple))) if tuple.elems.is_empty())
}
