//! Which file system and disk a path is on.

use std::path::Path;

/// A file system, as /proc/self/mountinfo has it (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// `major:minor`.
    device: String,
    pub fs: String,
    /// Of the mount and of the file system, sorted: the kernel's order changes between versions.
    pub options: String,
    source: String,
}

impl Mount {
    /// The file system of a path: the last mount on its longest prefix.
    pub fn of(path: &Path, mountinfo: &str) -> Option<Mount> {
        let mut best: Option<(usize, Mount)> = None;
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let ([_, _, device, _, point, own, ..], [fs, source, of_fs, ..]) =
                (&left[..], &right[..])
            else {
                continue;
            };
            let point = point.replace("\\040", " ");
            let length = point.len();
            if !path.starts_with(&point) || best.as_ref().is_some_and(|(most, _)| *most > length) {
                continue;
            }
            let mut options: Vec<&str> = own.split(',').chain(of_fs.split(',')).collect();
            options.sort_unstable();
            options.dedup();
            let mount = Mount {
                device: device.to_string(),
                fs: fs.to_string(),
                options: options.join(","),
                source: source.to_string(),
            };
            best = Some((length, mount));
        }
        best.map(|(_, mount)| mount)
    }

    /// Where /sys describes the disk: itself, or the disk of which it is a partition. Btrfs and
    /// others have a device number that no disk has: their source is a device file.
    pub fn disk_folders(&self) -> Vec<String> {
        let mut folders = Vec::new();
        if !self.device.starts_with("0:") {
            folders.push(format!("/sys/dev/block/{}", self.device));
        } else if let Some(name) = self.source.strip_prefix("/dev/") {
            folders.push(format!("/sys/class/block/{}", name.replace('/', "!")));
        }
        let parents: Vec<String> = folders.iter().map(|own| format!("{own}/..")).collect();
        folders.extend(parents);
        folders
    }
}
