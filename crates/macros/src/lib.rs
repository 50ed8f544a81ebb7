//! The attribute `service` of `chunkcomm-cluster`, whose feature `macros` re-exports it. The attribute's
//! page there says how it is used.
//!
//! Reading order: `interface` reads the trait and says how a wrong one is mended, `server` and `client` write
//! the two sides, `words` their requests and answers.

mod client;
mod interface;
mod server;
#[cfg(test)]
mod tests;
mod words;

use interface::Interface;
use proc_macro2::TokenStream;
use quote::quote;
use syn::Error;

/// Makes the interface of a service out of a trait: see `chunkcomm_cluster::service`.
#[proc_macro_attribute]
pub fn service(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let made = expand(&arguments.into(), item.into());
    made.unwrap_or_else(Error::into_compile_error).into()
}

fn expand(arguments: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let interface = Interface::parse(arguments, item)?;
    let (server, client) = (server::of(&interface), client::of(&interface));
    let words = words::of(&interface);
    Ok(quote! { #server #client #words })
}
