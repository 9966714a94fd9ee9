//! The content of an ELF program or shared library as far as it can change what running it does.
//!
//! Format: Tool Interface Standard, "Executable and Linking Format Specification", version 1.2 (1995), and the System V
//! ABI's later chapters on program and section headers.

use object::elf::{
    ET_DYN, ET_EXEC, FileHeader32, FileHeader64, PT_NULL, SHT_NOBITS, SHT_NULL, SHT_SYMTAB,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind};
use regex::bytes::Regex;

use crate::base::key::{Key, KeyHasher};

/// Sections that are not loaded, or that tell builds apart and change nothing, by name or by what it begins with.
const NAMES_IGNORED: [&str; 7] = [
    ".note.gnu.build-id",
    ".gnu_debuglink",
    ".gnu_debugaltlink",
    ".gnu_debugdata",
    ".gdb_index",
    ".comment",
    ".shstrtab",
];
const PREFIXES_IGNORED: [&str; 3] = [".debug_", ".zdebug_", ".stab"];

/// The key of what counts in a program or shared library: entry point, segments, and every section (by name, kind,
/// flags, address and bytes) but debug information, the tables of symbols that no loader reads, and build ids. What
/// lies in no section counts too: programs carry data behind themselves. `volatile` matches are taken out of sections.
///
/// None for other files, which count as they are: object files, ELF files without sections or with broken ones.
pub fn loaded(bytes: &[u8], volatile: &[Regex]) -> Option<Key> {
    match FileKind::parse(bytes).ok()? {
        FileKind::Elf32 => of_class::<FileHeader32<Endianness>>(bytes, volatile),
        FileKind::Elf64 => of_class::<FileHeader64<Endianness>>(bytes, volatile),
        _ => None,
    }
}

fn of_class<Elf: FileHeader<Endian = Endianness>>(bytes: &[u8], volatile: &[Regex]) -> Option<Key> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let kind = header.e_type(endian);
    if kind != ET_EXEC && kind != ET_DYN {
        return None;
    }
    let sections = header.sections(endian, bytes).ok()?;
    if sections.is_empty() {
        return None;
    }
    let mut hasher = KeyHasher::new("loaded");
    let ident = header.e_ident();
    hasher.bytes(&[ident.class, ident.data, ident.os_abi, ident.abi_version]);
    let numbers = [
        u64::from(kind),
        u64::from(header.e_machine(endian)),
        u64::from(header.e_flags(endian)),
        header.e_entry(endian).into(),
    ];
    numbers.iter().for_each(|number| put(&mut hasher, *number));

    // Where the file's bytes are accounted for: headers, segments' table, sections' table, sections.
    let table = |offset: u64, count: usize, entry: u16| (offset, count as u64 * u64::from(entry));
    let segments = header.program_headers(endian, bytes).ok()?;
    let mut covered = vec![
        (0, u64::from(header.e_ehsize(endian))),
        table(
            header.e_phoff(endian).into(),
            segments.len(),
            header.e_phentsize(endian),
        ),
        table(
            header.e_shoff(endian).into(),
            sections.len(),
            header.e_shentsize(endian),
        ),
    ];
    for segment in segments {
        if segment.p_type(endian) == PT_NULL {
            continue;
        }
        let numbers = [
            u64::from(segment.p_type(endian)),
            u64::from(segment.p_flags(endian)),
            segment.p_vaddr(endian).into(),
            segment.p_filesz(endian).into(),
            segment.p_memsz(endian).into(),
            segment.p_align(endian).into(),
        ];
        numbers.iter().for_each(|number| put(&mut hasher, *number));
    }
    // The names of the symbols of that table.
    let symbols = sections.iter().find(|it| it.sh_type(endian) == SHT_SYMTAB);
    let symbol_names = symbols.map(|it| it.sh_link(endian) as usize);
    for (index, section) in sections.iter().enumerate() {
        let kind = section.sh_type(endian);
        if kind == SHT_NULL {
            continue;
        }
        let data = match kind {
            SHT_NOBITS => &[],
            _ => section.data(endian, bytes).ok()?,
        };
        covered.push((section.sh_offset(endian).into(), data.len() as u64));
        let name = sections.section_name(endian, section).ok()?;
        let name = std::str::from_utf8(name).ok()?;
        let is_ignored = NAMES_IGNORED.contains(&name)
            || PREFIXES_IGNORED
                .iter()
                .any(|prefix| name.starts_with(prefix))
            || kind == SHT_SYMTAB
            || symbol_names == Some(index);
        if is_ignored {
            continue;
        }
        hasher.str(name);
        let size: u64 = section.sh_size(endian).into();
        let numbers = [
            u64::from(kind),
            section.sh_flags(endian).into(),
            section.sh_addr(endian).into(),
            section.sh_addralign(endian).into(),
            if kind == SHT_NOBITS { size } else { 0 },
        ];
        numbers.iter().for_each(|number| put(&mut hasher, *number));
        hasher.bytes(&without(data, volatile));
    }
    for rest in uncovered(bytes, covered) {
        hasher.str("rest").bytes(rest);
    }
    Some(hasher.finish())
}

