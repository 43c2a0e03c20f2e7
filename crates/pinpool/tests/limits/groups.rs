//! Pools in a control group of their own with a limit on memory: refused in words before they are
//! killed, one by one and several at once; and what the system has back after a kill.
//!
//! A group is made below that of the tests, or higher up where the system wants that. It takes root;
//! where it cannot be made, the tests say so.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pinpool::limits::{Cgroup, CgroupVersion};
use pinpool::{HugePages, KeepFree};

use super::*;

const MIB: u64 = 1 << 20;

/// A control group of one test.
struct Group {
    folder: PathBuf,
    version: CgroupVersion,
}

impl Group {
    /// A new group in which so many bytes may be used, or why there is none.
    fn new(bytes: u64) -> Result<Self, String> {
        let own = Cgroup::read().ok_or("no control group counts this process's memory")?;
        let version = own.version;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pinpool-test-{}-{number}", std::process::id());
        let mut problem = String::new();
        // Version 2 allows no group below one that has processes.
        for above in own.folder.ancestors().take_while(|above| above.join("cgroup.procs").exists())
        {
            let folder = above.join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let group = Self { folder, version };
                    match group.limit(bytes) {
                        Ok(()) => return Ok(group),
                        Err(error) => problem = format!("{}: {error}", group.folder.display()),
                    }
                }
                Err(error) => problem = format!("{}: {error}", folder.display()),
            }
        }
        Err(problem)
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        fs::write(self.limit_file(), bytes.to_string())?;
        // What is over the limit must not go to swap instead.
        let _ = match self.version {
            CgroupVersion::V1 => fs::write(self.folder.join("memory.swappiness"), "0"),
            CgroupVersion::V2 => fs::write(self.folder.join("memory.swap.max"), "0"),
        };
        Ok(())
    }

    fn limit_file(&self) -> PathBuf {
        self.folder.join(match self.version {
            CgroupVersion::V1 => "memory.limit_in_bytes",
            CgroupVersion::V2 => "memory.max",
        })
    }

    /// The calling test in a child that goes into the group first, with a role to play.
    fn start(&self, test: &str, role: &str) -> Member {
        let folder = self.folder.to_str().expect("a group's name is text");
        let mut command = child::command(test, &[(GROUP, folder), (ROLE, role)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Member::new(command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process is counted out a moment after it was waited for.
        let start = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A child in a group. It says a line when it is ready, and goes on when it is told a line.
struct Member(Child);

impl Member {
    fn new(mut command: Command) -> Self {
        Self(command.spawn().expect("the test program starts"))
    }

    /// The next line that it says of itself; none if it ended.
    fn line(&mut self) -> Option<String> {
        use std::io::Read;
        let mut line = Vec::new();
        let output = self.0.stdout.as_mut().expect("it is read from");
        let mut byte = [0];
        while output.read(&mut byte).expect("a pipe can be read") == 1 {
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let said = String::from_utf8_lossy(&line).into_owned();
            if let Some(at) = said.find(SAYS) {
                return Some(said[at + SAYS.len()..].to_owned());
            }
            line.clear();
        }
        None
    }

    fn go(&mut self) {
        use std::io::Write;
        let input = self.0.stdin.as_mut().expect("it is written to");
        let _ = input.write_all(b"\n");
    }

    /// Lets it end, and what it said of that.
    fn end(mut self) -> (ExitStatus, String) {
        use std::io::Read;
        drop(self.0.stdin.take());
        let mut said = String::new();
        if let Some(errors) = &mut self.0.stderr {
            let _ = errors.read_to_string(&mut said);
        }
        (self.0.wait().expect("a child can be waited for"), said)
    }
}

impl Drop for Member {
    /// None stays in a group that is to go, whatever became of the test.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a child: what it is to do, once it is in its group.
fn role() -> String {
    let group = std::env::var(GROUP).expect("the parent names the group");
    fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string())
        .expect("root may move a process of its own");
    std::env::var(ROLE).expect("the parent gives the role")
}

fn say(text: &str) {
    use std::io::Write;
    let mut output = std::io::stdout();
    let line = writeln!(output, "{SAYS}{}", text.replace('\n', " "));
    line.and_then(|()| output.flush()).expect("the parent reads");
}

/// Waits until the parent says so, or is gone.
fn wait() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// A pool of `bytes` bytes in slots of 4 MiB, locked where this process may.
fn pool(bytes: u64) -> PoolBuilder {
    let count = usize::try_from(bytes / (4 * MIB)).unwrap();
    // Not for all of it: to try that is to take it.
    let mode = proc::lock_mode_for(1);
    Pool::builder().env(false).backend(BackendChoice::Host).lock(mode).class("c", 4 << 20, count)
}

/// Opens it and says how that ended; a refusal must be one by the group's limit.
fn try_to_open(builder: PoolBuilder) -> Option<Pool> {
    match builder.open() {
        Ok(pool) => {
            say("open");
            Some(pool)
        }
        Err(Error::NoRoom { headroom, .. }) if matches!(headroom.limit, LimitKind::Cgroup(_)) => {
            say(&format!("refused: {headroom}"));
            None
        }
        Err(error) => {
            say(&format!("wrong: {error}"));
            None
        }
    }
}

/// RELIABILITY R25 a, in a real group: 20 limits around what the pool needs. It opens or is refused
/// before anything is mapped, and nobody is killed.
#[test]
fn a_group_too_small_for_the_pool_is_named_before_anything_is_mapped() {
    const NAME: &str = "groups::a_group_too_small_for_the_pool_is_named_before_anything_is_mapped";
    const BYTES: u64 = 128 * MIB;
    const KEPT: u64 = 8 * MIB;
    // Between what surely does not fit and what surely does: the test program itself needs some.
    const OWN: u64 = 24 * MIB;
    if child::in_child() {
        role();
        for _ in 0..20 {
            wait();
            let before = readings();
            let opened = try_to_open(pool(BYTES).keep_free(KeepFree::Bytes(KEPT)));
            let is_open = opened.is_some();
            drop(opened);
            say(if is_open || readings() == before { "clean" } else { "something was left" });
        }
        return;
    }
    let group = match Group::new(1024 * MIB) {
        Ok(group) => group,
        Err(why) => return not_run(&format!("{NAME}: {why}")),
    };
    let limits = (1..=9).map(|step| 32 * MIB + step * 11 * MIB).chain([BYTES, BYTES + KEPT - PAGE]);
    let limits = limits.chain((0..9).map(|step| BYTES + KEPT + OWN + step * 50 * MIB));
    let mut member = group.start(NAME, "open");
    for limit in limits {
        group.limit(limit).unwrap();
        member.go();
        let said = member.line().unwrap_or_else(|| "ended".into());
        if limit >= BYTES + KEPT + OWN {
            assert_eq!(said, "open", "{limit}");
        } else {
            let file = group.limit_file();
            assert!(said.starts_with("refused:"), "{limit}: {said}");
            for word in [file.to_str().unwrap(), &limit.to_string(), &KEPT.to_string()] {
                assert!(said.contains(word), "`{word}` is missing: {said}");
            }
        }
        assert_eq!(member.line().as_deref(), Some("clean"), "{limit}");
    }
    let (status, said) = member.end();
    assert!(status.success(), "{said}");
}

/// Processes that start together each see the whole room. Those that do not fit must say so instead of
/// being killed, and one that is refused makes room for others.
///
/// Case limits-6.
#[test]
fn processes_that_start_together_are_refused_and_not_killed() {
    const NAME: &str = "groups::processes_that_start_together_are_refused_and_not_killed";
    const BYTES: u64 = 700 * MIB;
    if child::in_child() {
        role();
        say("ready");
        wait();
        let opened = try_to_open(pool(BYTES));
        // Whoever is open stays so until all have tried.
        wait();
        drop(opened);
        return;
    }
    for round in 0..3 {
        let group = match Group::new(2048 * MIB) {
            Ok(group) => group,
            Err(why) => return not_run(&format!("{NAME}: {why}")),
        };
        let mut members: Vec<_> = (0..4).map(|_| group.start(NAME, "open")).collect();
        for member in &mut members {
            assert_eq!(member.line().as_deref(), Some("ready"));
        }
        members.iter_mut().for_each(Member::go);
        let said: Vec<_> = members.iter_mut().map(Member::line).collect();
        members.iter_mut().for_each(Member::go);
        for member in members {
            let (status, output) = member.end();
            assert_eq!(status.signal(), None, "round {round}: a process was killed: {output}");
            assert!(status.success(), "{output}");
        }
        let open = said.iter().flatten().filter(|said| *said == "open").count();
        let refused = said.iter().flatten().filter(|said| said.starts_with("refused:")).count();
        // 2048 MiB hold two pools of 700 MiB.
        assert_eq!((open, refused), (2, 2), "round {round}: {said:?}");
    }
}

/// Where the group's memory ends, the first class ends, and what is too small for a piece of it does for the next
/// one. Nobody is held up by a pool that is open.
///
/// Case limits-3.
#[test]
fn a_pool_that_may_be_smaller_takes_what_the_group_has_room_for() {
    const NAME: &str = "groups::a_pool_that_may_be_smaller_takes_what_the_group_has_room_for";
    if child::in_child() {
        let kind = role();
        let huge = if kind == "try" { HugePages::Try } else { HugePages::Off };
        let builder = Pool::builder().env(false).backend(BackendChoice::Host).huge_pages(huge);
        let builder = builder.lock(proc::lock_mode_for(1)).min_bytes(32 * MIB);
        let builder = builder.keep_free(KeepFree::Bytes(16 * MIB));
        let opened = try_to_open(builder.class("large", 1 << 20, 1000).class("small", 4096, 16));
        if let Some(pool) = &opened {
            let cut: Vec<_> = pool.startup().cut.iter().map(|cut| cut.class.to_string()).collect();
            let stats = pool.stats();
            let slots: Vec<_> =
                stats.classes.iter().map(|class| (class.name, class.slots)).collect();
            say(&format!("{cut:?} {}", slots.iter().any(|(_, slots)| *slots == 16)));
            let folder = Cgroup::read().unwrap().folder;
            let folder = fs::File::open(folder).unwrap();
            let free =
                rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            say(&format!("{free:?}"));
        }
        return;
    }
    for kind in ["off", "try"] {
        let group = match Group::new(256 * MIB) {
            Ok(group) => group,
            Err(why) => return not_run(&format!("{NAME}: {why}")),
        };
        let mut member = group.start(NAME, kind);
        assert_eq!(member.line().as_deref(), Some("open"), "{kind}");
        assert_eq!(member.line().as_deref(), Some("[\"large\"] true"), "{kind}");
        assert_eq!(member.line().as_deref(), Some("Ok(())"), "{kind}: the turn is kept");
        let (status, said) = member.end();
        assert!(status.success(), "{kind}: {said}");
    }
}

/// RELIABILITY R25 b: somebody else in the group eats its memory until the system kills the process
/// with the pool. What was locked is free again, each of five times.
#[test]
fn a_killed_process_leaves_nothing_locked_in_the_system() {
    const NAME: &str = "groups::a_killed_process_leaves_nothing_locked_in_the_system";
    const BYTES: u64 = 160 * MIB;
    if child::in_child() {
        if role() == "eat" {
            return eat();
        }
        // Of the processes in the group, this one is to be killed.
        fs::write("/proc/self/oom_score_adj", "1000").expect("anybody may make itself a victim");
        let pool = pool(BYTES).open().expect("the group has room");
        say(if pool.is_pinned() { "open" } else { "not locked" });
        wait();
        return;
    }
    for kill in 0..5 {
        let group = match Group::new(256 * MIB) {
            Ok(group) => group,
            Err(why) => return not_run(&format!("{NAME}: {why}")),
        };
        let before = proc::system_locked_bytes();
        let mut victim = group.start(NAME, "hold");
        let said = victim.line();
        if said.as_deref() == Some("not locked") {
            victim.end();
            return not_run(&format!("{NAME}: this process may not lock {BYTES} bytes"));
        }
        assert_eq!(said.as_deref(), Some("open"));
        let held = proc::system_locked_bytes();
        assert!(held >= BYTES, "the system counts {held} bytes");
        let eater = group.start(NAME, "eat");
        assert_eq!(victim.line(), None, "kill {kill}: it was not killed");
        let (status, said) = victim.end();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "kill {kill}: {said}");
        // Others lock and unlock memory, too, but hardly half as much in this moment.
        let start = Instant::now();
        while proc::system_locked_bytes() > before + BYTES / 2 {
            assert!(start.elapsed() < Duration::from_secs(10), "kill {kill}: it stays locked");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The system takes locked memory back only as its process ends. Meanwhile it may kill the eater,
        // too, which is no business of ours.
        drop(eater);
    }
}

/// Takes memory, a little at a time, up to most of the group's, and keeps it until the parent is done.
fn eat() {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    for _ in 0..160 {
        let mut piece = vec![0u8; 1 << 20];
        piece.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        eaten.push(piece);
        std::thread::sleep(Duration::from_millis(1));
    }
    wait();
    assert_eq!(eaten.len(), 160);
}

static NEXT: AtomicU32 = AtomicU32::new(0);
/// Begins each line that a child says to its parent: the test harness prints between them.
const SAYS: &str = "says: ";
const GROUP: &str = "PINPOOL_TEST_GROUP";
const ROLE: &str = "PINPOOL_TEST_ROLE";
