use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// All records in `stream`, given to the assembler in pieces of these sizes (over and over).
fn assemble(max: u32, stream: &[u8], pieces: &[usize]) -> Result<Vec<Vec<u8>>, RecordTooLong> {
    let mut assembler = RecordAssembler::new(max);
    let mut records = Vec::new();
    let mut rest = stream;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (mut here, later) = rest.split_at((*piece).min(rest.len()));
        rest = later;
        while !here.is_empty() {
            records.extend(assembler.feed(&mut here)?);
        }
    }
    Ok(records)
}

#[test]
fn marks() {
    assert_eq!(RecordMark::whole(0x1234).to_bytes(), [0x80, 0, 0x12, 0x34]);
    assert_eq!(
        RecordMark {
            last: false,
            length: 5
        }
        .to_bytes(),
        [0, 0, 0, 5]
    );
    let longest = RecordMark {
        last: true,
        length: (1 << 31) - 1,
    };
    assert_eq!(RecordMark::from_bytes([0xff; 4]), longest);
    assert_eq!(longest.to_bytes(), [0xff; 4]);
}

#[test]
fn records_of_one_and_of_several_fragments() {
    let stream = b"\x80\0\0\x03abc\0\0\0\x02de\0\0\0\0\x80\0\0\x01f\x80\0\0\0";
    let records = [&b"abc"[..], b"def", b""];
    for piece in 1..=stream.len() {
        assert_eq!(assemble(3, stream, &[piece]).unwrap(), records);
    }
}

#[test]
fn one_byte_too_many() {
    let max = 4;
    assert_eq!(assemble(max, b"\x80\0\0\x04abcd", &[9]).unwrap(), [b"abcd"]);
    assert_eq!(
        assemble(max, b"\x80\0\0\x05", &[9]),
        Err(RecordTooLong { max })
    );
    assert_eq!(
        assemble(max, b"\0\0\0\x03abc\x80\0\0\x02", &[1]),
        Err(RecordTooLong { max })
    );
    assert_eq!(assemble(u32::MAX, &[0xff; 4], &[1]).unwrap(), [[0; 0]; 0]);
}

#[test]
fn it_says_what_it_lacks() {
    let mut assembler = RecordAssembler::new(100);
    assert!(assembler.is_idle());
    let mut lacks = |mut bytes: &[u8]| {
        let record = assembler.feed(&mut bytes).unwrap();
        (record, assembler.missing(), assembler.is_idle())
    };
    assert_eq!(lacks(b""), (None, 4, true));
    assert_eq!(lacks(b"\0\0\0"), (None, 1, false));
    assert_eq!(lacks(b"\x03"), (None, 3, false));
    assert_eq!(lacks(b"ab"), (None, 1, false));
    assert_eq!(lacks(b"c"), (None, 4, false));
    assert_eq!(lacks(b"\x80\0\0\x01"), (None, 1, false));
    assert_eq!(lacks(b"d"), (Some(b"abcd".to_vec()), 4, true));
}

#[test]
fn a_claim_takes_no_memory() {
    let mut assembler = RecordAssembler::new(u32::MAX);
    assert_eq!(
        assembler.feed(&mut &[&[0xff; 4][..], &[0; 1000]].concat()[..]),
        Ok(None)
    );
    assert!(assembler.record.capacity() < 16_000);
    let mut assembler = RecordAssembler::new(u32::MAX);
    let megabyte = RecordMark::whole(1 << 20).to_bytes();
    assert_eq!(
        assembler.feed(&mut &[&megabyte[..], &[0; 1 << 16]].concat()[..]),
        Ok(None)
    );
    assert!(assembler.record.capacity() >= 1 << 20, "grows once");
}

proptest! {
    #[test]
    fn records_come_out_as_they_went_in(
        records in vec(vec(vec(any::<u8>(), 0..40), 1..4), 0..6),
        pieces in vec(1usize..50, 1..8),
    ) {
        let mut stream = Vec::new();
        for fragments in &records {
            for (i, fragment) in fragments.iter().enumerate() {
                let last = i + 1 == fragments.len();
                let mark = RecordMark { last, length: fragment.len() as u32 };
                stream.extend_from_slice(&mark.to_bytes());
                stream.extend_from_slice(fragment);
            }
        }
        let whole: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
        prop_assert_eq!(assemble(200, &stream, &pieces).unwrap(), whole);
    }
}
