use super::*;
use crate::wire::testing::hex;
use crate::wire::xdr::XdrError;

fn error<T: Decode<'static> + Debug>(digits: &str) -> XdrError {
    let bytes: &'static [u8] = hex(digits).leak();
    T::from_bytes(bytes).expect_err("an error")
}

#[track_caller]
fn too_long<T: Decode<'static> + Debug>(digits: &str, max: u32) {
    match error::<T>(digits) {
        XdrError::TooLong { max: bound, .. } => assert_eq!(bound, max),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn bad_value<T: Decode<'static> + Debug>(digits: &str) {
    let error = error::<T>(digits);
    assert!(matches!(error, XdrError::BadValue { .. }), "{error:?}");
}

#[test]
fn lengths_are_bounded_before_anything_else() {
    too_long::<FileHandle<'_>>("00000081", 128);
    too_long::<Name<'_>>("00001001", 4096);
    too_long::<Opaque<'_>>("00000401", 1024);
    too_long::<Bitmap>("00000041", 64);
    too_long::<RawAttributes<'_>>("00000000 00040001", 1 << 18);
    too_long::<Acl<'_>>("00000401", 1024);
    too_long::<TestStateIdArgs>("00001001", 4096);
    too_long::<AtMostOne<u32>>("00000002", 1);
    too_long::<CallbackSecurities<'_>>("00000041", 64);
    too_long::<XattrValue<'_>>("00400001", 4 << 20);
    too_long::<Payload<'_>>("ffffffff", 4 << 20);
    too_long::<Data<'_>>("ffffffff", 4 << 20);
    too_long::<CompoundHeader<'_>>("ffffffff", 1024);
}

#[test]
fn numbers_that_no_set_can_hold_are_in_it_as_nobodys() {
    let bytes = hex(&format!(
        "00000009 00000001 {} 00000100",
        "00000000 ".repeat(7)
    ));
    let set = Bitmap::from_bytes(&bytes).unwrap();
    assert_eq!(set, Bitmap::EMPTY.with(0).with(255));
    let zeros = hex(&format!("00000009 00000001 {}", "00000000 ".repeat(8)));
    let set = Bitmap::from_bytes(&zeros).unwrap();
    assert_eq!(set, Bitmap::EMPTY.with(0));
}

#[test]
fn claims_are_no_memory() {
    // The greatest lists that are allowed, and nothing in them.
    assert_eq!(error::<TestStateIdArgs>("00001000"), XdrError::Short);
    let read_plus = "00000000 00000001 00010000";
    assert_eq!(error::<ReadPlusResult<'_>>(read_plus), XdrError::Short);
    assert_eq!(error::<Acl<'_>>("00000400"), XdrError::Short);
}

#[test]
fn unknown_choices_are_errors() {
    bad_value::<CreateHow<'_>>("00000004");
    bad_value::<Claim<'_>>("00000007");
    bad_value::<DelegationType>("00000004");
    bad_value::<WhyNone>("00000009");
    bad_value::<SpaceLimit>("00000003");
    bad_value::<LockType>("00000000");
    bad_value::<StateProtection<'_>>("00000003");
    bad_value::<GrantedProtection>("00000002");
    bad_value::<CallbackSecurity<'_>>("00000002");
    bad_value::<NetLocation<'_>>("00000004");
    bad_value::<Content<'_>>("00000002");
    bad_value::<SetTime>("00000002");
    bad_value::<DelegationClaim>("00000000");
    bad_value::<DirDelegation>("00000002");
    bad_value::<WantedChannel>("00000004");
    bad_value::<SetXattrOption>("00000003");
    bad_value::<Status>("00000013");
    bad_value::<Operation<'_>>("00000032");
    bad_value::<OperationResult<'_>>("00000032 00000000");
    bad_value::<CallbackOperation<'_>>("00000005");
    bad_value::<CallbackResult<'_>>("00000005");
    bad_value::<CreateType<'_>>("0000000a");
}

/// So that a server can answer XATTR2BIG.
#[test]
fn an_extended_attribute_may_be_longer_than_any_that_linux_has() {
    let value = vec![7; (1 << 16) + 1];
    let args = SetXattrArgs {
        option: SetXattrOption::Either,
        name: Name(b"key"),
        value: XattrValue(&value),
    };
    let bytes = args.to_bytes();
    assert_eq!(SetXattrArgs::from_bytes(&bytes), Ok(args));
}
