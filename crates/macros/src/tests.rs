//! Traits that cannot be served: the place that each error points at, and its text.

use crate::expand;
use proc_macro2::TokenStream;

/// Returns the errors of an item: of each the source that it points at, and the text.
fn errors(arguments: &str, item: &str) -> Vec<(String, String)> {
    let parse = |source: &str| source.parse::<TokenStream>().expect("it is made of tokens");
    let Err(errors) = expand(&parse(arguments), parse(item)) else { return Vec::new() };
    let place = |error: &syn::Error| error.span().source_text().unwrap_or_default();
    errors.into_iter().map(|error| (place(&error), error.to_string())).collect()
}

/// Checks that a trait of this one item has one error, at this place.
fn wrong(item: &str, at: &str, text: &str) {
    let found = errors("", &format!("trait Store {{ {item} }}"));
    let is_it = matches!(&found[..], [(place, told)] if place == at && told.starts_with(text));
    assert!(is_it, "{item}: {found:#?}");
}

#[test]
fn a_method_is_mended_as_its_error_says() {
    wrong("async fn get(key: String);", "get", "write `get(&self, ..)`");
    wrong("async fn get(&mut self);", "&mut self", "write `&self`");
    wrong("async fn get(self);", "self", "write `&self`");
    wrong("async fn get(self: Arc<Self>);", "self: Arc<Self>", "write `&self`");
    wrong("fn get(&self);", "fn", "write `async fn get`");
    wrong("async unsafe fn get(&self);", "unsafe", "write `async fn get` without it");
    wrong("async fn get<K>(&self);", "<K>", "a method has no generics");
    wrong("async fn get(&self) where u8: Copy;", "where u8: Copy", "a method has no bounds");
    wrong("async fn get(&self) {}", "{}", "write `;`");
    wrong("async fn get(&self, (a, b): (u8, u8));", "(a, b)", "write a name");
    wrong("async fn get(&self, mut key: u8);", "mut key", "write a name");
    wrong("async fn get(&self, _: u8);", "_", "write a name");
    wrong("async fn get(&self, key: &str);", "&str", "write a type that owns its data");
    wrong("async fn get(&self, key: Vec<&str>);", "Vec<&str>", "write a type that owns its data");
    wrong("async fn get(&self, key: impl Copy);", "impl Copy", "write a type in the place of");
    wrong(
        "async fn all(&self) -> impl Stream;",
        "impl Stream",
        "write a type in the place of `impl ..`",
    );
    wrong("async fn get(&self) -> Self;", "Self", "write a type that both ends name");
    wrong("async fn get(&self) -> io::Result<u8>;", "io::Result<u8>", "write both types");
    wrong("async fn at(&self);", "at", "every client has a function `at`");
    wrong("#[cfg(unix)] async fn get(&self);", "#[cfg(unix)]", "all methods");
    wrong(
        "#[idempotent(true)] async fn get(&self);",
        "#[idempotent(true)]",
        "write `#[idempotent]`",
    );
    // The hashes of the two names are equal.
    wrong(
        "async fn costarring(&self); async fn liquid(&self);",
        "liquid",
        "`costarring` has the same",
    );
}

#[test]
fn a_trait_has_methods_and_nothing_else() {
    wrong("type Key;", "type Key;", "a service has no associated types");
    wrong("const MAX: u8;", "const MAX: u8;", "a service has only methods");
    wrong("", "Store", "a service has a method at least");
    let plain = "async fn get(&self);";
    for (item, at, text) in [
        (format!("trait Store<K> {{ {plain} }}"), "<K>", "a service has no generics"),
        (format!("unsafe trait Store {{ {plain} }}"), "unsafe", "a service is a plain trait"),
        (
            format!("trait Store where u8: Copy {{ {plain} }}"),
            "where u8: Copy",
            "a service has no bounds",
        ),
        ("struct Store;".to_owned(), "struct Store;", "`service` stands before a trait"),
    ] {
        let found = errors("", &item);
        assert!(found.len() == 1 && found[0].0 == at && found[0].1.starts_with(text), "{found:#?}");
    }
    let found = errors("name", &format!("trait Store {{ {plain} }}"));
    assert!(found.len() == 1 && found[0].0 == "name", "{found:#?}");
}

#[test]
fn all_errors_of_a_trait_are_told_at_once() {
    let found =
        errors("", "trait Store { fn get(&mut self); type Key; async fn put(&self, _: &u8) {} }");
    let places: Vec<_> = found.iter().map(|(place, _)| &**place).collect();
    assert_eq!(places, ["fn", "&mut self", "type Key;", "{}", "&u8", "_"]);
}

#[test]
fn a_trait_that_can_be_served_has_no_error() {
    let item = "/// A store.\npub(crate) trait Store: Debug {
        /// Returns a value.
        #[idempotent]
        async fn get(&self, key: String) -> Result<Option<Vec<u8>>, StoreError>;
        async fn r#type(&self);
    }";
    assert_eq!(errors("", item), []);
    let made = expand(&TokenStream::new(), item.parse().expect("it is made of tokens"));
    let made = made.expect("it can be served").to_string();
    // The documentation is the trait's and the client's, and the attribute is gone.
    assert_eq!(made.matches("Returns a value.").count(), 2, "{made}");
    assert!(!made.contains("# [idempotent]"), "{made}");
    for name in ["StoreServer", "StoreClient", "\"type\""] {
        assert!(made.contains(name), "{name}: {made}");
    }
}
