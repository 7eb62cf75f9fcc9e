use super::Attribute;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most words of a [`Bitmap`]. The known attributes take three.
pub const MAX_BITMAP_WORDS: u32 = 8;
/// The most words that a decoder takes.
const MAX_WORDS_DECODED: u32 = 64;

/// `bitmap4` (RFC 7530, section 2.2; RFC 8881, section 3.3.7): a set of attributes, hints or notifications by number.
///
/// Nothing has the numbers from 255 on. A decoder takes all of them for 255.
///
/// Sets with the same members are equal, however many words they had on the wire.
#[derive(Clone, Copy, Default, Eq)]
pub struct Bitmap {
    words: [u32; MAX_BITMAP_WORDS as usize],
    len: u8,
}

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self {
        words: [0; MAX_BITMAP_WORDS as usize],
        len: 0,
    };

    /// The set of these attributes.
    pub const fn of(attributes: &[Attribute]) -> Self {
        let mut bitmap = Self::EMPTY;
        let mut at = 0;
        while at < attributes.len() {
            bitmap = bitmap.with(attributes[at] as u32);
            at += 1;
        }
        bitmap
    }

    /// The set and this number.
    ///
    /// # Panics
    /// The number is 256 or above.
    #[must_use]
    pub const fn with(mut self, number: u32) -> Self {
        let word = (number / 32) as usize;
        self.words[word] |= 1 << (number % 32);
        if self.len as usize <= word {
            self.len = word as u8 + 1;
        }
        self
    }

    /// Adds an attribute.
    pub fn insert(&mut self, attribute: Attribute) {
        *self = self.with(attribute.code());
    }

    /// Adds 255 for a number that no set can hold.
    fn insert_unknown(&mut self) {
        *self = self.with(MAX_BITMAP_WORDS * 32 - 1);
    }

    /// Whether the number is in the set.
    pub const fn has(&self, number: u32) -> bool {
        let word = (number / 32) as usize;
        word < self.words.len() && self.words[word] & 1 << (number % 32) != 0
    }

    /// Whether the attribute is in the set.
    pub const fn contains(&self, attribute: Attribute) -> bool {
        self.has(attribute as u32)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.words == [0; MAX_BITMAP_WORDS as usize]
    }

    /// The numbers in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours & theirs)
    }

    /// The numbers in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours | theirs)
    }

    /// The numbers in this set that `other` lacks.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| ours & !theirs)
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        (0..32 * MAX_BITMAP_WORDS).filter(move |number| {
            let word = words[(number / 32) as usize];
            word & 1 << (number % 32) != 0
        })
    }

    /// Without words of zeros at the end.
    fn combine(&self, other: &Self, of: impl Fn(u32, u32) -> u32) -> Self {
        let words = std::array::from_fn(|at| of(self.words[at], other.words[at]));
        let len = words.iter().rposition(|word| *word != 0);
        Self {
            words,
            len: len.map_or(0, |last| last as u8 + 1),
        }
    }
}

impl PartialEq for Bitmap {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Encode for Bitmap {
    fn encode(&self, w: &mut Writer<'_>) {
        w.array(&self.words[..usize::from(self.len)]);
    }
}

impl Decode<'_> for Bitmap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let len = r.length("bitmap", MAX_WORDS_DECODED)?;
        let mut bitmap = Self {
            len: len.min(MAX_BITMAP_WORDS) as u8,
            ..Self::EMPTY
        };
        for at in 0..len as usize {
            let word = r.u32()?;
            match bitmap.words.get_mut(at) {
                Some(ours) => *ours = word,
                None if word != 0 => bitmap.insert_unknown(),
                None => {}
            }
        }
        Ok(bitmap)
    }
}
