//! Elements of deltas.

use bytemuck::Pod;

/// Elements of a delta: values without references and padding, of which any bytes are one
/// (`bytemuck::Pod`). Each type that is `Pod` is an element: numbers, arrays of them, and structs that
/// derive it.
///
/// ```
/// # fn is_element<T: chunkcomm_group::Element>() {}
/// is_element::<f64>();
/// is_element::<[u16; 3]>();
/// ```
///
/// Others are refused by the compiler, with words for it:
///
/// ```compile_fail,E0277
/// # fn is_element<T: chunkcomm_group::Element>() {}
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

/// Returns elements of zeros. The memory of large ones grows as they are written: their number may be one that a
/// peer has stated.
///
/// # Errors
/// When there is no memory, in words.
pub fn zeros<T: Element>(length: usize) -> Result<Vec<T>, String> {
    bytemuck::try_zeroed_vec(length).map_err(|()| {
        format!("there is no memory of {} bytes", length.saturating_mul(size_of::<T>()))
    })
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::mem::ManuallyDrop;

    use super::*;

    /// Returns the number of pages of this process in memory.
    #[cfg(target_os = "linux")]
    fn resident_pages() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = statm.split_whitespace().nth(1).expect("its second number");
        pages.parse().expect("a number")
    }

    #[test]
    fn more_zeros_than_there_are_addresses_are_an_error() {
        let error = zeros::<u64>(usize::MAX / 16).expect_err("more than there are addresses");
        assert_eq!(error, "there is no memory of 9223372036854775800 bytes");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn elements_take_memory_when_they_are_written() {
        // 1 GiB of a type of which `vec!` would write each element.
        const LENGTH: usize = 1 << 27;
        let before = resident_pages();
        let all = zeros::<ManuallyDrop<u64>>(LENGTH).expect("addresses");
        // Other tests take memory as well.
        let pages = resident_pages().saturating_sub(before);
        assert!(pages < LENGTH * 8 / 4096 / 2, "{pages} pages");
        assert_eq!(*all[LENGTH - 1], 0);
    }
}
