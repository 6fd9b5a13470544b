//! The kata in Rust, by hand:
//!
//!     kata by_hand (plain | yielding) FILE LATER
//!
//! FILE is of `python -m benchmarks.workload`; it is read anew before each of the 1 + LATER runs.
//! One thread polls the futures of all workers by turns.

mod by_hand;
mod steps;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

use by_hand::{Kata, work};
use steps::{cpu_seconds, read};

const LIMIT: usize = 64;

/// The seconds of processor time, and what to print.
fn run(yields: bool, file: &str) -> (f64, String) {
    let events = read(file);
    let count = events.len();
    let kata = RefCell::new(Kata::new(events));
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let mut workers: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    workers.extend((0..LIMIT).map(|_| Box::pin(work(&kata, yields)) as _));
    let mut context = Context::from_waker(Waker::noop());
    while !workers.is_empty() {
        workers.retain_mut(|worker| worker.as_mut().poll(&mut context).is_pending());
    }
    let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
    let kata = kata.borrow();
    let text = format!(
        r#"{{"cpu_seconds": {cpu}, "wall_seconds": {wall}, "events": {count}, "finished": {}, "duplicates": {}, "waiting": {}, "service": {}, "later": "#,
        kata.total.count, kata.window.duplicates, kata.waited, kata.served,
    );
    (cpu, text)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let later: usize = words[4].parse().expect("a number of runs");
    let runs: Vec<_> = (0..=later)
        .map(|_| run(words[2] == "yielding", &words[3]))
        .collect();
    let rest: Vec<f64> = runs[1..].iter().map(|(cpu, _)| *cpu).collect();
    println!("{}{rest:?}}}", runs[0].1);
}
