//! Makes the mutants of a file from its syntax tree.
//!
//! Not mutated: tests, code that this machine does not compile ([`super::compiled`]), the arguments
//! of macros (so no planted bug and no assertion), constants and types, and `fmt` functions.
//! A function that is an assertion or a scheduling point by its name ([`is_spared`]) loses neither
//! its calls nor its body. What it computes is mutated as elsewhere.

use super::compiled::is_compiled;
use super::mutant::{Edit, EditForm, Mutant, Mutation, Operator, assign_ids, one_line};
use super::operators::{assigns, binary, opposite, plain_results};
use proc_macro2::TokenStream;
use std::ops::Range;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, ConstParam, Expr, ExprConst, ExprIf, ExprLit, ExprMatch, ExprRepeat, GenericArgument,
    Ident, ImplItemConst, ImplItemFn, ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Lit, Pat,
    Signature, Stmt, TraitItemConst, TraitItemFn, Type, UnOp,
};

/// The mutants of a file, and the files of the modules that it declares.
pub(crate) struct OfFile {
    /// The mutants, in the order of the source.
    pub(crate) mutants: Vec<Mutant>,
    /// The names of the modules in other files that are compiled.
    pub(crate) modules: Vec<String>,
}

/// Makes the mutants of `text`.
///
/// # Errors
/// The parser's, if the text is not Rust.
pub(crate) fn mutants_of(package: &str, file: &str, text: &str) -> syn::Result<OfFile> {
    let tree = syn::parse_file(text)?;
    let mut generator = Generator {
        package,
        file,
        text,
        scope: Vec::new(),
        in_function: false,
        is_const: false,
        of_file: OfFile { mutants: Vec::new(), modules: Vec::new() },
    };
    generator.visit_file(&tree);
    assign_ids(&mut generator.of_file.mutants);
    Ok(generator.of_file)
}

struct Generator<'a> {
    package: &'a str,
    file: &'a str,
    text: &'a str,
    /// Type or trait, and functions around the current node.
    scope: Vec<String>,
    in_function: bool,
    /// Whether the current function is a `const fn`.
    is_const: bool,
    of_file: OfFile,
}

