//! The client, with a method for each of the trait's.

use crate::interface::{Interface, Method, generated};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

pub(crate) fn of(interface: &Interface) -> TokenStream {
    let generated = generated();
    let Interface { item, requests, .. } = interface;
    let (visible, name) = (&item.vis, interface.name());
    let client = format_ident!("{}Client", item.ident);
    let methods = interface.methods.iter().map(|it| method(interface, it));
    let tower = tower(interface, &client);
    let about = format!(
        "Calls a service that is a [`{name}`]. Any number of calls may be in flight, and clones share \
         their channels."
    );
    quote! {
        #[doc = #about]
        #[allow(dead_code)]
        #[derive(Clone, Debug)]
        #visible struct #client {
            calls: #generated::Client<#requests>,
        }

        #[allow(dead_code)]
        impl #client {
            /// The trait's methods, in its order.
            #visible const METHODS: &'static [#generated::Method] =
                <#requests as #generated::Interface>::METHODS;

            /// Returns a client of the service of `peer` that has the trait's name. Nothing is sent
            /// before its first call.
            ///
            /// # Errors
            ///
            /// As `NodeExt::call_client`.
            #visible fn at(
                node: &#generated::Node,
                peer: &#generated::Peer,
            ) -> ::core::result::Result<Self, #generated::OpenError> {
                let name = <#requests as #generated::Interface>::NAME;
                Self::at_with(node, peer, name, ::core::default::Default::default())
            }

            /// Returns a client of the service `name` of `peer`, with options.
            ///
            /// # Errors
            ///
            /// As `NodeExt::call_client`.
            #visible fn at_with(
                node: &#generated::Node,
                peer: &#generated::Peer,
                name: &str,
                options: #generated::CallOptions,
            ) -> ::core::result::Result<Self, #generated::OpenError> {
                let calls = #generated::Client::at(node, peer, name, options)?;
                ::core::result::Result::Ok(Self { calls })
            }

            /// Returns a client of all services in the cluster that have the trait's name.
            ///
            /// # Errors
            ///
            /// As `Cluster::call_client`.
            #visible fn in_cluster(
                cluster: &#generated::Cluster,
            ) -> ::core::result::Result<Self, #generated::OpenError> {
                let name = <#requests as #generated::Interface>::NAME;
                Self::in_cluster_with(cluster, name, ::core::default::Default::default())
            }

            /// Returns a client of all services `name` in the cluster, with options.
            ///
            /// # Errors
            ///
            /// As `Cluster::call_client`.
            #visible fn in_cluster_with(
                cluster: &#generated::Cluster,
                name: &str,
                options: #generated::CallOptions,
            ) -> ::core::result::Result<Self, #generated::OpenError> {
                let calls = #generated::Client::in_cluster(cluster, name, options)?;
                ::core::result::Result::Ok(Self { calls })
            }

            /// Limits the wait for an answer, for calls of this client and of clones made of it: see
            /// `CallClient::timeout`.
            #[must_use]
            #visible fn timeout(self, timeout: ::core::time::Duration) -> Self {
                Self { calls: self.calls.timeout(timeout) }
            }

            #(#methods)*
        }

        #tower
    }
}

/// Returns the services of the crate `tower`, one for each method.
fn tower(interface: &Interface, client: &Ident) -> TokenStream {
    let generated = generated();
    let Interface { item, .. } = interface;
    let visible = &item.vis;
    let services = format_ident!("{}Services", item.ident);
    let methods = interface.methods.iter().enumerate().map(|(index, method)| {
        let Method { name, arguments, output, result, .. } = method;
        let (names, types): (Vec<_>, Vec<_>) =
            arguments.iter().map(|(name, it)| (name, it)).unzip();
        let (value, error) = match result {
            Some((value, error)) => (value, quote!(#generated::Called<#error>)),
            None => (output, quote!(#generated::CallError)),
        };
        let about = format!("Returns calls of `{}`.", name.unraw());
        quote! {
            #[doc = #about]
            #visible fn #name(&self) -> #generated::CallService<(#(#types,)*), #value, #error> {
                let client = self.0.clone();
                let method = #client::METHODS[#index];
                #generated::CallService::new(
                    ::core::option::Option::Some(method),
                    move |(#(#names,)*): (#(#types,)*)| {
                        let __client = client.clone();
                        async move { __client.#name(#(#names),*).await }
                    },
                )
            }
        }
    });
    let about = format!("The methods of a [`{client}`] as services of the crate `tower`.");
    quote! {
        ::chunkcomm_cluster::__with_tower! {
            #[doc = #about]
            #[allow(dead_code)]
            #[derive(Clone, Debug)]
            #visible struct #services(#client);

            #[allow(dead_code)]
            impl #client {
                /// Returns the methods as services of the crate `tower`: see `call::middleware`.
                #[must_use]
                #visible fn into_tower(self) -> #services {
                    #services(self)
                }
            }

            #[allow(dead_code)]
            impl #services {
                #(#methods)*
            }
        }
    }
}

fn method(interface: &Interface, method: &Method) -> TokenStream {
    let generated = generated();
    let Interface { item, requests, answers, .. } = interface;
    let Method { name, attributes, arguments, output, result, .. } = method;
    let visible = &item.vis;
    let (names, types): (Vec<_>, Vec<_>) = arguments.iter().map(|(name, it)| (name, it)).unzip();
    let (returns, answer) = match result {
        Some((value, error)) => (
            quote_spanned! {output.span()=>
                ::core::result::Result<#value, #generated::Called<#error>>
            },
            quote!(answer.map_err(#generated::Called::Service)),
        ),
        None => (
            quote_spanned! {output.span()=>
                ::core::result::Result<#output, #generated::CallError>
            },
            quote!(::core::result::Result::Ok(answer)),
        ),
    };
    quote! {
        #(#attributes)*
        #visible fn #name(
            &self,
            #(#names: #types),*
        ) -> impl #generated::Future<Output = #returns> + '_ {
            self.calls.call(#requests::#name((#(#names,)*)), |answer| match answer {
                #answers::#name(answer) => ::core::option::Option::Some(#answer),
                #[allow(unreachable_patterns)]
                _ => ::core::option::Option::None,
            })
        }
    }
}
