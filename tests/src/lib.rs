//! Harness for the system tests.
