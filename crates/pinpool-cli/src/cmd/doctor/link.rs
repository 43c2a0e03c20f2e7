//! The PCIe link of a device, from sysfs; it asks no driver.

use pinpool_bench::link::Rate;

use super::devices::Gpu;
use super::report::Line;
use super::root::Root;

/// What sysfs tells of a device's link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    pub(super) current: Rate,
    pub(super) most: Rate,
    /// What the port above the device can do, where it is told and less.
    pub(super) port: Option<Rate>,
}

fn read(root: &Root, folder: &str, which: &str) -> Option<Rate> {
    let speed = root.read(&format!("{folder}{which}_link_speed"))?;
    let width = root.read(&format!("{folder}{which}_link_width"))?;
    Rate::parse(&speed, &width)
}

fn least(one: Rate, other: Rate) -> Rate {
    Rate { transfers: one.transfers.min(other.transfers), lanes: one.lanes.min(other.lanes) }
}

impl Link {
    /// The link of the device at a PCI address, or why it cannot be told.
    pub(super) fn read(root: &Root, address: &str) -> Result<Self, &'static str> {
        let link = folder(address);
        if !root.exists(&link) {
            return Err("sysfs does not show the device (a container, a virtual machine or WSL)");
        }
        let unknown = "the kernel does not tell the link's speed and width, as is usual in a virtual \
                       machine or behind a virtual bridge";
        let device = |which| read(root, &format!("{link}/"), which).ok_or(unknown);
        let (current, most) = (device("current")?, device("max")?);
        let above = root.parent_of(&link);
        let port = above.and_then(|bridge| read(&bridge, "", "max"));
        let port = port.filter(|port| least(most, *port) != most);
        Ok(Self { current, most, port })
    }

    /// The most that device and port can do together.
    pub(super) fn reachable(&self) -> Rate {
        self.port.map_or(self.most, |port| least(self.most, port))
    }
}

/// The line of one device. `busy` says that copies ran just before.
pub(super) fn line(root: &Root, gpu: &Gpu, busy: bool) -> Line {
    let name = format!("device {} link", gpu.ordinal);
    let Some(address) = &gpu.pci_address else {
        return Line::none(name, "the driver tells no PCI address");
    };
    match Link::read(root, address) {
        Err(reason) => Line::none(name, format!("cannot be read: {reason}")),
        Ok(link) => judged(name, link, busy),
    }
}

fn judged(name: String, link: Link, busy: bool) -> Line {
    let Link { current, most, port } = link;
    let reachable = link.reachable();
    let mut value = format!("now {current}, at most {most}");
    if let Some(port) = port {
        value = format!("{value}, and its slot {port}");
    }
    if current.lanes < most.lanes {
        let remedy = format!(
            "the width does not change when a device is idle: move the card to a slot with {} lanes, \
             reseat it, or look for bifurcation in the firmware's settings",
            most.lanes
        );
        return Line::warning(name, value, remedy);
    }
    if current.transfers < reachable.transfers {
        let remedy = if busy {
            "copies ran just before, so that this is not idling: look for the link speed in the \
             firmware's settings, for a riser, and for errors of the link in the kernel's log"
        } else {
            "normal while the device is idle, when links slow down to save power: look again while \
             copies run (`pinpool bench copy`); if it stays, look at firmware settings and risers"
        };
        return Line::warning(name, value, remedy);
    }
    if reachable.transfers < most.transfers {
        return Line::warning(
            name,
            value,
            "copies are faster in a slot of the device's own generation",
        );
    }
    Line::ok(name, value)
}

/// Where sysfs has the device. Drivers may write addresses in capitals, or with longer domains.
pub(super) fn folder(address: &str) -> String {
    let address = address.to_lowercase();
    let (domain, rest) = address.split_once(':').unwrap_or(("0", &address));
    let domain = domain.trim_start_matches('0');
    format!("sys/bus/pci/devices/{domain:0>4}:{rest}")
}
