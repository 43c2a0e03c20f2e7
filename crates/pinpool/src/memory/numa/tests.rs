//! Fake topologies, and the one node or more that this machine has.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write;

use super::*;

/// A folder `/sys` with these nodes and these PCI devices on nodes.
pub(crate) fn topology(nodes: &str, devices: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("devices/system/node");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("has_memory"), nodes).unwrap();
    for (address, node) in devices {
        let folder = root.path().join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("numa_node"), node).unwrap();
    }
    root
}

fn placed(numa: Numa, devices: &[&str], root: &tempfile::TempDir) -> Result<Vec<u32>, Vec<u32>> {
    placement(numa, devices, root.path()).map(|set| set.nodes().collect())
}

/// Case device-4: an unknown node must not make every allocation fail.
#[test]
fn an_unknown_node_is_any_node() {
    let root = topology("0-1\n", &[("0000:17:00.0", "-1\n"), ("0000:18:00.0", "what\n")]);
    for device in ["0000:17:00.0", "0000:18:00.0", "0000:99:00.0", "", "../.."] {
        assert_eq!(placed(Numa::Auto, &[device], &root), Ok(vec![]), "{device}");
    }
    assert_eq!(placed(Numa::Auto, &[], &root), Ok(vec![]), "the host backend");
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(placed(Numa::Auto, &["0000:17:00.0"], &nothing), Ok(vec![]));
    assert_eq!(placed(Numa::Node(0), &[], &nothing), Ok(vec![0]), "a kernel without NUMA");
}

/// Case device-4: of 6 nodes only the 4 with GPUs get memory.
#[test]
fn memory_goes_to_the_nodes_that_have_a_device_and_to_no_other() {
    let devices = [
        ("0000:17:00.0", "0\n"),
        ("0000:3d:00.0", "1\n"),
        ("0000:60:00.0", "3\n"),
        ("0000:b1:00.0", "4\n"),
        ("0000:b2:00.0", "4\n"),
    ];
    let root = topology("0-5\n", &devices);
    let all: Vec<_> = devices.iter().map(|(address, _)| *address).collect();
    let set = placement(Numa::Auto, &all, root.path()).unwrap();
    assert_eq!(set.nodes().collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert_eq!(set.policy(), MPOL_INTERLEAVE);
    assert_eq!(set.0[0], 0b1_1011);
    let one = placement(Numa::Auto, &["0000:B1:00.0"], root.path()).unwrap();
    assert_eq!((one.nodes().collect::<Vec<_>>(), one.policy()), (vec![4], MPOL_PREFERRED));
    assert_eq!(placed(Numa::Auto, &["00000000:3D:00.0"], &root), Ok(vec![1]));
    assert_eq!(placed(Numa::Off, &all, &root), Ok(vec![]));
    assert_eq!(placed(Numa::Node(5), &all, &root), Ok(vec![5]));
    assert_eq!(placed(Numa::Node(6), &all, &root), Err(vec![0, 1, 2, 3, 4, 5]));
}

#[test]
fn a_device_on_a_node_without_memory_gets_any() {
    let root = topology("0,2-3\n", &[("0000:17:00.0", "1\n"), ("0000:18:00.0", "2\n")]);
    assert_eq!(placed(Numa::Auto, &["0000:17:00.0"], &root), Ok(vec![]));
    assert_eq!(placed(Numa::Auto, &["0000:17:00.0", "0000:18:00.0"], &root), Ok(vec![2]));
    assert_eq!(placed(Numa::Node(1), &[], &root), Err(vec![0, 2, 3]));
}

#[test]
fn with_one_node_there_is_nothing_to_choose() {
    let root = topology("0\n", &[("0000:17:00.0", "0\n")]);
    assert_eq!(placed(Numa::Auto, &["0000:17:00.0"], &root), Ok(vec![]));
    assert_eq!(placed(Numa::Node(0), &[], &root), Ok(vec![0]), "who asks is served");
}

#[test]
fn lists_of_numbers_are_read() {
    assert_eq!(numbers("0\n"), Some(vec![0]));
    assert_eq!(numbers("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
    for wrong in ["", "\n", "x", "1-", "-1", "3;4"] {
        assert_eq!(numbers(wrong), None, "{wrong:?}");
    }
    let sets = [vec![0, 63, 64, 1023], vec![]];
    for nodes in sets {
        assert_eq!(NodeSet::of(nodes.clone()).nodes().collect::<Vec<_>>(), nodes);
    }
    assert!(NodeSet::of([1024, u32::MAX]).is_empty());
}

/// Every node of this machine, by what the kernel answers.
#[test]
fn memory_lies_where_it_was_placed() {
    for wanted in nodes_with_memory(Path::new("/sys")) {
        let bytes = 8 * page_size();
        let start = map(bytes, ProtFlags::READ | ProtFlags::WRITE).unwrap();
        let region = Region { start, bytes };
        assert_eq!(node(region), None, "no page is there yet");
        // SAFETY: mapped above, and nobody else knows it.
        let placed = unsafe { place(region, NodeSet::of([wanted])) };
        // SAFETY: as above.
        unsafe { start.write_bytes(7, bytes) };
        match (placed, node(region)) {
            (Ok(()), Some(found)) => assert_eq!(found, wanted),
            other => drop(writeln!(std::io::stderr(), "not run: node {wanted}: {other:?}")),
        }
        // SAFETY: as above, and not used any more.
        unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) }.unwrap();
    }
}

#[test]
fn a_node_that_this_machine_lacks_is_refused_by_the_system() {
    let refused = try_place(NodeSet::of([1000]));
    assert!(matches!(refused, Err(Errno::INVAL | Errno::PERM | Errno::NOSYS)), "{refused:?}");
}
