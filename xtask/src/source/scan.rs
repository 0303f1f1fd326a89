//! A scanner that tells code from comments and literals, and finds functions and test items.
//!
//! [`code`] keeps the offset of every byte, so an offset in its result is an offset in the text.
//! The scanner also sees the inside of macros, which a parser would skip.
//!
//! Not guaranteed: anything about text that does not compile.

use std::ops::Range;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The name.
    pub(crate) name: String,
    /// From `fn` to the closing brace.
    pub(crate) range: Range<usize>,
}

/// A comment or literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// The bytes, with comment marks and quotes.
    pub(crate) range: Range<usize>,
    /// The kind.
    pub(crate) kind: HiddenKind,
}

/// The kind of text that is not code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HiddenKind {
    /// `//`, `///` or `//!` up to the end of the line.
    LineComment,
    /// `/* … */`.
    BlockComment,
    /// A string or a character.
    Literal,
}

/// The comments and literals of `text`, in order.
pub(crate) fn hidden(text: &str) -> Vec<Hidden> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match token_at(bytes, at) {
            None => at += 1,
            Some((end, kind)) => {
                found.push(Hidden { range: at..end, kind });
                at = end;
            }
        }
    }
    found
}

/// `text` with comments and literals replaced by spaces; line ends stay.
pub(crate) fn code(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    for byte in hidden(text).into_iter().flat_map(|hidden| hidden.range) {
        if out[byte] != b'\n' {
            out[byte] = b' ';
        }
    }
    // Every byte of a character is blanked or none, so the rest is valid UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// The end and the kind of the comment or literal that starts at `at`, if there is one.
fn token_at(bytes: &[u8], at: usize) -> Option<(usize, HiddenKind)> {
    let literal = |end| (end, HiddenKind::Literal);
    match &bytes[at..] {
        [b'/', b'/', ..] => Some((find(bytes, at, b'\n'), HiddenKind::LineComment)),
        [b'/', b'*', ..] => Some((block_comment_end(bytes, at), HiddenKind::BlockComment)),
        [b'"', ..] => Some(literal(string_end(bytes, at))),
        [b'r', b'"' | b'#', ..] if !continues_word(bytes, at) => raw_string_end(bytes, at + 1).map(literal),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !continues_word(bytes, at) => {
            raw_string_end(bytes, at + 2).map(literal)
        }
        [b'\'', ..] => char_end(bytes, at).map(literal),
        [_, ..] | [] => None,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn continues_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

/// The offset of the first `wanted` from `at`, or the end.
fn find(bytes: &[u8], at: usize, wanted: u8) -> usize {
    bytes[at..].iter().position(|byte| *byte == wanted).map_or(bytes.len(), |found| at + found)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0u32);
    while at + 1 < bytes.len() {
        match (bytes[at], bytes[at + 1]) {
            (b'/', b'*') => (at, depth) = (at + 2, depth + 1),
            (b'*', b'/') => (at, depth) = (at + 2, depth - 1),
            (_, _) => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string whose hashes start at `hashes`, or `None` for a raw identifier.
fn raw_string_end(bytes: &[u8], hashes: usize) -> Option<usize> {
    let quote = bytes[hashes..].iter().position(|byte| *byte != b'#').map(|count| hashes + count)?;
    if bytes[quote] != b'"' {
        return None;
    }
    let count = quote - hashes;
    let mut at = quote + 1;
    loop {
        at = find(bytes, at, b'"') + 1;
        if at >= bytes.len() {
            return Some(bytes.len());
        }
        if bytes[at..].iter().take_while(|byte| **byte == b'#').count() >= count {
            return Some(at + count);
        }
    }
}

/// The end of a character literal, or `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        return Some((find(bytes, start + 3, b'\'') + 1).min(bytes.len()));
    }
    // A character of up to four bytes, then the quote, which a lifetime lacks.
    let end = (start + 2..start + 6).find(|at| bytes.get(*at) == Some(&b'\''))?;
    let inside = std::str::from_utf8(&bytes[start + 1..end]).ok()?;
    (inside.chars().count() == 1).then_some(end + 1)
}

/// The offset after the brace that closes the one at `open`, in blanked code.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0u32;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The offset of the bracket of any kind that closes the one before `start`, in blanked code.
pub(crate) fn closing_bracket(code: &str, start: usize) -> usize {
    let mut depth = 1u32;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

/// The offset of the body or the semicolon of the item at `start`.
///
/// It is the first of either outside parentheses and brackets.
fn body(code: &str, start: usize) -> Option<(usize, u8)> {
    let mut depth = 0i32;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' | b';' if depth == 0 => return Some((at, byte)),
            _ => {}
        }
    }
    None
}

/// The offsets of `word` as a whole word in blanked code.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let bytes = code.as_bytes();
        !continues_word(bytes, *at) && bytes.get(at + word.len()).is_none_or(|byte| !is_word(*byte))
    })
}

