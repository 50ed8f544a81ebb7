//! The form of a service's words: the types of its function, or of its methods if it has several.

use super::error::CallError;
use crate::proto::call::methods::{self, MethodKey};
use crate::proto::call::wire;
use chunkcomm::error::TypeRefused;
use chunkcomm::layer::Fingerprint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Returns the fingerprint of a type, or of the schema that stands for it.
pub type TypeOf = fn(Option<&str>) -> Result<Fingerprint, TypeRefused>;

/// Types of a method.
#[derive(Debug, Clone, Copy)]
pub struct MethodTypes {
    /// Of its arguments.
    pub arguments: &'static [TypeOf],
    /// Of its result.
    pub result: TypeOf,
}

/// A method of a service whose interface is a trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    name: &'static str,
    id: u32,
    is_idempotent: bool,
}

impl Method {
    /// Returns a method; `id` is the hash of its name.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, id: u32, is_idempotent: bool) -> Method {
        Method { name, id, is_idempotent }
    }

    /// Returns the method's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether to call it twice does no more than to call it once: it is `#[idempotent]` in the trait.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// Whether a call that failed like this can be made again without harm, and may succeed then: the error is not
    /// [permanent](CallError::is_permanent), and nobody has handled the call or the method is idempotent.
    #[must_use]
    pub fn may_repeat(&self, error: &CallError) -> bool {
        !error.is_permanent() && (self.is_idempotent || error.was_not_handled())
    }
}

/// A function of a service: its only one, or a method.
pub(super) struct Function {
    /// Name for people and for the hooks of calls: of the service, or of the service and the method.
    pub(super) name: Arc<str>,
    /// Name and types of a method.
    signature: String,
    key: MethodKey,
    /// Whether channel ends may be in its arguments.
    pub(super) takes_ends: bool,
    /// Whether channel ends may be in its result.
    pub(super) returns_ends: bool,
}

/// The form of a service's words.
pub(crate) struct Form {
    pub(super) fingerprint: Fingerprint,
    /// The only function, or the methods in the order of the trait.
    functions: Vec<Function>,
    /// The keys of the methods; `None` for a function without a name.
    keys: Option<Vec<MethodKey>>,
    pub(super) takes_ends: bool,
    pub(super) returns_ends: bool,
}

impl Form {
    /// Returns the form of a service of one function.
    ///
    /// # Errors
    ///
    /// Values of a type cannot be sent.
    pub(super) fn of<Req, Resp>(service: &str, schema: Option<&str>) -> Result<Form, TypeRefused>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned,
    {
        let (request, answer) = (Fingerprint::of::<Req>(schema)?, Fingerprint::of::<Resp>(schema)?);
        let fingerprint = request.duplex(&answer).in_role("call/1");
        let key = MethodKey { id: 0, hash: fingerprint.hash };
        let (takes_ends, returns_ends) = (request.carries, answer.carries);
        let (name, signature) = (service.into(), String::new());
        let function = Function { name, signature, key, takes_ends, returns_ends };
        Ok(Form::new(fingerprint, vec![function], None))
    }

    /// Returns the form of a service of methods.
    ///
    /// # Errors
    ///
    /// Values of a type cannot be sent.
    pub(crate) fn of_methods(
        service: &str,
        methods: &[Method],
        all_types: &[MethodTypes],
        schema: Option<&str>,
    ) -> Result<Form, TypeRefused> {
        let functions = methods.iter().zip(all_types);
        let functions = functions.map(|(it, types)| Function::of(service, it, types, schema));
        let functions = functions.collect::<Result<Vec<_>, TypeRefused>>()?;
        let keys = functions.iter().map(|it| it.key).collect();
        let text = "the methods of a trait".to_owned();
        let all = Fingerprint { hash: 0, text, carries: false }.in_role("methods/1");
        Ok(Form::new(all, functions, Some(keys)))
    }

    fn new(
        fingerprint: Fingerprint,
        functions: Vec<Function>,
        keys: Option<Vec<MethodKey>>,
    ) -> Form {
        let takes_ends = functions.iter().any(|it| it.takes_ends);
        let returns_ends = functions.iter().any(|it| it.returns_ends);
        Form { fingerprint, functions, keys, takes_ends, returns_ends }
    }

    /// Returns the number of functions.
    pub(super) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Returns a function by its index in the trait.
    #[inline]
    pub(super) fn function(&self, index: usize) -> &Function {
        &self.functions[index]
    }

    /// Returns the function that a value is of; `None` if there is no such method.
    pub(super) fn function_of(&self, value: &[u8]) -> Option<&Function> {
        if self.keys.is_none() {
            return self.functions.first();
        }
        let id = methods::id_of(value)?;
        self.functions.iter().find(|it| it.key.id == id)
    }

    /// Whether the service has methods, so that its clients name theirs first.
    #[inline]
    pub(super) fn has_methods(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns the first word of a client, if there is one.
    pub(super) fn greeting(&self) -> Option<Vec<u8>> {
        self.keys.as_ref().map(|keys| wire::methods(keys.iter().copied()))
    }

    /// Returns the methods of a client that the service has not, or has with other types, from the client's
    /// first word; `None` for a service without methods.
    pub(super) fn differing(&self, keys: &[u8]) -> Option<Vec<u32>> {
        let ours = self.keys.as_ref()?;
        Some(methods::differing(ours, wire::keys(keys)))
    }

    /// Returns the signature of the method that a request is for; empty if there is none.
    pub(super) fn signature_of(&self, value: &[u8]) -> String {
        self.function_of(value).map(|it| it.signature.clone()).unwrap_or_default()
    }

    /// Whether channel ends may be in this request.
    #[inline]
    pub(super) fn has_ends(&self, request: &[u8]) -> bool {
        self.takes_ends && self.function_of(request).is_some_and(|it| it.takes_ends)
    }

    /// Whether channel ends may be in this answer.
    #[inline]
    pub(super) fn answer_has_ends(&self, answer: &[u8]) -> bool {
        self.returns_ends && self.function_of(answer).is_some_and(|it| it.returns_ends)
    }

    /// Lets the error of a call name its method.
    #[cold]
    pub(super) fn name_method(&self, error: CallError, index: usize) -> CallError {
        if self.keys.is_none() {
            return error;
        }
        let Function { name, signature, .. } = self.function(index);
        error.of_method(name, signature)
    }
}

impl Function {
    fn of(
        service: &str,
        method: &Method,
        types: &MethodTypes,
        schema: Option<&str>,
    ) -> Result<Function, TypeRefused> {
        let Method { name, id, .. } = method;
        let arguments = types.arguments.iter().map(|argument| argument(schema));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let result = (types.result)(schema)?;
        let hashes = arguments.iter().chain([&result]).map(|it| it.hash);
        let texts: Vec<_> = arguments.iter().map(|it| &*it.text).collect();
        Ok(Function {
            name: format!("{service}.{name}").into(),
            signature: format!("{name}({}) -> {}", texts.join(", "), result.text),
            key: MethodKey::new(*id, name, hashes),
            takes_ends: arguments.iter().any(|it| it.carries),
            returns_ends: result.carries,
        })
    }
}
