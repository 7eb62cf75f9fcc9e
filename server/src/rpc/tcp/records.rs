//! Records of the stream. A record that is whole in what was read is served from where it lies.

use odafs_common::wire::record::{RecordAssembler, RecordMark, RecordTooLong};

/// Fewer bytes than this are not worth a read of their own.
const TAIL_BYTES_MIN: usize = 16 << 10;

/// Cuts the incoming bytes into records.
#[derive(Debug)]
pub struct Records {
    max: u32,
    assembler: RecordAssembler,
}

/// One record.
#[derive(Debug)]
pub enum Record<'a> {
    /// It lies in what was read.
    InPlace(&'a [u8]),
    /// It was assembled from pieces.
    Assembled(Vec<u8>),
}

#[cfg(test)]
impl Record<'_> {
    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Assembled(bytes) => bytes,
        }
    }
}

impl Records {
    /// Records of at most `max` bytes.
    pub fn new(max: u32) -> Self {
        Self {
            max,
            assembler: RecordAssembler::new(max),
        }
    }

    /// Takes the next record from the front of `input`. `None`: it has taken all of `input`, and the record goes on.
    ///
    /// # Errors
    /// The record is longer than the bound.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Record<'a>>, RecordTooLong> {
        if self.assembler.is_idle()
            && let Some(record) = self.in_place(input)
        {
            return Ok(Some(Record::InPlace(record)));
        }
        Ok(self.assembler.feed(input)?.map(Record::Assembled))
    }

    fn in_place<'a>(&self, input: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (mark, rest) = input.split_first_chunk::<{ RecordMark::BYTES }>()?;
        let mark = RecordMark::from_bytes(*mark);
        if !mark.last || mark.length > self.max {
            return None;
        }
        let (record, rest) = rest.split_at_checked(mark.length as usize)?;
        *input = rest;
        Some(record)
    }

    /// The record that is coming in, and how many bytes it lacks, if they are worth reading into their place.
    pub fn tail(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        self.assembler
            .tail()
            .filter(|(_, missing)| *missing >= TAIL_BYTES_MIN)
    }

    /// `bytes` were appended to [`Records::tail`]. Returns the record if they complete it.
    pub fn appended(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.assembler.appended(bytes)
    }

    /// Whether no record has begun to come in.
    pub fn is_idle(&self) -> bool {
        self.assembler.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(record: &[u8], last: bool) -> Vec<u8> {
        let mark = RecordMark {
            last,
            length: record.len() as u32,
        };
        [&mark.to_bytes(), record].concat()
    }

    fn all(records: &mut Records, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for piece in pieces {
            let mut input = *piece;
            while !input.is_empty() {
                let record = records.next(&mut input).expect("within the bound");
                found.extend(record.map(|record| record.bytes().to_vec()));
            }
        }
        found
    }

    #[test]
    fn records_come_out_whole_however_the_stream_is_cut() {
        let stream = [
            marked(b"first", true),
            marked(b"sec", false),
            marked(b"ond", true),
            marked(b"", true),
            marked(b"third", true),
        ]
        .concat();
        let wanted: [&[u8]; 4] = [b"first", b"second", b"", b"third"];
        assert_eq!(all(&mut Records::new(10), &[&stream]), wanted);
        for cut in 0..stream.len() {
            let (front, back) = stream.split_at(cut);
            assert_eq!(all(&mut Records::new(10), &[front, back]), wanted, "{cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(all(&mut Records::new(10), &bytes), wanted);
    }

    #[test]
    fn a_whole_record_is_not_copied() {
        let stream = marked(b"here", true);
        let mut input = &stream[..];
        let record = Records::new(10).next(&mut input).expect("within the bound");
        assert!(matches!(record, Some(Record::InPlace(b"here"))));
    }

    #[test]
    fn the_end_of_a_long_record_is_appended_where_it_belongs() {
        let long: Vec<u8> = (0..100_000_u32).map(|byte| byte as u8).collect();
        let stream = marked(&long, true);
        let mut records = Records::new(200_000);
        assert!(records.tail().is_none());
        let mut input = &stream[..20_000];
        assert!(
            records
                .next(&mut input)
                .expect("within the bound")
                .is_none()
        );
        let (record, missing) = records.tail().expect("the tail");
        assert_eq!(missing, stream.len() - 20_000);
        record.extend_from_slice(&stream[20_000..60_000]);
        assert!(records.appended(40_000).is_none());
        let (record, missing) = records.tail().expect("the tail");
        record.extend_from_slice(&stream[60_000..]);
        assert_eq!(records.appended(missing), Some(long));
        assert!(records.is_idle());
    }

    #[test]
    fn the_bound_holds_for_whole_records_and_for_pieces() {
        let long = marked(&[0; 11], true);
        assert!(Records::new(10).next(&mut &long[..]).is_err());
        let huge = [0xFF; 4];
        assert!(Records::new(10).next(&mut &huge[..]).is_err());
        let mut records = Records::new(10);
        let pieces = [marked(&[0; 6], false), marked(&[0; 5], true)].concat();
        let mut input = &pieces[..];
        assert!(records.next(&mut input).is_err());
    }
}
