//! Functions of a farm beyond plain ones: functions that see their task, map and reduce, divide and
//! conquer.

use std::borrow::BorrowMut;
use std::fmt;
use std::sync::Arc;

use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::{Entry, Function, FunctionError, Travels};
use serde::{Deserialize, Serialize};

use crate::context::{TaskContext, current};
use crate::proto::wire;

type Combine<O> = dyn Fn(O, O) -> O + Send + Sync;
pub(crate) type Conquer<O> = dyn Fn(Vec<O>) -> O + Send + Sync;

/// Registration of functions for a farm.
pub trait RegistryExt: BorrowMut<Registry> {
    /// Registers a function that also gets its task; otherwise as [`Registry::register`].
    ///
    /// Outside of a farm the task has index 0 and is never cancelled.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let best = registry.register_task("best", |task, steps: u64| {
    ///     let mut best = 0;
    ///     for step in 0..steps {
    ///         if task.is_cancelled() {
    ///             break; // the best so far
    ///         }
    ///         best = best.max(step ^ 0x5555);
    ///     }
    ///     best
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`Registry::register`].
    #[track_caller]
    fn register_task<I: Travels, O: Travels>(
        &mut self,
        name: &str,
        function: impl Fn(&TaskContext, I) -> O + Send + Sync + 'static,
    ) -> Function<I, O> {
        self.borrow_mut().register(name, move |input| function(&current(), input))
    }

    /// Registers an async function that also gets its task; otherwise as
    /// [`Registry::register_async`].
    ///
    /// While a task waits, its thread runs others
    /// ([`FarmBuilder::virtual_workers`](crate::FarmBuilder::virtual_workers)). A task whose time
    /// is over, or whose run is dropped, is dropped where it waits.
    ///
    /// ```
    /// use chunkcomm::host;
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    /// use std::time::Duration;
    ///
    /// let mut registry = Registry::new();
    /// let ask = registry.register_async_task("ask", |task, address: String| async move {
    ///     // In the place of a question to another machine.
    ///     host::sleep(Duration::from_millis(10)).await;
    ///     format!("{address} at attempt {}", task.attempt())
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`Registry::register`].
    #[track_caller]
    fn register_async_task<I: Travels, O: Travels, F>(
        &mut self,
        name: &str,
        function: impl Fn(TaskContext, I) -> F + Send + Sync + 'static,
    ) -> Function<I, O>
    where
        F: Future<Output = O> + Send + 'static,
    {
        self.borrow_mut().register_async(name, move |input| function(current(), input))
    }

    /// Registers a function for [`Farm::map_reduce`](crate::Farm::map_reduce), and how two of its
    /// results become one.
    ///
    /// `reduce` must be associative, and need not be commutative. The worker, its sub-farmer if it
    /// has one, and the farmer reduce results of neighbours, always in the order of the inputs. A
    /// call of `reduce` should take a few milliseconds at most: a farmer or sub-farmer handles no
    /// messages meanwhile. If `reduce` panics at the farmer, the call of the run panics.
    ///
    /// The call also registers `reduce <name>`, which sub-farmers call.
    ///
    /// # Panics
    /// As [`Registry::register`], for both names.
    #[track_caller]
    fn register_map_reduce<I: Travels, O: Travels>(
        &mut self,
        name: &str,
        map: impl Fn(I) -> O + Send + Sync + 'static,
        reduce: impl Fn(O, O) -> O + Send + Sync + 'static,
    ) -> MapReduce<I, O> {
        let reduce: Arc<Combine<O>> = Arc::new(reduce);
        let (at_worker, between) = (Arc::clone(&reduce), Arc::clone(&reduce));
        let function = self
            .borrow_mut()
            .register(name, move |inputs: Vec<I>| inputs.into_iter().map(&map).reduce(&*at_worker));
        self.borrow_mut().register(&reducer_of(name), move |results: Vec<Option<O>>| {
            results.into_iter().flatten().reduce(&*between)
        });
        MapReduce { function, reduce }
    }

    /// Registers a function for [`Farm::divide_and_conquer`](crate::Farm::divide_and_conquer), and
    /// how solutions of parts become one.
    ///
    /// `conquer` gets the solutions of all parts of a problem in the order of the parts. Workers
    /// divide; the farmer conquers, so that should be quick. A worker should solve a problem whole
    /// if that takes less than some 100 us.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::{Divided, RegistryExt};
    ///
    /// let mut registry = Registry::new();
    /// // The integral of 1/x, in steps that are finer where the curve is steeper.
    /// let area = registry.register_divide_and_conquer(
    ///     "area",
    ///     |(from, to): (f64, f64)| {
    ///         let (middle, width) = ((from + to) / 2.0, to - from);
    ///         if width / from < 1e-3 {
    ///             Divided::Solved(width / middle)
    ///         } else {
    ///             Divided::Parts(vec![(from, middle), (middle, to)])
    ///         }
    ///     },
    ///     |parts: Vec<f64>| parts.iter().sum(),
    /// );
    /// ```
    ///
    /// # Panics
    /// As [`Registry::register`].
    #[track_caller]
    fn register_divide_and_conquer<I: Travels, O: Travels>(
        &mut self,
        name: &str,
        divide: impl Fn(I) -> Divided<I, O> + Send + Sync + 'static,
        conquer: impl Fn(Vec<O>) -> O + Send + Sync + 'static,
    ) -> DivideAndConquer<I, O> {
        let function = self.borrow_mut().register(name, divide);
        DivideAndConquer { function, conquer: Arc::new(conquer) }
    }
}