/// Every function with a body in blanked code, nested ones included.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    words(code, "fn")
        .filter_map(|start| {
            let after = code[start + 2..].trim_start();
            let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '$').collect();
            // `fn(` without a name is a type.
            if name.is_empty() {
                return None;
            }
            match body(code, start)? {
                (open, b'{') => Some(Function { name, range: start..closing(code, open) }),
                (_, _) => None,
            }
        })
        .collect()
}

/// The items under `#[cfg(test)]` in blanked code, with the attribute.
pub(crate) fn test_items(code: &str) -> Vec<Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut items: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices(ATTRIBUTE) {
        if items.last().is_some_and(|last| last.contains(&start)) {
            continue;
        }
        let end = match body(code, start + ATTRIBUTE.len()) {
            Some((open, b'{')) => closing(code, open),
            Some((semicolon, _)) => semicolon + 1,
            None => code.len(),
        };
        items.push(start..end);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, usize)> {
        let code = code(text);
        functions(&code).into_iter().map(|f| (f.name, text[f.range].lines().count())).collect()
    }

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        for (text, blanked) in [
            ("a // {\nb", "a     \nb"),
            ("a /* { /* } */ { */ b", "a                   b"),
            (r#"f("{\"", x)"#, r#"f(     , x)"#),
            (r##"f(r#"{"{"#, x)"##, r##"f(        , x)"##),
            (r"f('{', '\'', '\u{7b}')", r"f(   ,     ,         )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("b'{' r#fn", "b    r#fn"),
            ("'é'", "    "),
        ] {
            let got = code(text);
            assert_eq!(got, blanked, "{text}");
            assert_eq!(got.len(), text.len());
        }
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "fn a() {\n  let s = \"}\";\n}\ntrait T { fn no_body(&self); }\nfn b<F: Fn(fn() -> u8)>(f: [F; { 1 }])\nwhere F: Copy {\n  fn c() {}\n}\n";
        assert_eq!(names(text), [("a".into(), 3), ("b".into(), 4), ("c".into(), 1)]);
    }

    #[test]
    fn functions_in_macros_are_found() {
        assert_eq!(names("macro_rules! m { ($n:ident) => { fn $n() {\n } } }"), [("$n".into(), 2)]);
    }

    #[test]
    fn test_items_end_at_their_semicolon_or_brace() {
        let text =
            "#[cfg(test)]\nuse x::y;\nfn a() {}\n#[cfg(test)]\nmod tests {\n  #[cfg(test)] fn t() {}\n}\nfn b() {}";
        let code = code(text);
        let items: Vec<&str> = test_items(&code).into_iter().map(|range| &text[range]).collect();
        assert_eq!(items.len(), 2);
        assert_eq!(items[0], "#[cfg(test)]\nuse x::y;");
        assert!(items[1].ends_with("fn t() {}\n}"));
    }
}
