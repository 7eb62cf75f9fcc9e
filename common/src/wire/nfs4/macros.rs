//! Types of version 4 whose XDR follows from their declaration.

/// Why an operation failed, if the result of one failure says more than its status.
macro_rules! failure {
    ($(#[$meta:meta])* pub enum $name:ident $(<$life:lifetime>)? {
        $(#[$arm_meta:meta])* $arm:ident($body:ty) = $status:ident,
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name $(<$life>)? {
            $(#[$arm_meta])*
            $arm($body),
            /// Any other reason.
            Other(Status),
        }

        impl<$($life,)? T: Encode> Encode for Result<T, $name $(<$life>)?> {
            fn encode(&self, w: &mut Writer<'_>) {
                match self {
                    Ok(done) => {
                        Status::Ok.encode(w);
                        done.encode(w);
                    }
                    Err($name::$arm(body)) => {
                        Status::$status.encode(w);
                        body.encode(w);
                    }
                    Err($name::Other(status)) => status.encode(w),
                }
            }
        }

        impl<'a, T: Decode<'a>> Decode<'a> for Result<T, $name $(<$life>)?> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                Ok(match Status::decode(r)? {
                    Status::Ok => Ok(T::decode(r)?),
                    Status::$status => Err($name::$arm(Decode::decode(r)?)),
                    status => Err($name::Other(status)),
                })
            }
        }
    };
}

/// The attributes of a `fattr4`, each with a value or without: encodes and decodes them in the order of their numbers.
macro_rules! attributes {
    (
        $(#[$meta:meta])*
        pub struct $name:ident,
        $(#[$all_meta:meta])*
        $all:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $attribute:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a> {
            $($(#[$field_meta])* pub $field: Option<$type>,)*
        }

        $(#[$all_meta])*
        pub const $all: Bitmap = Bitmap::of(&[$(Attribute::$attribute,)*]);

        impl<'a> $name<'a> {
            /// The attributes that have a value.
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::EMPTY;
                $(if self.$field.is_some() {
                    mask.insert(Attribute::$attribute);
                })*
                mask
            }

            /// Writes a `fattr4` of the attributes that are asked for and have a value.
            pub fn encode_asked(&self, asked: &Bitmap, w: &mut Writer<'_>) {
                let mask = self.mask().and(asked);
                mask.encode(w);
                let start = w.position();
                w.u32(0);
                self.encode_values(&mask, w);
                let length = w.position() - start - 4;
                w.patch_u32(start, u32::try_from(length).expect("no message holds 4 GiB"));
            }

            /// Writes the values that are in `mask`, without their length.
            fn encode_values(&self, mask: &Bitmap, w: &mut Writer<'_>) {
                $(if let Some(value) = &self.$field
                    && mask.contains(Attribute::$attribute)
                {
                    value.encode(w);
                })*
            }

            /// Reads the values of the attributes in the mask, which must be of the declared ones.
            fn decode_values(raw: &RawAttributes<'a>) -> Result<Self, XdrError> {
                let mut r = Reader::new(raw.values.0);
                let mut attributes = Self::default();
                $(if raw.mask.contains(Attribute::$attribute) {
                    attributes.$field = Some(<$type>::decode(&mut r)?);
                })*
                r.finish()?;
                Ok(attributes)
            }
        }

        /// All that have a value.
        impl Encode for $name<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                self.encode_asked(&$all, w);
            }
        }
    };
}
