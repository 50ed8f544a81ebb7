//! Elements of deltas.

use bytemuck::Pod;

/// Elements of a delta: values without references and padding, of which any bytes are one
/// (`bytemuck::Pod`). Each type that is `Pod` is an element: numbers, arrays of them, and structs that
/// derive it.
///
/// ```
/// # fn is_element<T: chunkcomm_pipeline::Element>() {}
/// is_element::<f64>();
/// is_element::<[u16; 3]>();
/// ```
///
/// Others are refused by the compiler, with words for it:
///
/// ```compile_fail,E0277
/// # fn is_element<T: chunkcomm_pipeline::Element>() {}
/// is_element::<bool>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the element of a delta, whose bytes are sent as they are",
    label = "it is not `bytemuck::Pod`",
    note = "a struct of numbers becomes one by `#[repr(C)]` and `#[derive(Clone, Copy, bytemuck::Pod, \
            bytemuck::Zeroable)]`; it has no padding, references, `bool`, `char` or enums",
    note = "values of other types travel by channels: `Node::open`, `Node::accept`"
)]
pub trait Element: Pod + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Pod + Send + Sync> Element for T {}
