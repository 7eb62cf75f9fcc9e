"""A small client of ODAFS, written from docs/WIRE.md, docs/WIRE-DIRECT.md and the RFCs that they name.

Sections in comments are those of these two pages, which share one numbering.
"""
