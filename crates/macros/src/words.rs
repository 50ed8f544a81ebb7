//! The requests and answers of all methods. Each is a pair on the wire: the method's number, and its
//! arguments or its result.

use crate::interface::{Interface, Method, generated};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Type;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

pub(crate) fn of(interface: &Interface) -> TokenStream {
    let generated = generated();
    let Interface { methods, requests, answers, .. } = interface;
    let name = interface.name();
    let arguments = methods.iter().map(|it| {
        let types = it.arguments.iter().map(|(_, it)| it);
        syn::parse_quote!((#(#types,)*))
    });
    let arguments: Vec<Type> = arguments.collect();
    let outputs: Vec<Type> = methods.iter().map(|it| it.output.clone()).collect();
    let (of_requests, of_answers) =
        (words(interface, requests, &arguments), words(interface, answers, &outputs));
    let facts = methods.iter().map(|Method { name, id, is_idempotent, .. }| {
        let name = name.unraw().to_string();
        quote!(#generated::Method::new(#name, #id, #is_idempotent))
    });
    let types = methods.iter().map(|Method { arguments, output, .. }| {
        let type_of = |it: &Type| quote_spanned!(it.span()=> #generated::type_of::<#it>);
        let arguments = arguments.iter().map(|(_, it)| type_of(it));
        let result = type_of(output);
        quote!(#generated::MethodTypes { arguments: &[#(#arguments),*], result: #result })
    });
    quote! {
        #of_requests
        #of_answers

        impl #generated::Interface for #requests {
            type Answer = #answers;
            const NAME: &'static str = #name;
            const METHODS: &'static [#generated::Method] = &[#(#facts),*];
            const TYPES: &'static [#generated::MethodTypes] = &[#(#types),*];
        }
    }
}

/// Returns the enum of a request or an answer of each method.
fn words(interface: &Interface, name: &Ident, types: &[Type]) -> TokenStream {
    let generated = generated();
    let methods = &interface.methods;
    let variants: Vec<_> = methods.iter().map(|it| &it.name).collect();
    // A type that does not travel is told at its method.
    let places = methods.iter().map(|it| it.name.span().resolved_at(Span::call_site()));
    let (reads, writes): (Vec<_>, Vec<_>) = methods
        .iter()
        .zip(places)
        .map(|(Method { name, id, .. }, place)| {
            let read = quote_spanned!(place=> #id => #generated::next(rest).map(Self::#name));
            let write =
                quote_spanned!(place=> Self::#name(it) => #generated::put(#id, it, serializer));
            (read, write)
        })
        .unzip();
    let indices = 0..methods.len();
    let visible = &interface.item.vis;
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, missing_docs, clippy::large_enum_variant)]
        #visible enum #name {
            #(#variants(#types)),*
        }

        impl #generated::Word for #name {
            #[inline]
            fn index(&self) -> usize {
                match self {
                    #(Self::#variants(..) => #indices,)*
                }
            }

            #[inline]
            fn read<'de, A: #generated::serde::de::SeqAccess<'de>>(
                id: u32,
                rest: &mut A,
            ) -> ::core::result::Result<Self, A::Error> {
                match id {
                    #(#reads,)*
                    _ => ::core::result::Result::Err(#generated::no_method()),
                }
            }
        }

        impl #generated::serde::Serialize for #name {
            #[inline]
            fn serialize<S: #generated::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                match self {
                    #(#writes,)*
                }
            }
        }

        impl<'de> #generated::serde::Deserialize<'de> for #name {
            #[inline]
            fn deserialize<D: #generated::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                #generated::take(deserializer)
            }
        }
    }
}
