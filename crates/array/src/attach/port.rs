//! The place where a group offers an array.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chunkcomm::Loss;
use chunkcomm_group::{Group, Op};

use super::desk::{Desk, LetIn, UnderWay};
use super::visit::Visit;
use super::{Ask, key};
use crate::ends::error::ArrayError;

/// Time for which a visitor may do nothing, by default: 30 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of visits that are under way at most, by default: 4.
const VISITS_MAX: usize = 4;

/// The word of rank 0 about its visitors: the number of the first one that is let in, the wishes of all that are, and
/// visits that may be over.
type Said = (u64, Vec<Ask>, Vec<u64>);

/// Offers an array of a group under a name to programs that join the cluster later: an I/O server, a viewer.
///
/// A program that comes as a [`Visitor`](crate::Visitor) waits until the group next asks for
/// [`visits`](Self::visits). Each visitor then gets the whole array, or gives one:
///
/// ```no_run
/// use chunkcomm_array::{Array, ArrayError, ArrayPort};
/// use chunkcomm_group::Group;
///
/// # async fn example(group: &mut Group) -> Result<(), Box<dyn std::error::Error>> {
/// let mut field = Array::<f64>::zeros(group, "(block,*)", [1000, 1000])?;
/// let mut port = ArrayPort::open(group, "field").await?;
/// for _step in 0..1000 {
///     // ... computes `field` ...
///     for visit in port.visits(group).await? {
///         let served = match visit.gives() {
///             None => visit.send(&field).await,
///             Some(_) => visit.receive(&mut field).await,
///         };
///         match served {
///             // The group itself is broken.
///             Err(ArrayError::Group(cause)) => return Err(cause.into()),
///             // The visitor is gone, or wants something else.
///             Err(error) => eprintln!("{error}"),
///             Ok(()) => {}
///         }
///     }
/// }
/// port.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Deaths
///
/// The death of a visitor harms nothing: it is no rank of the group, and no call of the group is made with it. A
/// visitor that takes an array is not waited for. One that gives an array is waited for until its death is known,
/// or it has done nothing for the [patience](Self::set_patience); the group's array is then as it was.
///
/// # Dropping
///
/// Visitors that wait get an error. Arrays that are on their way go on; [`close`](Self::close) waits for them.
pub struct ArrayPort {
    name: Arc<str>,
    /// At rank 0.
    desk: Option<Desk>,
    patience: Duration,
    visits_max: usize,
    under_way: UnderWay,
    /// Marks of the visits of which this rank may have elements, by number.
    marks: Vec<(u64, Weak<()>)>,
}

impl ArrayPort {
    /// Opens a port under a name. All ranks of the group open it; the name of rank 0 counts.
    ///
    /// # Errors
    ///
    /// - [`ArrayError::Rank`] when the cluster does not take the name, or rank 0 offers an array under it already;
    /// - [`ArrayError::Group`] when a rank of the group is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks wait for this one.
    pub async fn open(group: &mut Group, name: &str) -> Result<ArrayPort, ArrayError> {
        let opened = match group.rank() {
            0 => Some(Desk::open(group.cluster(), name).await),
            _ => None,
        };
        let said = opened.as_ref().map(|opened| match opened {
            Ok(_) => Ok(()),
            Err(loss) => Err(loss.clone()),
        });
        let told = group.broadcast_value(0, said).await;
        let told: Result<(), Loss> = told.map_err(|error| ArrayError::Group(error.cause))?;
        told.map_err(|loss| ArrayError::Rank { rank: 0, loss })?;
        Ok(ArrayPort {
            name: name.into(),
            desk: opened.and_then(Result::ok),
            patience: PATIENCE,
            visits_max: VISITS_MAX,
            under_way: UnderWay::default(),
            marks: Vec::new(),
        })
    }

    /// Sets the time for which a visitor may take or give nothing while the group sends or receives; by default
    /// 30 s. Then it counts as gone.
    pub fn set_patience(&mut self, time: Duration) {
        self.patience = time;
    }

