//! The trait of a service as its user wrote it, and the errors of one that cannot be served.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt as _;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, Item, ItemTrait, Pat, PathArguments, Receiver,
    ReturnType, Signature, TraitItem, TraitItemFn, Type, parse_quote,
};

/// Functions of every client, whose names no method can have.
const OF_CLIENTS: &[&str] =
    &["at", "at_with", "in_cluster", "in_cluster_with", "timeout", "clone", "into_tower"];

/// Path of the types that generated code names.
pub(crate) fn generated() -> TokenStream {
    quote::quote!(::chunkcomm_cluster::interface)
}

/// A trait that can be served.
pub(crate) struct Interface {
    pub(crate) item: ItemTrait,
    pub(crate) methods: Vec<Method>,
    /// Names of the enums of all requests and of all answers.
    pub(crate) requests: Ident,
    pub(crate) answers: Ident,
}

/// A method of the trait.
pub(crate) struct Method {
    pub(crate) name: Ident,
    /// The attributes that the trait's and the client's method have.
    pub(crate) attributes: Vec<Attribute>,
    /// Number of the method on the wire.
    pub(crate) id: u32,
    pub(crate) arguments: Vec<(Ident, Type)>,
    pub(crate) output: Type,
    /// The two types of a `Result`.
    pub(crate) result: Option<(Type, Type)>,
    pub(crate) is_idempotent: bool,
}

/// Errors found so far; all of them are told at once.
#[derive(Default)]
struct Wrong(Option<Error>);

impl Wrong {
    fn add(&mut self, at: impl ToTokens, text: impl std::fmt::Display) {
        self.combine(Error::new_spanned(at, text));
    }

    fn combine(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            errors => *errors = Some(error),
        }
    }
}

impl Interface {
    /// Reads the trait.
    ///
    /// # Errors
    ///
    /// All places where it is none that can be served, each with what to write there.
    pub(crate) fn parse(arguments: &TokenStream, item: TokenStream) -> syn::Result<Interface> {
        let mut item = match syn::parse2(item)? {
            Item::Trait(item) => item,
            other => return Err(Error::new_spanned(other, "`service` stands before a trait")),
        };
        let mut wrong = Wrong::default();
        if !arguments.is_empty() {
            wrong.add(
                arguments,
                "write `#[service]`: a name that is not the trait's is given to the server and the client",
            );
        }
        check_trait(&item, &mut wrong);
        let mut methods: Vec<Method> = Vec::new();
        for of_trait in &mut item.items {
            let TraitItem::Fn(function) = of_trait else {
                let text = match of_trait {
                    TraitItem::Type(_) => {
                        "a service has no associated types: name the type in its methods"
                    }
                    _ => "a service has only methods: `async fn name(&self, ..) -> ..;`",
                };
                wrong.add(of_trait, text);
                continue;
            };
            let Some(method) = Method::parse(function, &mut wrong) else { continue };
            if let Some(twin) = methods.iter().find(|it| it.id == method.id) {
                let text = format!("`{}` has the same hash: take another name", twin.name);
                wrong.add(&method.name, text);
            }
            methods.push(method);
        }
        if item.items.is_empty() {
            let text = "a service has a method at least: `async fn name(&self, ..) -> ..;`";
            wrong.add(&item.ident, text);
        }
        let requests = format_ident!("__{}Request", item.ident.unraw());
        let answers = format_ident!("__{}Answer", item.ident.unraw());
        wrong.0.map_or(Ok(Interface { item, methods, requests, answers }), Err)
    }

    /// Returns the name of the service, if its user gives none.
    pub(crate) fn name(&self) -> String {
        self.item.ident.unraw().to_string()
    }
}

fn check_trait(item: &ItemTrait, wrong: &mut Wrong) {
    let plain = "a service is a plain trait: `trait Name { .. }`";
    item.unsafety.iter().for_each(|it| wrong.add(it, plain));
    item.auto_token.iter().for_each(|it| wrong.add(it, plain));
    if !item.generics.params.is_empty() {
        let text = "a service has no generics: both ends name the types of its methods";
        wrong.add(&item.generics, text);
    }
    if let Some(clause) = &item.generics.where_clause {
        wrong.add(clause, "a service has no bounds: both ends name the types of its methods");
    }
}

