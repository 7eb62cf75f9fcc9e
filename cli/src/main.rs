//! The command `odafs`.

fn main() {}