    /// Sets the number of visits that are under way at most; by default 4. Further visitors wait. Each visit
    /// under way takes as much memory at a rank as its part of the array: until the visitor has all, or does nothing
    /// for the patience. The number of rank 0 counts.
    ///
    /// # Panics
    ///
    /// When it is 0.
    pub fn set_visits_max(&mut self, visits: usize) {
        assert!(visits > 0, "a port without visits serves nobody");
        self.visits_max = visits;
    }

    /// Returns the visitors that wait, the same at all ranks of the group, which call it together. None is waited
    /// for: it is one broadcast from rank 0, of some bytes when nobody waits, cheap enough for each step. While visitors
    /// wait for one that needs longer than the patience, it is one more small all-reduce.
    ///
    /// All ranks must treat the visits in the same order and in the same way.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Group`] when a rank of the group is gone. The visitors are told.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get the visits and wait for this one.
    pub async fn visits(&mut self, group: &mut Group) -> Result<Vec<Visit>, ArrayError> {
        let mut visits = Vec::new();
        loop {
            let doubted = self.let_in(group, &mut visits).await?;
            if doubted.is_empty() || !self.give_up(group, &doubted).await? {
                return Ok(visits);
            }
        }
    }

    /// Lets visitors in; returns the visits that may be over while others wait.
    async fn let_in(
        &mut self,
        group: &mut Group,
        visits: &mut Vec<Visit>,
    ) -> Result<Vec<u64>, ArrayError> {
        let let_in = self.desk.as_ref().map(|desk| desk.take(self.visits_max, self.patience));
        let said = let_in.as_ref().map(|LetIn { first, visitors, doubted }| -> Said {
            (*first, visitors.iter().map(|(ask, _)| ask.clone()).collect(), doubted.clone())
        });
        let said = group.broadcast_value(0, said).await;
        let (first, asks, doubted): Said = said.map_err(|error| ArrayError::Group(error.cause))?;
        let mut tellers = let_in.into_iter().flat_map(|it| it.visitors).map(|(_, teller)| teller);
        self.marks.retain(|(_, mark)| mark.strong_count() > 0);
        for (number, ask) in (first..).zip(asks) {
            let visit = Visit {
                name: Arc::clone(&self.name),
                ask,
                teller: tellers.next(),
                under_way: self.under_way.clone(),
                has_elements: Arc::default(),
                members: (0..group.size()).map(|rank| group.member(rank)).collect(),
                patience: self.patience,
            };
            self.marks.push((number, visit.mark()));
            visits.push(visit);
        }
        Ok(doubted)
    }

    /// Lets the visits of which no rank has elements count no more; returns whether there are any.
    async fn give_up(&self, group: &mut Group, doubted: &[u64]) -> Result<bool, ArrayError> {
        let has = |number: &u64| self.marks.iter().any(|(it, _)| it == number);
        let under_way = doubted.iter().map(|number| u64::from(has(number))).collect();
        let under_way = group.all_reduce(under_way, Op::max()).await;
        let under_way = under_way.map_err(|error| ArrayError::Group(error.cause))?;
        let over = doubted.iter().zip(under_way).filter(|(_, count)| *count == 0);
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        if let Some(desk) = &self.desk {
            over.iter().for_each(|number| desk.give_up(*number));
        }
        Ok(!over.is_empty())
    }

    /// Closes the port, and waits until the arrays that this rank sends are with their visitors. A visitor that
    /// takes nothing is waited for as long as the [patience](Self::set_patience). Visitors that wait get an error.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the port.
    pub async fn close(self) {
        if let Some(desk) = &self.desk {
            desk.close();
            desk.over().await;
        }
        self.under_way.over().await;
    }
}

impl fmt::Debug for ArrayPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayPort").field("key", &key(&self.name)).finish_non_exhaustive()
    }
}
