//! Tracked buffers on other systems than Linux: they cannot be made.

use std::convert::Infallible;
use std::error::Error;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;

use super::{
    AccessError, Awaiting, Finished, Received, RecvEngine, SendEngine, Sent, SetupError, Tracking,
};

/// Costs of the engines: there are none here.
pub mod costs {
    use super::{RecvEngine, SendEngine, SetupError};
    pub use crate::runs::{RecvCosts, SendCosts};

    /// Fails: not supported here.
    ///
    /// # Errors
    /// Always [`SetupError::NotSupportedHere`].
    pub fn send_costs(_: SendEngine, _: usize, _: usize) -> Result<SendCosts, SetupError> {
        Err(SetupError::NotSupportedHere)
    }

    /// Fails: not supported here.
    ///
    /// # Errors
    /// Always [`SetupError::NotSupportedHere`].
    pub fn recv_costs(_: RecvEngine, _: usize, _: usize) -> Result<RecvCosts, SetupError> {
        Err(SetupError::NotSupportedHere)
    }
}

/// Memory that ordinary code writes while it is sent; not supported here.
#[derive(Debug)]
pub struct TrackedOutput<T: Pod>(Infallible, PhantomData<T>);

impl<T: Pod> TrackedOutput<T> {
    /// Fails: not supported here.
    ///
    /// # Errors
    /// Always [`SetupError::NotSupportedHere`].
    pub fn new(_len: usize, _settings: Tracking) -> Result<Self, SetupError> {
        Err(SetupError::NotSupportedHere)
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn engine(&self) -> SendEngine {
        match self.0 {}
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    /// Returns the bytes of an increment.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        match self.0 {}
    }

    /// Returns the elements.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        match self.0 {}
    }

    /// Returns the elements to change.
    pub fn elements_mut(&mut self) -> &mut [T] {
        match self.0 {}
    }

    /// Runs `write` and hands on what is finished.
    ///
    /// # Errors
    /// None: there is no such buffer here.
    pub fn track<R, E: From<AccessError> + Send>(
        &mut self,
        _write: impl FnOnce(&mut [T]) -> R,
        _done: impl FnMut(Finished<'_, T>) -> Result<(), E> + Send,
    ) -> Result<(R, Sent), E> {
        match self.0 {}
    }
}

/// Memory that ordinary code reads while it arrives; not supported here.
#[derive(Debug)]
pub struct TrackedInput<T: Pod>(Infallible, PhantomData<T>);

impl<T: Pod> TrackedInput<T> {
    /// Fails: not supported here.
    ///
    /// # Errors
    /// Always [`SetupError::NotSupportedHere`].
    pub fn new(_len: usize, _settings: Awaiting) -> Result<Self, SetupError> {
        Err(SetupError::NotSupportedHere)
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn engine(&self) -> RecvEngine {
        match self.0 {}
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    /// Returns the elements.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        match self.0 {}
    }

    /// Runs `read` while `fill` puts the elements there.
    ///
    /// # Errors
    /// None: there is no such buffer here.
    pub fn track<R, E: Error + From<AccessError> + Send>(
        &mut self,
        _read: impl FnOnce(&[T], &Arrivals<'_>) -> R,
        _fill: impl FnOnce(&mut Filler<'_, T>) -> Result<(), E> + Send,
    ) -> Result<(R, Received), E> {
        match self.0 {}
    }
}

/// The elements that have come.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals<'a>(Infallible, PhantomData<&'a ()>);

impl Arrivals<'_> {
    /// Waits until all elements of `range` have come.
    ///
    /// # Errors
    /// None: there is no such buffer here.
    pub fn wait(&self, _range: Range<usize>) -> Result<(), AccessError> {
        match self.0 {}
    }

    /// Whether all elements of `range` have come.
    #[must_use]
    pub fn have_come(&self, _range: Range<usize>) -> bool {
        match self.0 {}
    }
}

/// Puts elements into a tracked buffer.
#[derive(Debug)]
pub struct Filler<'a, T>(Infallible, PhantomData<&'a T>);

impl<T: Pod> Filler<'_, T> {
    /// Puts `elements` at index `start`.
    ///
    /// # Errors
    /// None: there is no such buffer here.
    pub fn put(&mut self, _start: usize, _elements: &[T]) -> Result<(), AccessError> {
        match self.0 {}
    }

    /// Returns the number of reads that had to wait.
    #[must_use]
    pub fn stalls(&self) -> u32 {
        match self.0 {}
    }

    /// Waits until no further elements are of use.
    pub async fn stopped(&self) {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_tracked_elsewhere() {
        let error = TrackedOutput::<u8>::new(1, Tracking::default()).expect_err("not here");
        assert!(matches!(error, SetupError::NotSupportedHere));
        let error = TrackedInput::<u8>::new(1, Awaiting::default()).expect_err("not here");
        assert!(matches!(error, SetupError::NotSupportedHere));
        assert!(costs::send_costs(SendEngine::Mprotect, 1, 1).is_err());
        assert!(costs::recv_costs(RecvEngine::Mprotect, 1, 1).is_err());
    }
}
