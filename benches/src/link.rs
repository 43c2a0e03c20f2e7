//! The PCIe link of a device as sysfs tells it: speed, width, and what they can carry.

use std::fmt;
use std::fs;
use std::path::Path;

use pinpool::cudarc::driver::{CudaContext, sys};

/// A link's speed and width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// 10^9 transfers a second on each lane.
    pub transfers: f64,
    /// The number of lanes.
    pub lanes: u32,
}

impl Rate {
    /// From the words of sysfs: "16.0 GT/s PCIe" and "16". `None` for "Unknown", which bridges that
    /// tell nothing have, with a width of 0, 63 or 255.
    pub fn parse(speed: &str, width: &str) -> Option<Self> {
        let transfers = speed.split_once(" GT/s")?.0.parse().ok()?;
        let lanes = width.trim().parse().ok().filter(|lanes| (1..=32).contains(lanes))?;
        Some(Self { transfers, lanes })
    }

    /// 10^9 bytes a second in one direction, before packet headers.
    pub fn gigabytes(self) -> f64 {
        // Up to 5 GT/s ten bits carry eight, up to 32 GT/s 130 carry 128; beyond, 256 bytes carry 242.
        let payload = match self.transfers {
            slow if slow < 6.0 => 0.8,
            middle if middle < 48.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.transfers * payload * f64::from(self.lanes) / 8.0
    }

    /// The generation of PCIe that has this speed.
    pub fn generation(self) -> Option<u32> {
        let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
        let place = speeds.iter().position(|speed: &f64| (speed - self.transfers).abs() < 0.1)?;
        u32::try_from(place + 1).ok()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GT/s x{} ({:.1} GB/s)", self.transfers, self.lanes, self.gigabytes())
    }
}

/// The link that a device uses now, or why it cannot be told. Devices slow it down while they
/// idle: ask after copies.
///
/// # Errors
/// The reason, for people.
pub fn of_device(context: &CudaContext) -> Result<Rate, String> {
    use sys::CUdevice_attribute_enum as Attribute;
    let attribute = |which| {
        let value = context.attribute(which);
        value.map_err(|cause| format!("the driver tells no PCI address: {cause}"))
    };
    let domain = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let device = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    let address = format!("{domain:04x}:{bus:02x}:{device:02x}.0");
    read(&Path::new("/sys/bus/pci/devices").join(address))
}

fn read(folder: &Path) -> Result<Rate, String> {
    if !folder.exists() {
        return Err("sysfs does not show the device (a container, a virtual machine or WSL)".into());
    }
    let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    Rate::parse(&file("current_link_speed"), &file("current_link_width"))
        .ok_or_else(|| "the kernel does not tell the link's speed and width".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_from_its_files_or_said_to_be_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(read(&folder.path().join("none")).unwrap_err().contains("sysfs"));
        assert!(read(folder.path()).unwrap_err().contains("does not tell"));
        put("current_link_speed", "32.0 GT/s PCIe\n");
        put("current_link_width", "16\n");
        let rate = read(folder.path()).unwrap();
        assert_eq!((rate.generation(), rate.lanes), (Some(5), 16));
        assert_eq!(rate.to_string(), "32 GT/s x16 (63.0 GB/s)");
        put("current_link_width", "255\n");
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn each_generation_carries_its_payload() {
        let rate = |transfers| Rate { transfers, lanes: 16 };
        for (transfers, generation, gigabytes) in
            [(2.5, 1, 4.0), (8.0, 3, 15.75), (16.0, 4, 31.5), (64.0, 6, 121.0)]
        {
            assert_eq!(rate(transfers).generation(), Some(generation));
            assert!((rate(transfers).gigabytes() - gigabytes).abs() < 0.01, "{transfers}");
        }
        assert_eq!(rate(7.0).generation(), None);
    }
}
