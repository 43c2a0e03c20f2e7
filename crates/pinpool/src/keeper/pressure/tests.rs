//! Episodes of pressure out of files whose text is ours.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::memory::limits::tests::{System, pressure_text, v2};

const GROUP: &str = "/sys/fs/cgroup/app.slice/pool.service/memory.pressure";
const WHOLE: &str = "/proc/pressure/memory";

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn an_episode_begins_by_the_mean_and_ends_well_below() {
    let system = System::new(&[(WHOLE, &pressure_text(0.0, 0))]);
    let mut watch = Watch::find(system.root()).unwrap();
    let start = Instant::now();
    assert_eq!(watch.look(start), Change::None);
    for (second, avg10, change) in [
        (1, 9.99, Change::None),
        (2, 10.0, Change::Began(10.0)),
        (3, 50.0, Change::None),
        (4, 5.0, Change::None),
        (5, 4.99, Change::Ended),
        (6, 9.0, Change::None),
        (7, 12.0, Change::Began(12.0)),
    ] {
        system.write(WHOLE, &pressure_text(avg10, 0));
        assert_eq!(watch.look(after(start, second)), change, "at {second} s");
    }
}

/// The mean takes seconds to rise; the time lost since the last reading does not.
#[test]
fn an_episode_begins_by_the_time_lost_in_the_last_second() {
    let system = System::new(&[(WHOLE, &pressure_text(0.0, 5_000_000))]);
    let mut watch = Watch::find(system.root()).unwrap();
    let start = Instant::now();
    // What was lost before the first reading is not news.
    assert_eq!(watch.look(start), Change::None);
    system.write(WHOLE, &pressure_text(0.0, 5_099_000));
    assert_eq!(watch.look(after(start, 1)), Change::None);
    system.write(WHOLE, &pressure_text(0.0, 5_299_000));
    assert_eq!(watch.look(after(start, 2)), Change::Began(20.0));
    assert_eq!(watch.look(after(start, 3)), Change::Ended);
}

#[test]
fn the_file_is_read_once_a_second() {
    let system = System::new(&[(WHOLE, &pressure_text(0.0, 0))]);
    let mut watch = Watch::find(system.root()).unwrap();
    let start = Instant::now();
    assert_eq!(watch.look(start), Change::None);
    system.write(WHOLE, &pressure_text(90.0, 0));
    assert_eq!(watch.look(start + Duration::from_millis(999)), Change::None);
    assert_eq!(watch.look(after(start, 1)), Change::Began(90.0));
}

#[test]
fn the_group_counts_where_it_is_counted_and_else_the_system() {
    let system = v2("max\n", "max\n");
    assert!(Watch::find(system.root()).is_none(), "nobody counts");
    system.write(WHOLE, &pressure_text(90.0, 0));
    assert_eq!(Watch::find(system.root()).unwrap().look(Instant::now()), Change::Began(90.0));
    system.write(GROUP, &pressure_text(0.0, 0));
    let mut watch = Watch::find(system.root()).unwrap();
    assert_eq!(watch.look(Instant::now()), Change::None, "a neighbour's trouble is not ours");
    system.write(GROUP, "nonsense");
    assert!(Watch::find(system.root()).unwrap().file().ends_with("proc/pressure/memory"));
}

#[test]
fn a_file_that_goes_ends_the_episode() {
    let system = System::new(&[(WHOLE, &pressure_text(90.0, 7))]);
    let mut watch = Watch::find(system.root()).unwrap();
    let start = Instant::now();
    assert_eq!(watch.look(start), Change::Began(90.0));
    std::fs::remove_file(watch.file()).unwrap();
    assert_eq!(watch.look(after(start, 1)), Change::Ended);
    assert_eq!(watch.look(after(start, 2)), Change::None);
}
