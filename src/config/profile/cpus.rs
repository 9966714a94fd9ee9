//! CPU lists as the kernel writes them: `0-3,8`.

use std::fmt;

/// CPUs in a list at the most: the kernel's own limit on x86-64.
pub const CPUS_MAX: u32 = 8192;

/// CPU numbers, ascending, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// Reads `0-3,8`. Err says what is wrong with it.
    pub fn parse(text: &str) -> Result<CpuList, String> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| {
                let number = digits.trim().parse::<u32>();
                number.map_err(|_| format!("`{}` is not a CPU number", digits.trim()))
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` runs backwards"));
            }
            if last >= CPUS_MAX {
                return Err(format!("CPU {last} is beyond {}", CPUS_MAX - 1));
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuList(cpus))
    }

    pub fn cpus(&self) -> &[u32] {
        &self.0
    }

    /// Those of ours that are not in `other`.
    pub fn beyond(&self, other: &CpuList) -> Vec<u32> {
        let ours = self.0.iter().copied();
        ours.filter(|cpu| other.0.binary_search(cpu).is_err())
            .collect()
    }
}

impl fmt::Display for CpuList {
    /// The kernel's own form, so that what is written reads back the same.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        let runs = runs.map(|run| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        });
        f.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_the_kernels_form() {
        let check = |text, expected: Result<&str, &str>| {
            let found = CpuList::parse(text).map(|list| list.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}")
        };
        check("0-3,8", Ok("0-3,8"));
        check("8,0,1,2,3,3", Ok("0-3,8"));
        check("0,1", Ok("0-1"));
        check("5\n", Ok("5"));
        check("", Err("`` is not a CPU number"));
        check("3-1", Err("`3-1` runs backwards"));
        check("0-99999999", Err("CPU 99999999 is beyond 8191"));
        check("all", Err("`all` is not a CPU number"));
    }

    #[test]
    fn what_is_beyond_another_list() {
        let list = |text| CpuList::parse(text).unwrap();
        assert_eq!(list("0-5").beyond(&list("0-3")), [4, 5]);
        assert_eq!(list("1").beyond(&list("0-3")), [] as [u32; 0]);
    }
}
