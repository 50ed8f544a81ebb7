//! Functions of a farm beyond plain ones: with a context, map and reduce, divide and conquer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Function;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::context::{TaskContext, current};

type Combine<O> = dyn Fn(O, O) -> O + Send + Sync;
type Conquer<O> = dyn Fn(Vec<O>) -> O + Send + Sync;

/// Registration of functions for a farm.
pub trait RegistryExt {
    /// Registers a function as [`Registry::register`] does, which sees its task. Outside of a farm
    /// that is task 0, which is never cancelled.
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
    fn register_task<I, O>(
        &mut self,
        name: &str,
        function: impl Fn(&TaskContext, I) -> O + Send + Sync + 'static,
    ) -> Function<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static;

    /// Registers a function for [`Farm::map_reduce`](crate::Farm::map_reduce), and how two of its
    /// results become one. `reduce` must be associative: the results of neighbours are reduced at the
    /// worker, and those of the workers at the farmer, always in the order of the inputs.
    ///
    /// # Panics
    /// As [`Registry::register`].
    fn register_map_reduce<I, O>(
        &mut self,
        name: &str,
        map: impl Fn(I) -> O + Send + Sync + 'static,
        reduce: impl Fn(O, O) -> O + Send + Sync + 'static,
    ) -> MapReduce<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static;

    /// Registers a function for [`Farm::divide_and_conquer`](crate::Farm::divide_and_conquer), and how
    /// the solutions of all parts of a problem become its solution, in the order of the parts.
    ///
    /// Workers divide. The farmer conquers, so that should be quick. A worker should solve a problem
    /// whole that takes less than some 100 us.
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
    fn register_divide_and_conquer<I, O>(
        &mut self,
        name: &str,
        divide: impl Fn(I) -> Divided<I, O> + Send + Sync + 'static,
        conquer: impl Fn(Vec<O>) -> O + Send + Sync + 'static,
    ) -> DivideAndConquer<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static;
}

impl RegistryExt for Registry {
    fn register_task<I, O>(
        &mut self,
        name: &str,
        function: impl Fn(&TaskContext, I) -> O + Send + Sync + 'static,
    ) -> Function<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        self.register(name, move |input| function(&current(), input))
    }

    fn register_map_reduce<I, O>(
        &mut self,
        name: &str,
        map: impl Fn(I) -> O + Send + Sync + 'static,
        reduce: impl Fn(O, O) -> O + Send + Sync + 'static,
    ) -> MapReduce<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let reduce: Arc<Combine<O>> = Arc::new(reduce);
        let at_worker = Arc::clone(&reduce);
        let function = self.register(name, move |inputs: Vec<I>| {
            inputs.into_iter().map(&map).reduce(&*at_worker).expect("a group has an input")
        });
        MapReduce { function, reduce }
    }

    fn register_divide_and_conquer<I, O>(
        &mut self,
        name: &str,
        divide: impl Fn(I) -> Divided<I, O> + Send + Sync + 'static,
        conquer: impl Fn(Vec<O>) -> O + Send + Sync + 'static,
    ) -> DivideAndConquer<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let function = self.register(name, move |(place, problem): (Place, I)| {
            let (step, parts) = match divide(problem) {
                Divided::Solved(solution) => (Step::Solved(solution), Vec::new()),
                Divided::Parts(parts) => (Step::Parts(parts.len() as u32), parts),
            };
            let below = |part: u32| [&place[..], &[part]].concat();
            let parts = (0..).zip(parts).map(|(at, part)| (below(at), part)).collect();
            ((place, step), parts)
        });
        DivideAndConquer { function, conquer: Arc::new(conquer) }
    }
}

/// A registered map and reduce.
pub struct MapReduce<I, O> {
    /// Maps a group of inputs, at least one, and reduces the results.
    pub(crate) function: Function<Vec<I>, O>,
    pub(crate) reduce: Arc<Combine<O>>,
}

/// A problem that was divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divided<I, O> {
    /// It was small, and this is its solution.
    Solved(O),
    /// Its parts: problems of the same kind. Without parts the solution is that of no parts.
    Parts(Vec<I>),
}

/// A registered divide and conquer.
pub struct DivideAndConquer<I, O> {
    pub(crate) function: Function<(Place, I), DividedTask<I, O>>,
    pub(crate) conquer: Arc<Conquer<O>>,
}

/// Result of a task that divides, and its parts as further tasks.
type DividedTask<I, O> = ((Place, Step<O>), Vec<(Place, I)>);

/// Place of a problem: which part it is, of which part, and on to the whole problem, from that one
/// on. The whole problem has no number.
pub(crate) type Place = Vec<u32>;

#[derive(Serialize, Deserialize)]
pub(crate) enum Step<O> {
    Solved(O),
    /// The number of parts.
    Parts(u32),
}

/// The problems that wait for the solutions of their parts.
pub(crate) struct Unsolved<'a, O> {
    waiting: BTreeMap<Place, Vec<Option<O>>>,
    conquer: &'a Conquer<O>,
    pub(crate) solution: Option<O>,
}

impl<'a, O> Unsolved<'a, O> {
    pub(crate) fn new(conquer: &'a Conquer<O>) -> Self {
        Unsolved { waiting: BTreeMap::new(), conquer, solution: None }
    }

    /// Takes the step of a problem. Those of its parts come later.
    pub(crate) fn take(&mut self, mut place: Place, step: Step<O>) {
        let mut solution = match step {
            Step::Solved(solution) => solution,
            Step::Parts(0) => (self.conquer)(Vec::new()),
            Step::Parts(count) => {
                self.waiting.insert(place, (0..count).map(|_| None).collect());
                return;
            }
        };
        while let Some(part) = place.pop() {
            let parts = self.waiting.get_mut(&place).expect("a problem comes before its parts");
            parts[part as usize] = Some(solution);
            if parts.iter().any(Option::is_none) {
                return;
            }
            let parts = self.waiting.remove(&place).expect("it was there just now");
            solution = (self.conquer)(parts.into_iter().flatten().collect());
        }
        self.solution = Some(solution);
    }
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
