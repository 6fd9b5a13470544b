use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use crate::steps::{Event, Histogram, Window};

const HALF: usize = 512;

#[allow(dead_code)]
struct Output {
    uuid: Rc<str>,
    client_id: u32,
}

async fn project(event: Event, yields: bool) -> Output {
    if yields {
        give_way().await;
    }
    Output {
        uuid: event.uuid,
        client_id: event.client_id,
    }
}

/// Lets all other futures go on once.
async fn give_way() {
    let mut polled = false;
    poll_fn(|_| {
        if std::mem::replace(&mut polled, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// A queue for each client, and a rotation of the clients that are ready. A client keeps its queue
/// while one of its events is worked on.
pub struct Kata {
    source: std::vec::IntoIter<Event>,
    pub window: Window,
    queues: HashMap<u32, VecDeque<(Instant, Event)>>,
    ready: VecDeque<u32>,
    waiting: usize,
    pub waited: Histogram,
    pub served: Histogram,
    pub total: Histogram,
}

impl Kata {
    pub fn new(events: Vec<Event>) -> Self {
        Self {
            source: events.into_iter(),
            window: Window::default(),
            queues: HashMap::new(),
            ready: VecDeque::new(),
            waiting: 0,
            waited: Histogram::new(),
            served: Histogram::new(),
            total: Histogram::new(),
        }
    }

    fn admit(&mut self) {
        let now = Instant::now();
        for event in self.source.by_ref().take(HALF) {
            if self.window.is_new(&event.uuid, now) {
                let client = event.client_id;
                match self.queues.entry(client) {
                    Entry::Occupied(queue) => queue.into_mut().push_back((now, event)),
                    Entry::Vacant(place) => {
                        place.insert(VecDeque::from([(now, event)]));
                        self.ready.push_back(client);
                    }
                }
                self.waiting += 1;
            }
        }
    }

    fn next(&mut self) -> Option<(Instant, Event)> {
        if self.waiting <= HALF {
            self.admit();
        }
        let client = self.ready.pop_front()?;
        self.waiting -= 1;
        self.queues.get_mut(&client)?.pop_front()
    }

    fn finish(&mut self, client: u32, created: Instant, started: Instant) {
        let now = Instant::now();
        self.waited.record(started - created);
        self.served.record(now - started);
        self.total.record(now - created);
        if self.queues[&client].is_empty() {
            self.queues.remove(&client);
        } else {
            self.ready.push_back(client);
        }
    }
}

pub async fn work(kata: &RefCell<Kata>, yields: bool) {
    loop {
        let next = kata.borrow_mut().next();
        if let Some((created, event)) = next {
            let (client, started) = (event.client_id, Instant::now());
            let _ = std::hint::black_box(project(event, yields).await);
            kata.borrow_mut().finish(client, created, started);
        } else if kata.borrow().source.len() == 0 {
            // Who works on a client goes on with it.
            return;
        } else {
            give_way().await;
        }
    }
}