impl Generator<'_> {
    fn source(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn push(&mut self, operator: Operator, shown: Range<usize>, replacement: &str, edits: Vec<Edit>) {
        if !self.in_function {
            return;
        }
        let mutation = Mutation {
            id: String::new(),
            package: self.package.to_owned(),
            file: self.file.to_owned(),
            line: self.text[..shown.start].bytes().filter(|byte| *byte == b'\n').count() + 1,
            function: self.scope.join("::"),
            operator,
            original: one_line(&self.text[shown]),
            replacement: one_line(replacement),
            ordinal: 1,
        };
        self.of_file.mutants.push(Mutant { mutation, edits, is_const: self.is_const });
    }

    /// A mutant that replaces an expression.
    fn replace(&mut self, operator: Operator, node: &impl Spanned, text: String) {
        let range = node.span().byte_range();
        let edit = Edit { range: range.clone(), form: EditForm::Expression, text: text.clone() };
        self.push(operator, range, &text, vec![edit]);
    }

    fn function(&mut self, signature: &Signature, block: &Block, visit: impl FnOnce(&mut Self)) {
        let name = signature.ident.to_string();
        if name == "fmt" {
            return;
        }
        let before = (self.in_function, self.is_const);
        self.scope.push(name);
        self.in_function = true;
        self.is_const = before.1 || signature.constness.is_some();
        if !block.stmts.is_empty() && !is_spared(&signature.ident) {
            let body = block.span().byte_range();
            let start = block.brace_token.span.open().byte_range().end;
            let current = self.text[start..body.end - 1].trim().to_owned();
            for value in plain_results(&signature.output).into_iter().filter(|value| *value != current) {
                let text = format!("return {value}").trim_end().to_owned();
                let edit = Edit { range: start..start, form: EditForm::Entry, text: text.clone() };
                self.push(Operator::Body, body.clone(), &text, vec![edit]);
                // The whole body would say less than its name.
                if let Some(mutant) = self.of_file.mutants.last_mut() {
                    mutant.mutation.original = format!("fn {}", signature.ident);
                }
            }
        }
        visit(self);
        self.scope.pop();
        (self.in_function, self.is_const) = before;
    }

    fn scoped(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }

    /// Mutants in which a condition is always true or never.
    fn condition(&mut self, condition: &Expr) {
        if !is_fixed(condition) {
            for value in ["true", "false"] {
                self.replace(Operator::Condition, condition, value.to_owned());
            }
        }
    }

    fn binary(&mut self, node: &syn::ExprBinary) {
        if matches!(node.op, BinOp::And(_) | BinOp::Or(_)) && (is_fixed(&node.left) || is_fixed(&node.right)) {
            return;
        }
        for (operator, rule) in binary(&node.op) {
            let text = format!("{} {operator} {}", self.source(&node.left), self.source(&node.right));
            self.replace(*rule, node, text);
        }
    }

    fn number(&mut self, node: &ExprLit) {
        let Lit::Int(literal) = &node.lit else { return };
        let Ok(value) = literal.base10_parse::<u64>() else { return };
        let suffix = literal.suffix();
        for other in [value.checked_add(1), value.checked_sub(1)].into_iter().flatten() {
            self.replace(Operator::Number, node, format!("{other}{suffix}"));
        }
    }

    /// Mutants in which neighbouring arms without bindings swap their results.
    fn arms(&mut self, node: &ExprMatch) {
        let arms: Vec<&Arm> = node.arms.iter().filter(|arm| is_compiled(&arm.attrs) && !binds(&arm.pat)).collect();
        for pair in arms.windows(2) {
            let [one, other] = [&pair[0].body, &pair[1].body];
            let (first, second) = (self.source(one).to_owned(), self.source(other).to_owned());
            if first == second {
                continue;
            }
            let edit = |arm: &Expr, text: &str| Edit {
                range: arm.span().byte_range(),
                form: EditForm::Arm,
                text: text.to_owned(),
            };
            let edits = vec![edit(one, &second), edit(other, &first)];
            let shown = pair[0].span().start_to(pair[1].span());
            self.push(Operator::Arms, shown, "the results of the two arms swapped", edits);
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        let Stmt::Expr(expression, Some(_)) = statement else { return };
        if is_removable(expression) {
            let range = statement.span().byte_range();
            let edit = Edit { range: range.clone(), form: EditForm::Removal, text: String::new() };
            self.push(Operator::Statement, range, "removed", vec![edit]);
        }
    }
}

/// The bytes from the start of one span to the end of another.
trait StartTo {
    fn start_to(&self, end: Self) -> Range<usize>;
}

impl StartTo for proc_macro2::Span {
    fn start_to(&self, end: Self) -> Range<usize> {
        self.byte_range().start..end.byte_range().end
    }
}

/// Whether a condition is left alone.
///
/// It is if it contains a `let`, which an `if` around it would end, or asks how the program was
/// built (`cfg!`).
fn is_fixed(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Macro(node) => node.mac.path.is_ident("cfg"),
        Expr::Unary(node) => is_fixed(&node.expr),
        Expr::Binary(node) => is_fixed(&node.left) || is_fixed(&node.right),
        _ => false,
    }
}

/// Whether a statement of this expression can be skipped: a call or an assignment.
///
/// Not a fence, because no ordering is mutated; no assertion, be it a macro or a function; and no
/// scheduling point, which does nothing outside a search.
fn is_removable(expression: &Expr) -> bool {
    match expression {
        Expr::Call(node) => !matches!(&*node.func, Expr::Path(called)
            if called.path.is_ident("fence") || called.path.segments.last().is_some_and(|last| is_spared(&last.ident))),
        Expr::MethodCall(node) => !is_spared(&node.method),
        Expr::Assign(_) => true,
        Expr::Binary(node) => assigns(&node.op),
        Expr::Try(node) => is_removable(&node.expr),
        _ => false,
    }
}

/// Whether a function is an assertion or a scheduling point, by its name.
///
/// While assertions hold, and outside of a search, the program does the same without the call and
/// without the body.
fn is_spared(name: &Ident) -> bool {
    name == "point" || name.to_string().starts_with("assert_")
}

/// The attributes before a statement of any form.
///
/// They are read from its text. The tree has them at a node that depends on the form: those of an
/// assignment are at its left side.
fn leading_attributes(statement: &str) -> Vec<Attribute> {
    let read = |input: ParseStream<'_>| {
        let attributes = Attribute::parse_outer(input)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    // The text is part of a file that was parsed.
    read.parse_str(statement).unwrap_or_default()
}

