//! A function with the options of one run.

use std::fmt;

use chunkcomm_cluster::Function;

use crate::functions::{DivideAndConquer, MapReduce};
use crate::name::WorkerName;
use crate::run::Choice;

/// A function with the options of one run, made by [`FunctionExt`].
///
/// Each call of a [`Farm`](crate::Farm) that runs a function takes this, or a plain reference to
/// the function.
pub struct RunOf<'f, F> {
    pub(crate) function: &'f F,
    pub(crate) choice: Option<Choice>,
}

impl<F: fmt::Debug> fmt::Debug for RunOf<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chooses = self.choice.is_some();
        f.debug_struct("RunOf").field("function", self.function).field("chooses", &chooses).finish()
    }
}

impl<'f, F> From<&'f F> for RunOf<'f, F> {
    fn from(function: &'f F) -> RunOf<'f, F> {
        RunOf { function, choice: None }
    }
}

/// Options of one run, set on its function.
pub trait FunctionExt: Sized {
    /// Gives the tasks of the run only to the workers that `choose` takes.
    ///
    /// To keep a run off a worker, take all others. The closure is asked about each worker that is
    /// there when the run begins, or becomes ready during it. It is asked about [the farmer's
    /// own](crate::settings::Model) once that takes part. It may be asked again about a worker, and
    /// should answer the same. A process in the place of a dead one is another worker.
    ///
    /// In a farm with [sub-farmers](crate::FarmBuilder::tree) the closure is asked about these
    /// only: each is taken with all nodes below it. [`Tree::Hosts`](crate::settings::Tree::Hosts)
    /// makes the nodes of a host such a group.
    ///
    /// A run whose chosen workers are gone waits for expected ones up to the
    /// [`start_deadline`](crate::FarmBuilder::start_deadline). Then it ends with
    /// [`RunError::NotChosen`](crate::RunError::NotChosen).
    ///
    /// ```no_run
    /// # async fn example(farm: &mut chunkcomm_farm::Farm, encode: &chunkcomm_cluster::Function<u32, u32>)
    /// # -> Result<(), chunkcomm_farm::RunError> {
    /// use chunkcomm_farm::{FunctionExt, WorkerName};
    ///
    /// let has_a_gpu = |worker: &WorkerName| {
    ///     worker.member.as_ref().is_some_and(|node| &*node.host == "gpu.lab")
    /// };
    /// let encoded = farm.run(encode.only_on(has_a_gpu), 0..100).await?;
    /// let others = farm.run(encode.only_on(move |worker| !has_a_gpu(worker)), 0..100).await?;
    /// # Ok(())
    /// # }
    /// ```
    fn only_on(
        &self,
        choose: impl Fn(&WorkerName) -> bool + Send + Sync + 'static,
    ) -> RunOf<'_, Self> {
        RunOf { function: self, choice: Some(Box::new(choose)) }
    }
}

impl<I, O> FunctionExt for Function<I, O> {}
impl<I, O> FunctionExt for MapReduce<I, O> {}
impl<I, O> FunctionExt for DivideAndConquer<I, O> {}
