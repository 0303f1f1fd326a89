//! The encoding of the rare events: a sequence of fields.
//!
//! An integer is an LEB128 varint. A string and a list begin with their length, an option and a
//! result with a tag byte. [`wire_enum`] and [`wire_struct`] declare a type together with its
//! encoding, so the two agree. The decoder checks every byte, and every failure is a
//! [`Corruption`].

use super::error::Corruption;
use super::ids::{FileId, PageNo, Pid, Prot, RawErrno, RawMapFlags, Tid, UserAddr};

/// A field of a record.
pub(crate) trait Wire: Sized {
    /// Appends the encoding of `self`.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes a value and removes it from the front of `input`.
    fn get(input: &mut &[u8]) -> Result<Self, Corruption>;
}

/// Declares an enum whose variants have tags in the file.
macro_rules! wire_enum {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$vdoc:meta])* $tag:literal => $variant:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* },)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant { $($(#[$fdoc])* $field: $type,)* },)*
        }

        impl $crate::trace::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field,)* } => {
                        out.push($tag);
                        $($crate::trace::wire::Wire::put($field, out);)*
                    })*
                }
            }

            fn get(input: &mut &[u8]) -> Result<Self, $crate::trace::error::Corruption> {
                match $crate::trace::wire::take_byte(input)? {
                    $($tag => Ok(Self::$variant { $($field: $crate::trace::wire::Wire::get(input)?,)* }),)*
                    tag => Err($crate::trace::error::Corruption::UnknownTag { what: stringify!($name), tag }),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

/// Declares a struct whose fields are encoded in order.
macro_rules! wire_struct {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$fdoc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        impl $crate::trace::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::trace::wire::Wire::put(&self.$field, out);)*
            }

            fn get(input: &mut &[u8]) -> Result<Self, $crate::trace::error::Corruption> {
                Ok(Self { $($field: $crate::trace::wire::Wire::get(input)?,)* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Removes one byte from the front of `input`.
pub(crate) fn take_byte(input: &mut &[u8]) -> Result<u8, Corruption> {
    let (&byte, rest) = input.split_first().ok_or(Corruption::RecordTooShort)?;
    *input = rest;
    Ok(byte)
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut value = *self;
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = take_byte(input)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Corruption::Overflow);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Corruption::Overflow)
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        u32::try_from(u64::get(input)?).map_err(|_| Corruption::Overflow)
    }
}

impl Wire for u16 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        u16::try_from(u64::get(input)?).map_err(|_| Corruption::Overflow)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        match take_byte(input)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(Corruption::UnknownTag { what: "bool", tag }),
        }
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        let len = u64::get(input)?;
        let len = usize::try_from(len).ok().filter(|&len| len <= input.len()).ok_or(Corruption::RecordTooShort)?;
        let (text, rest) = input.split_at(len);
        *input = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| Corruption::NotUtf8)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for item in self {
            item.put(out);
        }
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        // Each item has at least a byte, so a forged length cannot reserve more than the input.
        let len = u64::get(input)?;
        let len = usize::try_from(len).ok().filter(|&len| len <= input.len()).ok_or(Corruption::RecordTooShort)?;
        (0..len).map(|_| T::get(input)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.put(out);
            }
        }
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        match take_byte(input)? {
            0 => Ok(None),
            1 => Ok(Some(T::get(input)?)),
            tag => Err(Corruption::UnknownTag { what: "Option", tag }),
        }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Ok(value) => {
                out.push(0);
                value.put(out);
            }
            Err(error) => {
                out.push(1);
                error.put(out);
            }
        }
    }

    fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
        match take_byte(input)? {
            0 => Ok(Ok(T::get(input)?)),
            1 => Ok(Err(E::get(input)?)),
            tag => Err(Corruption::UnknownTag { what: "Result", tag }),
        }
    }
}

macro_rules! wire_number {
    ($($name:ident),*) => {
        $(impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn get(input: &mut &[u8]) -> Result<Self, Corruption> {
                Wire::get(input).map(Self)
            }
        })*
    };
}
wire_number!(PageNo, UserAddr, Pid, Tid, FileId, RawErrno, Prot, RawMapFlags);
