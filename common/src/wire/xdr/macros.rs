//! Types whose XDR follows from their declaration.

/// A struct whose XDR is its fields in order.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name $(<$life>)? { $($(#[$field_meta])* pub $field: $type,)* }
        impl $(<$life>)? $crate::wire::xdr::Encode for $name $(<$life>)? {
            fn encode(&self, w: &mut $crate::wire::xdr::Writer<'_>) {
                $($crate::wire::xdr::Encode::encode(&self.$field, w);)*
            }
        }
        impl<'a> $crate::wire::xdr::Decode<'a> for $name $(<$life>)? {
            fn decode(
                r: &mut $crate::wire::xdr::Reader<'a>,
            ) -> Result<Self, $crate::wire::xdr::XdrError> {
                Ok(Self { $($field: $crate::wire::xdr::Decode::decode(r)?,)* })
            }
        }
    };
}

/// A union whose discriminant is a number, and whose arms are their fields in order. Decoding takes the listed arms alone.
macro_rules! union {
    ($(#[$meta:meta])* pub enum $name:ident $(<$life:lifetime>)? ($what:literal) {
        $($(#[$arm_meta:meta])* $arm:ident $(($($field:ident: $type:ty),+))? = $code:tt,)*
    }) => {
        $(#[$meta])*
        pub enum $name $(<$life>)? { $($(#[$arm_meta])* $arm $(($($type),+))?,)* }
        impl $(<$life>)? $crate::wire::xdr::Encode for $name $(<$life>)? {
            fn encode(&self, w: &mut $crate::wire::xdr::Writer<'_>) {
                match self {
                    $(Self::$arm $(($($field),+))? => {
                        w.u32($code);
                        $($($crate::wire::xdr::Encode::encode($field, w);)+)?
                    })*
                }
            }
        }
        impl<'a> $crate::wire::xdr::Decode<'a> for $name $(<$life>)? {
            fn decode(
                r: &mut $crate::wire::xdr::Reader<'a>,
            ) -> Result<Self, $crate::wire::xdr::XdrError> {
                Ok(match r.u32()? {
                    $($code => {
                        Self::$arm $(($(<$type as $crate::wire::xdr::Decode>::decode(r)?),+))?
                    })*
                    value => {
                        return Err($crate::wire::xdr::XdrError::BadValue { what: $what, value });
                    }
                })
            }
        }
    };
}

/// Opaque bytes of at most so many, by the name that an error has for them.
macro_rules! opaque {
    ($(#[$meta:meta])* pub struct $name:ident<'a>($what:literal, $max:expr);) => {
        $(#[$meta])*
        pub struct $name<'a>(pub &'a [u8]);
        impl $crate::wire::xdr::Encode for $name<'_> {
            fn encode(&self, w: &mut $crate::wire::xdr::Writer<'_>) {
                w.opaque(self.0);
            }
        }
        impl<'a> $crate::wire::xdr::Decode<'a> for $name<'a> {
            fn decode(
                r: &mut $crate::wire::xdr::Reader<'a>,
            ) -> Result<Self, $crate::wire::xdr::XdrError> {
                r.opaque($what, $max).map(Self)
            }
        }
    };
}

/// The union of a status and, where that is `Ok`, a body: a `Result` whose error is the status, and then never `Ok`.
macro_rules! status_union {
    ($status:ident) => {
        impl<T: $crate::wire::xdr::Encode> $crate::wire::xdr::Encode for Result<T, $status> {
            fn encode(&self, w: &mut $crate::wire::xdr::Writer<'_>) {
                match self {
                    Ok(done) => {
                        $status::Ok.encode(w);
                        done.encode(w);
                    }
                    Err(status) => {
                        debug_assert_ne!(*status, $status::Ok);
                        status.encode(w);
                    }
                }
            }
        }
        impl<'a, T: $crate::wire::xdr::Decode<'a>> $crate::wire::xdr::Decode<'a>
            for Result<T, $status>
        {
            fn decode(
                r: &mut $crate::wire::xdr::Reader<'a>,
            ) -> Result<Self, $crate::wire::xdr::XdrError> {
                Ok(match $status::decode(r)? {
                    $status::Ok => Ok(T::decode(r)?),
                    status => Err(status),
                })
            }
        }
    };
}

/// An XDR enumeration; decoding takes the listed values alone.
macro_rules! enumeration {
    ($(#[$meta:meta])* $vis:vis enum $name:ident ($what:literal) {
        $($(#[$value_meta:meta])* $value:ident = $code:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        $vis enum $name { $($(#[$value_meta])* $value = $code,)* }
        impl $name {
            /// Every value, by ascending code.
            pub const ALL: &[Self] = &[$(Self::$value,)*];

            /// The value with this code, if there is one.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)*
                    _ => None,
                }
            }

            /// What stands for the value on the wire.
            pub const fn code(self) -> u32 {
                self as u32
            }
        }
        impl $crate::wire::xdr::Encode for $name {
            fn encode(&self, w: &mut $crate::wire::xdr::Writer<'_>) {
                w.u32(self.code());
            }
        }
        impl $crate::wire::xdr::Decode<'_> for $name {
            fn decode(
                r: &mut $crate::wire::xdr::Reader<'_>,
            ) -> Result<Self, $crate::wire::xdr::XdrError> {
                let value = r.u32()?;
                Self::from_code(value)
                    .ok_or($crate::wire::xdr::XdrError::BadValue { what: $what, value })
            }
        }
    };
}
