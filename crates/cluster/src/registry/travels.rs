//! The types of registered functions.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type whose values travel to a registered function, or back. All types with serde's `Serialize` and
/// `Deserialize` are such, if they borrow nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input or the result of a registered function",
    label = "a function with this type cannot be registered",
    note = "the type must implement serde's `Serialize` and `Deserialize`, which can be derived, and own \
            its data: `String`, not `&str`",
    note = "a function that returns a future is registered by `register_async` or `register_async_task`",
    note = "an error that a function returns must travel as well: `Result<T, String>` does"
)]
pub trait Travels: Serialize + DeserializeOwned + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + 'static> Travels for T {}
