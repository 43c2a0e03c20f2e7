//! Programs that must not compile: what would touch a slot's bytes while work uses them, or own a
//! slot twice. Each has the compiler's words beside it.
//!
//! After a change of the compiler or of the interface, `TRYBUILD=overwrite cargo test -p pinpool
//! --test compile_fail` writes them anew, to be read before they are committed.

/// What is tested is that they are refused for the reason meant, which only the words tell.
#[test]
fn misuse_is_refused_by_the_compiler() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    // They need the copies' types.
    #[cfg(feature = "cuda")]
    cases.compile_fail("tests/compile_fail/cuda/*.rs");
}
