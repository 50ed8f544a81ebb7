//! The trait, and the server of its implementors.

use crate::interface::{Interface, Method, generated};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{TraitItem, parse_quote};

pub(crate) fn of(interface: &Interface) -> TokenStream {
    let (declaration, server) = (declaration(interface), server(interface));
    quote! { #declaration #server }
}

/// Returns the trait; its methods promise futures that any thread may poll.
fn declaration(interface: &Interface) -> TokenStream {
    let generated = generated();
    let mut item = interface.item.clone();
    item.supertraits.push(parse_quote!(::core::marker::Send));
    item.supertraits.push(parse_quote!(::core::marker::Sync));
    item.supertraits.push(parse_quote!('static));
    for (of_trait, Method { output, .. }) in item.items.iter_mut().zip(&interface.methods) {
        let TraitItem::Fn(function) = of_trait else { continue };
        function.sig.asyncness = None;
        let future = quote_spanned! {output.span()=>
            impl #generated::Future<Output = #output> + ::core::marker::Send
        };
        function.sig.output = parse_quote!(-> #future);
    }
    quote! { #item }
}

fn server(interface: &Interface) -> TokenStream {
    let generated = generated();
    let Interface { item, methods, requests, answers } = interface;
    let (visible, ident, name) = (&item.vis, &item.ident, interface.name());
    let server = format_ident!("{}Server", ident);
    let arms = methods.iter().map(|Method { name, arguments, .. }| {
        let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
        quote! {
            #requests::#name((#(#names,)*)) => {
                #answers::#name(<T as #ident>::#name(&*__service, #(#names),*).await)
            }
        }
    });
    let about =
        format!("Serves an implementation of [`{name}`]. Its clients are [`{name}Client`]s.");
    let of_name = format!("Sets the name under which clients find it, by default `\"{name}\"`.");
    quote! {
        #[doc = #about]
        #[allow(dead_code)]
        #visible struct #server<T> {
            service: T,
            name: ::std::string::String,
            options: #generated::ServiceOptions,
        }

        #[allow(dead_code)]
        impl<T: #ident> #server<T> {
            /// Returns a server of this implementation.
            #visible fn new(service: T) -> Self {
                let name = ::std::string::String::from(#name);
                Self { service, name, options: ::core::default::Default::default() }
            }

            #[doc = #of_name]
            #[must_use]
            #visible fn name(mut self, name: impl ::core::convert::Into<::std::string::String>) -> Self {
                self.name = name.into();
                self
            }

            /// Sets how requests are handled.
            #[must_use]
            #visible fn options(mut self, options: #generated::ServiceOptions) -> Self {
                self.options = options;
                self
            }

            /// Answers the calls of any peer of `node`, until the result is closed or dropped.
            ///
            /// # Errors
            ///
            /// As `NodeExt::serve`.
            #visible fn serve(
                self,
                node: &#generated::Node,
            ) -> ::core::result::Result<#generated::Service, #generated::ServeError> {
                let Self { service, name, options } = self;
                #generated::serve(node, &name, options, Self::handler(service))
            }

            /// Serves as `serve` does, and lets every member of the cluster find it by its name.
            ///
            /// # Errors
            ///
            /// As `Cluster::serve`.
            ///
            /// # Cancel safety
            ///
            /// As `Cluster::serve`.
            #visible async fn serve_in(
                self,
                cluster: &#generated::Cluster,
            ) -> ::core::result::Result<#generated::Service, #generated::NameError> {
                let Self { service, name, options } = self;
                #generated::serve_in(cluster, &name, options, Self::handler(service)).await
            }

            fn handler(service: T) -> impl #generated::Handles<#requests> {
                let service = ::std::sync::Arc::new(service);
                move |request: #requests| {
                    let __service = ::std::sync::Arc::clone(&service);
                    async move {
                        ::core::result::Result::Ok::<_, #generated::Infallible>(match request {
                            #(#arms)*
                        })
                    }
                }
            }
        }

        ::chunkcomm_cluster::__with_tower! {
            #[allow(dead_code)]
            impl<T: #ident> #server<T> {
                /// Puts a layer of the crate `tower` around all methods: see `call::middleware`.
                #visible fn layer<L, S>(self, layer: &L) -> #generated::LayeredServer<#requests, S>
                where
                    L: #generated::Layer<#generated::CallHandler<#requests, #answers>, Service = S>,
                    S: #generated::Handling<#requests, #answers>,
                {
                    let Self { service, name, options } = self;
                    let handler = Self::handler(service);
                    #generated::LayeredServer::new(name, options, layer, handler)
                }
            }
        }
    }
}
