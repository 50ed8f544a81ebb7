//! Increments that are written, sealed and read.

use std::convert::Infallible;

use crate::increments::{Fault, Increments};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// An increment: whether a store succeeds, and its value. The processor checks and stores in one step.
type Memory = Mutex<(bool, u32)>;

struct Region {
    increments: Increments,
    memory: Vec<Memory>,
}

impl Region {
    fn new(count: usize) -> Arc<Self> {
        let increments = Increments::new(count);
        increments.reset();
        Arc::new(Self { increments, memory: (0..count).map(|_| Mutex::new((false, 0))).collect() })
    }

    /// Stores as code does that knows nothing of the tracker.
    fn store(&self, index: usize, value: u32) {
        loop {
            {
                let mut memory = self.memory[index].lock().unwrap();
                if memory.0 {
                    memory.1 = value;
                    return;
                }
            }
            let open = || self.memory[index].lock().unwrap().0 = true;
            if self.increments.fault(index, open) == Fault::Held {
                thread::yield_now();
            }
        }
    }

    /// Reads an increment that was touched as the tracker does; `None` when a fault holds it.
    fn take(&self, index: usize) -> Option<u32> {
        let protect = || {
            self.memory[index].lock().unwrap().0 = false;
            Ok::<(), Infallible>(())
        };
        let Ok(sealed) = self.increments.seal(index, protect);
        let value = sealed.then(|| self.memory[index].lock().unwrap().1);
        if sealed {
            self.increments.sent(index);
        }
        value
    }
}

/// A store that the tracker did not see would be lost at the receiver.
#[test]
fn the_last_store_is_read_or_its_increment_is_in_the_list() {
    loom::model(|| {
        let region = Region::new(1);
        let writer = {
            let region = region.clone();
            thread::spawn(move || {
                region.store(0, 1);
                region.store(0, 2);
            })
        };
        let (mut touched, mut read) = (Vec::new(), 0);
        region.increments.take_touched(&mut touched);
        touched.retain(|index| region.take(*index).inspect(|value| read = *value).is_none());
        writer.join().unwrap();
        region.increments.take_touched(&mut touched);
        for index in touched {
            read = region.take(index).expect("no fault holds it any more");
        }
        assert_eq!(read, 2);
    });
}

/// Two writers touch two increments each while the tracker takes the list.
#[test]
fn each_touched_increment_is_in_the_list_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let region = Region::new(2);
        let writers = [[0, 1], [1, 0]].map(|indices| {
            let region = region.clone();
            thread::spawn(move || indices.map(|index| region.store(index, 1)))
        });
        let mut touched = Vec::new();
        region.increments.take_touched(&mut touched);
        for writer in writers {
            writer.join().unwrap();
        }
        region.increments.take_touched(&mut touched);
        touched.sort_unstable();
        assert_eq!(touched, [0, 1]);
    });
}
