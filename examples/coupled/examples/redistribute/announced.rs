//! Words of the senders to the receivers before the array itself.

use chunkcomm::{Loss, LossKind};
use chunkcomm_array::NpyType;
use chunkcomm_group::{GroupError, Pair, Root};

/// Name under which the two groups meet.
pub(crate) const MEETING: &str = "redistribute";

/// Colours that part the cluster: each program has its own.
pub(crate) const COLOURS: [u32; 2] = [0, 1];

/// Largest number of dimensions of an array.
const DIMS_MAX: usize = 6;

/// Type and shape of the array that is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) element: NpyType,
    pub(crate) shape: Vec<usize>,
}

impl Announced {
    /// Tells it, at the ranks of the senders, or hears it from their rank 0.
    pub(crate) async fn exchanged(
        pair: &mut Pair,
        told: Option<Announced>,
    ) -> Result<Announced, GroupError> {
        let mut words = [0; 2 + DIMS_MAX];
        let root = if told.is_some() { Root::Ours(0) } else { Root::Theirs(0) };
        if let Some(Announced { element, shape }) = &told {
            words[0] =
                NpyType::ALL.iter().position(|it| it == element).unwrap_or(usize::MAX) as u64;
            words[1] = shape.len() as u64;
            words[2..].iter_mut().zip(shape).for_each(|(word, extent)| *word = *extent as u64);
        }
        let words = pair.broadcast(root, words.to_vec()).await.map_err(|error| error.cause)?;
        let element = NpyType::ALL.get(words[0] as usize).copied();
        let why = "it told of a type of elements that is not known here";
        let unknown = || GroupError::Lost { rank: 0, loss: Loss::new(LossKind::Refused, why) };
        Ok(Announced {
            element: element.ok_or_else(unknown)?,
            shape: words[2..].iter().take(words[1] as usize).map(|word| *word as usize).collect(),
        })
    }
}

/// Runs code with a name for the Rust type of elements of this [`NpyType`]. The code is compiled once for each.
macro_rules! with_element {
    ($element:expr, $Type:ident => $code:expr) => {
        with_element!(@ $element, $Type => $code,
            U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64, F32 f32, F64 f64,
            C64 [f32; 2], C128 [f64; 2])
    };
    (@ $element:expr, $Type:ident => $code:expr, $($kind:ident $rust:ty),+) => {
        match $element {
            $(chunkcomm_array::NpyType::$kind => {
                type $Type = $rust;
                $code
            })+
            other => Err(format!("elements of {other} cannot be moved here").into()),
        }
    };
}

pub(crate) use with_element;