impl RegistryExt for Registry {}

/// The codec's form of an option without a value.
const NONE: [u8; 1] = [0];

/// Name of the function that reduces results of the function of this name.
fn reducer_of(name: &str) -> String {
    format!("reduce {name}")
}

/// Reduces encoded results of a map and reduce.
#[derive(Clone, Debug)]
pub(crate) struct Reducer(Entry);

impl Reducer {
    /// Returns the reducer of the function of this name; `None` if none is registered.
    pub(crate) fn of(name: &str, registry: &Registry) -> Option<Reducer> {
        registry.lookup(&reducer_of(name)).cloned().map(Reducer)
    }

    /// Reduces the results of `count` tasks, each after its length; `None` if one of the tasks
    /// failed.
    ///
    /// The first task then has the result of all, and the others have none.
    ///
    /// # Errors
    /// The user's function fails.
    pub(crate) fn reduce(
        &self,
        results: &[u8],
        count: u32,
    ) -> Result<Option<Vec<u8>>, FunctionError> {
        // The codec's form of a list.
        let mut list = u64::from(count).to_le_bytes().to_vec();
        let mut items = wire::Items::new(results, count);
        while let Ok(Some(item)) = items.next_result() {
            match item {
                wire::Item::Value(value) => list.extend_from_slice(value),
                wire::Item::Failure(_) => return Ok(None),
            }
        }
        let mut reduced = Vec::new();
        wire::put_item(&mut reduced, |out| self.0.call(&list, out))?;
        for _ in 1..count {
            wire::put_bytes(&mut reduced, &NONE);
        }
        Ok(Some(reduced))
    }
}

/// A registered map and reduce.
pub struct MapReduce<I, O> {
    /// Maps a group of inputs and reduces the results. A sub-farmer reduces the results of several
    /// groups: the first group then has the result of all, and the others have none.
    pub(crate) function: Function<Vec<I>, Option<O>>,
    pub(crate) reduce: Arc<Combine<O>>,
}

/// A problem that was divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Divided<I, O> {
    /// The problem was small, and this is its solution.
    Solved(O),
    /// Its parts: problems of the same kind. A problem without parts has the solution of no parts.
    Parts(Vec<I>),
}

/// A registered divide and conquer.
pub struct DivideAndConquer<I, O> {
    pub(crate) function: Function<I, Divided<I, O>>,
    pub(crate) conquer: Arc<Conquer<O>>,
}

impl<I, O> Clone for MapReduce<I, O> {
    fn clone(&self) -> Self {
        MapReduce { function: self.function.clone(), reduce: Arc::clone(&self.reduce) }
    }
}

impl<I, O> fmt::Debug for MapReduce<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MapReduce").field(&self.function.name()).finish()
    }
}

impl<I, O> Clone for DivideAndConquer<I, O> {
    fn clone(&self) -> Self {
        DivideAndConquer { function: self.function.clone(), conquer: Arc::clone(&self.conquer) }
    }
}

impl<I, O> fmt::Debug for DivideAndConquer<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DivideAndConquer").field(&self.function.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(values: &[Option<String>]) -> Vec<u8> {
        let mut items = Vec::new();
        values.iter().for_each(|value| wire::put_value(&mut items, value).unwrap());
        items
    }

    #[test]
    fn a_name_registered_twice_panics_at_the_line_that_does_it() {
        thread_local!(static PLACE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PLACE.set(info.location().map_or(0, std::panic::Location::line));
            before(info);
        }));
        let mut registry = Registry::new();
        registry.register("f", |(): ()| ());
        let mut panics_at = |line: u32, registers: &dyn Fn(&mut Registry)| {
            let registers = std::panic::AssertUnwindSafe(|| registers(&mut registry));
            assert!(std::panic::catch_unwind(registers).is_err());
            assert_eq!(PLACE.get(), line);
        };
        let nothing = |(): ()| ();
        panics_at(line!(), &|it| drop(it.register_task("f", |_, (): ()| ())));
        panics_at(line!(), &|it| drop(it.register_async_task("f", |_, (): ()| async {})));
        panics_at(line!(), &|it| drop(it.register_map_reduce("f", nothing, |(), ()| ())));
        let solved = |(): ()| Divided::Solved(());
        panics_at(line!(), &|it| drop(it.register_divide_and_conquer("f", solved, |_| ())));
    }

    #[test]
    fn encoded_results_are_reduced_in_their_order() {
        let mut registry = Registry::new();
        let join = |one: String, next: String| {
            assert!(next != "stop", "it stops");
            one + &next
        };
        registry.register_map_reduce("words", |word: String| word, join);
        let reducer = Reducer::of("words", &registry).unwrap();
        assert!(Reducer::of("others", &registry).is_none());
        let text = |text: &str| Some(text.to_owned());
        let results = items(&[text("a"), None, text("bc"), text(""), None, text("d")]);
        let reduced = reducer.reduce(&results, 6).unwrap().unwrap();
        assert_eq!(reduced, items(&[text("abcd"), None, None, None, None, None]));
        let reduced = reducer.reduce(&items(&[None, None]), 2).unwrap().unwrap();
        assert_eq!(reduced, items(&[None, None]));

        let failing = reducer.reduce(&items(&[text("a"), text("stop")]), 2);
        assert!(matches!(failing, Err(FunctionError::Panicked { .. })), "{failing:?}");
        let mut results = items(&[text("a")]);
        wire::put_failure(&mut results, "no word");
        assert!(reducer.reduce(&results, 2).unwrap().is_none());
    }
}
