//! The program in README.md is an example that compiles.

#[test]
fn the_readme_shows_the_example() {
    let example = include_str!("../examples/read.rs");
    let program = &example[example.find("use ").unwrap()..];
    assert!(include_str!("../../README.md").contains(&format!("```rust\n{program}```")));
}
