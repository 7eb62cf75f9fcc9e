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
