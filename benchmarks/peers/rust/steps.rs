//! The events, the clock of the processor, the window of duplicates, and the times.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

const KEPT: Duration = Duration::from_secs(10);

pub struct Event {
    pub uuid: Rc<str>,
    pub client_id: u32,
}

/// Lines such as `{"uuid":"…","client_id":1000,"created":1700000000.0}`.
pub fn read(file: &str) -> Vec<Event> {
    let text = std::fs::read_to_string(file).expect("a file of events");
    let events = text.lines().map(|line| {
        let mut parts = line.split([':', ',']);
        let uuid = parts.nth(1).expect("a uuid").trim_matches('"').into();
        let client_id = parts
            .nth(1)
            .and_then(|digits| digits.parse().ok())
            .expect("a client");
        Event { uuid, client_id }
    });
    events.collect()
}

/// The processor time of the whole process, which the standard library does not tell.
pub fn cpu_seconds() -> f64 {
    const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // Safe, as the struct is that of 64-bit Linux and outlives the call.
    unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.seconds as f64 + time.nanoseconds as f64 / 1e9
}

/// The keys of the last ten seconds, and their order.
#[derive(Default)]
pub struct Window {
    seen: HashMap<Rc<str>, Instant>,
    order: VecDeque<Rc<str>>,
    pub duplicates: usize,
}

impl Window {
    pub fn is_new(&mut self, key: &Rc<str>, now: Instant) -> bool {
        while let Some(oldest) = self
            .order
            .front()
            .filter(|key| now - self.seen[*key] >= KEPT)
        {
            self.seen.remove(oldest);
            self.order.pop_front();
        }
        if self.seen.contains_key(key) {
            self.duplicates += 1;
            return false;
        }
        self.seen.insert(key.clone(), now);
        self.order.push_back(key.clone());
        true
    }
}

/// Counts of whole microseconds, to three digits, as an HDR histogram has them.
pub struct Histogram {
    counts: Vec<u32>,
    pub count: usize,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            counts: vec![0; 24 << 10],
            count: 0,
        }
    }

    pub fn record(&mut self, took: Duration) {
        let microseconds = took.as_micros() as u32;
        let shift = 21u32.saturating_sub(microseconds.leading_zeros());
        self.counts[((shift << 10) + (microseconds >> shift)) as usize] += 1;
        self.count += 1;
    }

    fn percentile(&self, share: f64) -> usize {
        let mut left = (self.count as f64 * share).ceil() as i64;
        let index = self.counts.iter().position(|&count| {
            left -= i64::from(count);
            left <= 0
        });
        let index = index.unwrap_or(0);
        let shift = (index >> 10).saturating_sub(1);
        (index - (shift << 10)) << shift
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(
            out,
            r#"{{"p50": {}, "p99": {}}}"#,
            self.percentile(0.5),
            self.percentile(0.99)
        )
    }
}
