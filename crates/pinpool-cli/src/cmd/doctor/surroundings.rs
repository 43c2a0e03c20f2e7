//! What the machine stands in: a hypervisor, a container, Windows; hints from files, no certainty.

use super::root::Root;

/// What was found around this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// The processor says that it is a virtual one.
    pub(super) hypervisor: bool,
    /// The machine's name as its firmware gives it.
    pub(super) product: Option<String>,
    /// A device by which the host takes memory from the guest.
    pub(super) balloon: bool,
    /// The kind of container.
    pub(super) container: Option<String>,
    /// Linux within Windows.
    pub(super) wsl: bool,
}

impl Surroundings {
    pub(super) fn read(root: &Root) -> Self {
        let version = root.read("proc/version").unwrap_or_default().to_lowercase();
        Self {
            hypervisor: has_hypervisor_flag(root),
            product: product(root),
            balloon: has_balloon(root),
            container: container(root),
            wsl: version.contains("microsoft"),
        }
    }
}

fn has_hypervisor_flag(root: &Root) -> bool {
    let info = root.read("proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
        // Not every processor has such a flag.
        || root.exists("sys/hypervisor/type")
}

fn product(root: &Root) -> Option<String> {
    let field = |name: &str| {
        let text = root.read(&format!("sys/class/dmi/id/{name}"))?;
        Some(text).filter(|text| !text.is_empty())
    };
    match (field("sys_vendor"), field("product_name")) {
        (Some(vendor), Some(name)) => Some(format!("{vendor} {name}")),
        (vendor, name) => vendor.or(name),
    }
}

fn has_balloon(root: &Root) -> bool {
    let virtio = root.names("sys/bus/virtio/drivers/virtio_balloon");
    let bound = |name: &String| {
        name.strip_prefix("virtio").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    virtio.iter().any(bound)
        || ["vmw_balloon", "hv_balloon", "xen_balloon"]
            .iter()
            .any(|module| root.exists(&format!("sys/module/{module}")))
}

fn container(root: &Root) -> Option<String> {
    if let Some(kind) = root.read("run/systemd/container").filter(|kind| !kind.is_empty()) {
        return Some(kind);
    }
    if root.exists("run/.containerenv") {
        return Some("podman".into());
    }
    if root.exists(".dockerenv") {
        return Some("docker".into());
    }
    let groups = root.read("proc/1/cgroup").or_else(|| root.read("proc/self/cgroup"))?;
    let kinds = ["kubepods", "docker", "libpod", "containerd", "lxc"];
    kinds.into_iter().find(|kind| groups.contains(kind)).map(str::to_owned)
}