impl Method {
    /// Reads a method, whose declaration loses what only `service` knows.
    fn parse(function: &mut TraitItemFn, wrong: &mut Wrong) -> Option<Method> {
        let mut is_idempotent = false;
        function.attrs.retain(|attribute| {
            let is_it = attribute.path().is_ident("idempotent");
            if is_it && attribute.meta.require_path_only().is_err() {
                wrong.add(attribute, "write `#[idempotent]`");
            }
            if attribute.path().is_ident("cfg") {
                wrong.add(attribute, "all methods of a service are always there: without `cfg`");
            }
            is_idempotent |= is_it;
            !is_it
        });
        check_signature(&function.sig, wrong);
        if let Some(body) = &function.default {
            wrong.add(body, "write `;`: the method's body stands where the trait is implemented");
        }
        let arguments = function.sig.inputs.iter().filter_map(|it| argument(it, wrong)).collect();
        let output: Type = match &function.sig.output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, output) => (**output).clone(),
        };
        check_type(&output, wrong);
        let name = function.sig.ident.clone();
        if OF_CLIENTS.contains(&&*name.unraw().to_string()) {
            wrong.add(&name, format!("every client has a function `{name}`: take another name"));
        }
        let id = id(&name.unraw().to_string());
        let result = types_of_result(&output, wrong);
        let attributes = function.attrs.clone();
        Some(Method { name, attributes, id, arguments, output, result, is_idempotent })
    }
}

fn check_signature(signature: &Signature, wrong: &mut Wrong) {
    let Signature { ident, generics, inputs, .. } = signature;
    let plain = format!("write `async fn {ident}` without it");
    signature.constness.iter().for_each(|it| wrong.add(it, &plain));
    signature.unsafety.iter().for_each(|it| wrong.add(it, &plain));
    signature.abi.iter().for_each(|it| wrong.add(it, &plain));
    signature.variadic.iter().for_each(|it| wrong.add(it, &plain));
    if signature.asyncness.is_none() {
        wrong.add(signature.fn_token, format!("write `async fn {ident}`: its caller waits for it"));
    }
    if !generics.params.is_empty() {
        wrong.add(generics, "a method has no generics: both ends name its types");
    }
    if let Some(clause) = &generics.where_clause {
        wrong.add(clause, "a method has no bounds: both ends name its types");
    }
    match inputs.first() {
        Some(FnArg::Receiver(receiver)) if is_by_reference(receiver) => {}
        Some(FnArg::Receiver(receiver)) => {
            let text = "write `&self`: one value answers many requests at the same time, and changes \
                        behind a lock";
            wrong.add(receiver, text);
        }
        _ => wrong.add(ident, format!("write `{ident}(&self, ..)`: a method is of the service")),
    }
}

fn is_by_reference(receiver: &Receiver) -> bool {
    let plain = receiver.reference.as_ref().is_some_and(|(_, lifetime)| lifetime.is_none());
    plain && receiver.mutability.is_none() && receiver.colon_token.is_none()
}

/// Returns the name and the type of an argument.
fn argument(argument: &FnArg, wrong: &mut Wrong) -> Option<(Ident, Type)> {
    let FnArg::Typed(typed) = argument else { return None };
    typed.attrs.iter().for_each(|it| wrong.add(it, "an argument has no attributes"));
    check_type(&typed.ty, wrong);
    match &*typed.pat {
        Pat::Ident(name)
            if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none() =>
        {
            Some((name.ident.clone(), (*typed.ty).clone()))
        }
        pattern => {
            let text = "write a name, as in `key: String`: the client's method has the same";
            wrong.add(pattern, text);
            None
        }
    }
}

/// Finds the parts of a type that do not travel.
fn check_type(at: &Type, wrong: &mut Wrong) {
    let mut left: Vec<TokenTree> = at.to_token_stream().into_iter().collect();
    while let Some(token) = left.pop() {
        match token {
            TokenTree::Group(group) => left.extend(group.stream()),
            TokenTree::Punct(punct) if punct.as_char() == '&' => {
                let text = "write a type that owns its data, as `String` in the place of `&str`: it \
                            travels";
                return wrong.add(at, text);
            }
            TokenTree::Ident(word) if word == "impl" || word == "dyn" => {
                let text = format!(
                    "write a type in the place of `{word} ..`: both ends name it. A stream is a \
                     `TravellingReceiver`"
                );
                return wrong.add(at, text);
            }
            TokenTree::Ident(word) if word == "Self" => {
                return wrong.add(at, "write a type that both ends name: a client has no `Self`");
            }
            _ => {}
        }
    }
}

/// Returns the types of a `Result`.
fn types_of_result(output: &Type, wrong: &mut Wrong) -> Option<(Type, Type)> {
    let Type::Path(path) = output else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Result")?;
    let PathArguments::AngleBracketed(types) = &last.arguments else { return None };
    let types: Vec<_> = types.args.iter().collect();
    match types[..] {
        [GenericArgument::Type(value), GenericArgument::Type(error)] => {
            Some((value.clone(), error.clone()))
        }
        _ => {
            wrong.add(
                output,
                "write both types, as in `Result<u64, StoreError>`: the error travels",
            );
            None
        }
    }
}

/// Returns the number of a method on the wire: the hash of its name by Fowler, Noll and Vo, variant 1a. Both
/// ends know it whatever other methods they have.
fn id(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