fn put(hasher: &mut KeyHasher, number: u64) {
    hasher.bytes(&number.to_le_bytes());
}

/// The bytes without what is volatile.
pub fn without(bytes: &[u8], volatile: &[Regex]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for regex in volatile {
        bytes = regex.replace_all(&bytes, &b""[..]).into_owned();
    }
    bytes
}

/// The parts of a file outside of the ranges (start, length) that are more than padding.
fn uncovered(bytes: &[u8], mut covered: Vec<(u64, u64)>) -> Vec<&[u8]> {
    covered.push((bytes.len() as u64, 0));
    covered.sort_unstable();
    let mut parts = Vec::new();
    let mut end = 0;
    for (start, length) in covered {
        let part = bytes.get(end as usize..start as usize).unwrap_or(&[]);
        if part.iter().any(|byte| *byte != 0) {
            parts.push(part);
        }
        end = end.max(start.saturating_add(length));
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// What is the same in all files of one test but for `edit`.
    const PROGRAM: &str = r#"
        const char text[] = "text"; int number = 7; static int zero[4];
        __attribute__((constructor)) static void first(void) { zero[0] = number; }
        static int twice(int x) { return 2 * x; }
        int (*pointer)(int) = twice;
        int main(int argc, char **argv) { (void)argv; return pointer(argc) + zero[1] + text[0]; }
    "#;

    fn compile(dir: &Path, source: &str, options: &[&str]) -> Vec<u8> {
        let (input, output) = (dir.join("a.c"), dir.join("a.out"));
        fs::write(&input, source).unwrap();
        let done = Command::new("cc")
            .current_dir(dir)
            .args(["-O1", "-o", "a.out", "a.c"])
            .args(options)
            .output()
            .expect("a C compiler: apt-get install gcc");
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{told}");
        fs::read(output).unwrap()
    }

    fn key(bytes: &[u8]) -> Key {
        loaded(bytes, &[]).expect("a program")
    }

    #[test]
    fn what_is_not_loaded_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let own = compile(dir.path(), PROGRAM, &[]);
        let check = |what: &str, other: Vec<u8>| {
            assert_ne!(own, other, "{what}");
            assert_eq!(key(&own), key(&other), "{what}");
        };
        check("debug information", compile(dir.path(), PROGRAM, &["-g"]));
        check(
            "more of it",
            compile(dir.path(), PROGRAM, &["-g3", "-gdwarf-4", "-gz"]),
        );
        let moved = format!("\n\n\n/* a comment */{PROGRAM}");
        check("other lines", compile(dir.path(), &moved, &["-g"]));
        check("no symbols", compile(dir.path(), PROGRAM, &["-s"]));
        let renamed = PROGRAM.replace("twice", "double_of_it");
        check("other local names", compile(dir.path(), &renamed, &[]));
        let build_id = ["-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567"];
        check("another build id", compile(dir.path(), PROGRAM, &build_id));
    }

    #[test]
    fn what_is_loaded_counts() {
        let dir = tempfile::tempdir().unwrap();
        let own = compile(dir.path(), PROGRAM, &["-g"]);
        let edits = [
            ("code", "2 * x", "3 * x"),
            (".rodata", "\"text\"", "\"test\""),
            (".data", "number = 7", "number = 8"),
            (".bss", "zero[4]", "zero[4000]"),
            (
                ".init_array",
                "__attribute__((constructor)) static void first",
                "void first",
            ),
            ("a relocation", "pointer)(int) = twice", "pointer)(int) = 0"),
        ];
        for (what, from, to) in edits {
            assert!(PROGRAM.contains(from));
            let other = compile(dir.path(), &PROGRAM.replace(from, to), &["-g"]);
            assert_ne!(key(&own), key(&other), "{what}");
        }
        let options: [(&str, &[&str]); 8] = [
            ("needed libraries", &["-Wl,--no-as-needed", "-lm"]),
            ("more libraries", &["-Wl,--no-as-needed", "-lm", "-lresolv"]),
            ("interpreter", &["-Wl,--dynamic-linker=/lib/other.so.2"]),
            ("run path", &["-Wl,-rpath,/opt/lib"]),
            ("binding", &["-Wl,-z,now"]),
            ("executable stack", &["-Wl,-z,execstack"]),
            ("exported symbols", &["-rdynamic"]),
            ("alignment", &["-Wl,-z,max-page-size=0x200000"]),
        ];
        let mut keys = vec![key(&own)];
        for (what, options) in options {
            let other = key(&compile(dir.path(), PROGRAM, options));
            assert!(!keys.contains(&other), "{what}");
            keys.push(other);
        }
        // Data that a program carries behind itself.
        let mut longer = own.clone();
        longer.extend(b"payload");
        assert_ne!(key(&own), key(&longer));
    }

    /// One byte of anything that is loaded, or of what nobody knows, makes another key.
    #[test]
    fn no_byte_of_a_segment_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let own = compile(dir.path(), PROGRAM, &["-s", "-Wl,--build-id=none"]);
        let file = object::read::elf::ElfFile64::<Endianness>::parse(own.as_slice()).unwrap();
        let endian = file.endian();
        let segments = file.elf_program_headers().iter();
        let loads = segments.filter(|it| it.p_type(endian) == object::elf::PT_LOAD);
        let ranges: Vec<(u64, u64)> = loads.map(|it| it.file_range(endian)).collect();
        let whole = key(&own);
        let mut forgotten = Vec::new();
        for (start, length) in ranges {
            for at in start..start + length {
                let mut other = own.clone();
                other[at as usize] ^= 0x55;
                if loaded(&other, &[]) == Some(whole) {
                    forgotten.push(at);
                }
            }
        }
        // Of the file's header: its own version and size, and where the table of sections is. Of those of segments:
        // where they are in the file, and their physical addresses.
        let header_end = 64 + 56 * file.elf_program_headers().len() as u64;
        forgotten.retain(|at| *at >= header_end);
        assert_eq!(forgotten, [0u64; 0]);
    }

    #[test]
    fn other_files_count_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let object = compile(dir.path(), PROGRAM, &["-c"]);
        for bytes in [
            object.as_slice(),
            b"#!/bin/sh\n",
            b"!<arch>\n",
            b"\x7fELF",
            b"",
        ] {
            assert_eq!(loaded(bytes, &[]), None);
        }
        // Cut anywhere, it is no whole program; nothing panics.
        let own = compile(dir.path(), PROGRAM, &[]);
        for end in (0..own.len()).step_by(97) {
            loaded(&own[..end], &[]);
        }
    }
}