/// Whether a pattern may bind a name or has a guard.
fn binds(pattern: &Pat) -> bool {
    match pattern {
        Pat::Lit(_) | Pat::Path(_) | Pat::Range(_) | Pat::Rest(_) | Pat::Wild(_) | Pat::Const(_) => false,
        // A constant or a variant is written in upper case.
        Pat::Ident(node) => node.subpat.is_some() || !node.ident.to_string().starts_with(char::is_uppercase),
        Pat::Or(node) => node.cases.iter().any(binds),
        Pat::Paren(node) => binds(&node.pat),
        Pat::Reference(node) => binds(&node.pat),
        Pat::Slice(node) => node.elems.iter().any(binds),
        Pat::Struct(node) => node.fields.iter().any(|field| binds(&field.pat)),
        Pat::Tuple(node) => node.elems.iter().any(binds),
        Pat::TupleStruct(node) => node.elems.iter().any(binds),
        _ => true,
    }
}

/// The name of a type in a scope.
fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |last| last.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => String::from("_"),
    }
}

impl<'ast> Visit<'ast> for Generator<'_> {
    fn visit_item_fn(&mut self, node: &'ast ItemFn) {
        if is_compiled(&node.attrs) {
            self.function(&node.sig, &node.block, |this| visit::visit_item_fn(this, node));
        }
    }

    fn visit_impl_item_fn(&mut self, node: &'ast ImplItemFn) {
        if is_compiled(&node.attrs) {
            self.function(&node.sig, &node.block, |this| visit::visit_impl_item_fn(this, node));
        }
    }

    fn visit_trait_item_fn(&mut self, node: &'ast TraitItemFn) {
        if let Some(block) = node.default.as_ref().filter(|_| is_compiled(&node.attrs)) {
            self.function(&node.sig, block, |this| visit::visit_trait_item_fn(this, node));
        }
    }

    fn visit_item_impl(&mut self, node: &'ast ItemImpl) {
        if is_compiled(&node.attrs) {
            self.scoped(type_name(&node.self_ty), |this| visit::visit_item_impl(this, node));
        }
    }

    fn visit_item_trait(&mut self, node: &'ast ItemTrait) {
        if is_compiled(&node.attrs) {
            self.scoped(node.ident.to_string(), |this| visit::visit_item_trait(this, node));
        }
    }

    fn visit_item_mod(&mut self, node: &'ast ItemMod) {
        if !is_compiled(&node.attrs) {
            return;
        }
        match &node.content {
            Some(_) => visit::visit_item_mod(self, node),
            None => self.of_file.modules.push(node.ident.to_string()),
        }
    }

    fn visit_stmt(&mut self, node: &'ast Stmt) {
        if is_compiled(&leading_attributes(self.source(node))) {
            self.statement(node);
            visit::visit_stmt(self, node);
        }
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        match node {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) && !is_fixed(&unary.expr) => {
                let text = self.source(&unary.expr).to_owned();
                self.replace(Operator::Negation, node, text);
            }
            Expr::Lit(literal) => self.number(literal),
            Expr::If(ExprIf { cond, .. }) => self.condition(cond),
            Expr::Match(of) => self.arms(of),
            Expr::Break(jump) if jump.label.is_none() && jump.expr.is_none() => {
                self.replace(Operator::Jump, node, "continue".to_owned());
            }
            Expr::Continue(jump) if jump.label.is_none() => self.replace(Operator::Jump, node, "break".to_owned()),
            Expr::MethodCall(call) => {
                if let Some(other) = opposite(&call.method.to_string()) {
                    let (whole, name) = (node.span().byte_range(), call.method.span().byte_range());
                    let text =
                        format!("{}{other}{}", &self.text[whole.start..name.start], &self.text[name.end..whole.end]);
                    self.replace(Operator::Method, node, text);
                }
            }
            _ => {}
        }
        visit::visit_expr(self, node);
    }

    fn visit_arm(&mut self, node: &'ast Arm) {
        if is_compiled(&node.attrs) {
            visit::visit_arm(self, node);
        }
    }

    fn visit_pat(&mut self, node: &'ast Pat) {
        // No other pattern contains an expression that runs.
        if let Pat::Guard(guard) = node {
            self.condition(&guard.guard);
            self.visit_expr(&guard.guard);
        }
    }

    fn visit_expr_repeat(&mut self, node: &'ast ExprRepeat) {
        self.visit_expr(&node.expr);
    }

    // Constants and types.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_generic_argument(&mut self, _: &'ast GenericArgument) {}
    fn visit_const_param(&mut self, _: &'ast ConstParam) {}
    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast TraitItemConst) {}
}
