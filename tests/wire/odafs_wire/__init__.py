"""A small client of ODAFS, written from docs/WIRE.md and the RFCs that it names. Sections in comments are WIRE's."""
