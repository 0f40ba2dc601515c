//! What kprobes and uprobes share: their PMUs in sysfs.

use std::ffi::CStr;

use super::LinkError;
use crate::sys::Errno;
use crate::sys::files::{self, CPath};

/// The type number of the "kprobe" or "uprobe" PMU (Linux 4.17), if the kernel has it.
pub(super) fn pmu_type(pmu: &str) -> Result<Option<u32>, LinkError> {
    let path =
        CPath::format(format_args!("/sys/bus/event_source/devices/{pmu}/type")).map_err(|_| LinkError::BadName)?;
    match files::read_number(path.as_c_str()) {
        Ok(number) => match u32::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(LinkError::File { file: "the PMU's type in sysfs", errno: Errno::ERANGE }),
        },
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(LinkError::File { file: "the PMU's type in sysfs", errno }),
    }
}

/// The bit of `config` that makes the probe one of returns: `config:0` in sysfs.
pub(super) fn return_bit(pmu: &str) -> Result<u64, LinkError> {
    let path = CPath::format(format_args!("/sys/bus/event_source/devices/{pmu}/format/retprobe"))
        .map_err(|_| LinkError::BadName)?;
    read_bit(path.as_c_str()).map_err(|errno| LinkError::File { file: "the PMU's retprobe format in sysfs", errno })
}

fn read_bit(path: &CStr) -> Result<u64, Errno> {
    let mut buffer = [0; 64];
    parse_bit(files::read_file(path, &mut buffer)?).ok_or(Errno::EINVAL)
}

fn parse_bit(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?.trim();
    let bit: u32 = text.strip_prefix("config:")?.parse().ok()?;
    1u64.checked_shl(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        assert_eq!(parse_bit(b"config:0\n"), Some(1));
        assert_eq!(parse_bit(b"config:5"), Some(32));
        assert_eq!(parse_bit(b"config:64"), None);
        assert_eq!(parse_bit(b"config1:0"), None);
    }
}
