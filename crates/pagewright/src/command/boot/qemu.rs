//! Builds the command lines of QEMU and of the kernel.
//!
//! Not guaranteed: that it works with QEMU before 7.2, the version of Debian 12.

use super::memory::{self, MIB};
use super::{Args, BootError, CommandError};
use crate::options::{OptionError, memory_option};
use pagewright_sim::config::parse;
use pagewright_sim::{MachineConfig, NodeConfig};
use pagewright_types::{CpuId, CpuMask, IsaKind};
use std::path::Path;
use std::process::Command;

/// QEMU's `isa-debug-exit` device; the port is the one that the kernel's `hal` writes to.
const DEBUG_EXIT: &str = "isa-debug-exit,iobase=0x501,iosize=4";

/// The machine that QEMU emulates.
pub(super) struct QemuMachine {
    isa: IsaKind,
    name: String,
    cpus: u16,
    nodes: Vec<NodeConfig>,
    /// The distances between all nodes, row by row; empty for a firmware that gives none.
    distances: Vec<u8>,
    /// Whether QEMU counts instructions: each takes a nanosecond of the machine's time.
    count: bool,
    /// The argument of QEMU's `-plugin`.
    plugin: Option<String>,
}

/// The words of the kernel's command line, without the program's arguments.
pub(super) struct KernelWords<'a> {
    /// The argument of `--append`, unchanged.
    pub(super) append: &'a str,
    pub(super) settings: &'a [String],
    pub(super) check: bool,
    pub(super) record: bool,
    /// Whether the program has input from the serial line.
    pub(super) input: bool,
    pub(super) plant: Option<&'a str>,
    pub(super) swap_slots: Option<u32>,
    pub(super) program: &'a str,
}

impl KernelWords<'_> {
    /// Builds the kernel's command line, the program's arguments included.
    pub(super) fn line(&self, arguments: &[String]) -> Result<String, BootError> {
        if self.program.contains(' ') {
            return Err(BootError::Name(self.program.to_owned()));
        }
        let mut words: Vec<String> = self.append.split_whitespace().map(str::to_owned).collect();
        words.extend_from_slice(self.settings);
        words.extend(self.check.then(|| "check".to_owned()));
        words.extend(self.record.then(|| "record".to_owned()));
        words.extend(self.input.then(|| "input".to_owned()));
        words.extend(self.plant.map(|plant| format!("plant={plant}")));
        words.extend(self.swap_slots.map(|slots| format!("swap={slots}")));
        words.push("--".to_owned());
        words.push(self.program.to_owned());
        words.extend(arguments.iter().map(|argument| escape(argument)));
        Ok(words.join(" "))
    }
}

/// Escapes an argument, so that it is one word of the kernel's command line.
///
/// Blanks, and bytes with a meaning in QEMU's options, become `%xx`; an empty argument becomes
/// `%00`.
fn escape(argument: &str) -> String {
    if argument.is_empty() {
        return "%00".to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b',' | b'"' | b'\'');
    argument
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

impl QemuMachine {
    pub(super) fn new(args: &Args, isa: IsaKind) -> Result<Self, CommandError> {
        let known: &[&str] = match isa {
            IsaKind::X86_64 => &["q35", "microvm"],
            IsaKind::Aarch64 => &["virt"],
        };
        let name = args.machine.clone().unwrap_or_else(|| known[0].to_owned());
        if !known.contains(&name.as_str()) {
            return Err(BootError::Machine(name).into());
        }
        let has_nodes = args.nodes.are_given();
        let nodes = if has_nodes {
            args.nodes.nodes()?
        } else {
            vec![NodeConfig { bytes: parse::size(&args.mem).map_err(BootError::Memory)?, cpus: CpuMask::EMPTY }]
        };
        let mut machine = MachineConfig::default_for(isa).map_err(OptionError::from)?;
        (machine.cpus, machine.nodes, machine.distances) = (args.cpus, nodes, args.nodes.distances()?);
        machine.validate(isa).map_err(|error| OptionError::machine(error, has_nodes))?;
        // Without the option, firmware gives none, and Linux and our kernel use their default.
        let distances = if machine.distances.is_empty() { Vec::new() } else { machine.distance_matrix() };
        let nodes = machine.nodes;
        if let Some(node) = nodes.iter().find(|node| !node.bytes.is_multiple_of(MIB)) {
            return Err(BootError::PartOfMiB { option: memory_option(has_nodes), bytes: node.bytes }.into());
        }
        Ok(Self { isa, name, cpus: args.cpus, nodes, distances, count: args.count, plugin: args.plugin.clone() })
    }

    /// Refuses a machine with too little memory for a kernel and its initramfs.
    ///
    /// `image` is the contents of the kernel's file, `packed` the size of the initramfs. Kernels in
    /// another form than ours say themselves what they lack.
    ///
    /// # Errors
    /// [`BootError::TooLittleMemory`], [`BootError::SmallNode`].
    pub(super) fn check_memory(&self, option: &'static str, image: &[u8], packed: u64) -> Result<(), BootError> {
        /// MiB without which a node may have no free memory.
        ///
        /// The BIOS of an x86-64 machine has 1 MiB of node 0, and the device tree of an arm64
        /// machine 1 MiB of any node.
        const NODE: u64 = 2;
        let mebibytes = self.nodes.iter().map(|node| node.bytes).sum::<u64>() / MIB;
        let image_end = memory::image_end(self.isa, image);
        let least = image_end.map_or(0, |image_end| memory::least_memory(self.isa, image_end, packed));
        if mebibytes < least {
            return Err(BootError::TooLittleMemory { option, mebibytes, least });
        }
        for (node, mebibytes) in self.nodes.iter().map(|node| node.bytes / MIB).enumerate() {
            // QEMU places the initramfs at half of memory or at its end.
            let least = if node == 0 { NODE } else { NODE + packed.div_ceil(MIB) };
            if mebibytes < least {
                return Err(BootError::SmallNode { node, mebibytes, least });
            }
        }
        Ok(())
    }

    /// Builds the QEMU command that boots `kernel` with `initramfs` and the command line `line`.
    ///
    /// QEMU writes the kernel's report to the file `report`.
    pub(super) fn command(&self, kernel: &Path, initramfs: &Path, report: &Path, line: &str) -> Command {
        let mut qemu = match self.isa {
            IsaKind::X86_64 => Command::new("qemu-system-x86_64"),
            IsaKind::Aarch64 => Command::new("qemu-system-aarch64"),
        };
        let bytes: u64 = self.nodes.iter().map(|node| node.bytes).sum();
        qemu.args(["-cpu", "max", "-m", &format!("{}M", bytes / MIB), "-smp", &self.cpus.to_string()]);
        qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
        // The kernel's CPUs spin while they wait for each other. With fewer host CPUs than that,
        // one host thread runs all of them in turn.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let accelerator =
            if usize::from(self.cpus) <= threads && !self.count { "tcg,thread=multi" } else { "tcg,thread=single" };
        qemu.args(["-accel", accelerator]);
        if self.count {
            qemu.args(["-icount", "shift=0,sleep=off"]);
            // Random numbers and the date are the same in every run.
            qemu.args(["-seed", "1", "-rtc", "base=2026-01-01,clock=vm"]);
        }
        if let Some(plugin) = &self.plugin {
            qemu.args(["-plugin", plugin]);
        }
        if self.nodes.len() > 1 {
            self.nodes(&mut qemu);
        }
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
        match self.isa {
            IsaKind::X86_64 => {
                let hmat = if self.has_slow_node() { ",hmat=on" } else { "" };
                qemu.args(["-machine", &format!("{}{hmat}", self.name), "-device", DEBUG_EXIT, "-debugcon"]);
                qemu.arg(format!("file:{}", report.display())).args(["-append", line]);
            }
            IsaKind::Aarch64 => {
                qemu.args(["-machine", &format!("{},gic-version=3", self.name)]);
                qemu.args(["-semihosting-config", "enable=on,target=native", "-append"]);
                qemu.arg(format!("report={} {line}", report.display()));
            }
        }
        qemu
    }

    /// Adds the options for the nodes and their distances; node 0 gets the CPUs that no node names.
    fn nodes(&self, qemu: &mut Command) {
        let named: CpuMask = self.nodes.iter().flat_map(|node| node.cpus.iter()).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let id = format!("node{index}");
            qemu.arg("-object").arg(format!("memory-backend-ram,id={id},size={}M", node.bytes / MIB));
            let mut cpus = node.cpus;
            if index == 0 {
                let others = (0..self.cpus).map(CpuId::new).filter(|cpu| !named.contains(*cpu));
                cpus.insert_all(&others.collect());
            }
            let list: String = cpus.iter().map(|cpu| format!(",cpus={cpu}")).collect();
            let initiator = if self.has_slow_node() { ",initiator=0" } else { "" };
            qemu.arg("-numa").arg(format!("node,nodeid={index},memdev={id}{list}{initiator}"));
        }
        if self.has_slow_node() {
            self.latencies(qemu);
        }
        self.add_distances(qemu);
    }

    /// Whether firmware tells which nodes are slower: on x86-64, if only node 0 has CPUs.
    ///
    /// Linux takes such a node for a lower tier only if the HMAT says so (`mt_perf_to_adistance`).
    fn has_slow_node(&self) -> bool {
        let has_cpus = |node: &NodeConfig| node.cpus.iter().next().is_some();
        self.isa == IsaKind::X86_64 && self.nodes.len() > 1 && self.nodes[1..].iter().all(|node| !has_cpus(node))
    }

    /// Adds the latencies and bandwidths of the HMAT: a node without CPUs has thrice the latency.
    ///
    /// QEMU delays nothing by them.
    fn latencies(&self, qemu: &mut Command) {
        for node in 0..self.nodes.len() {
            let (latency, bandwidth) = if node == 0 { (100, "10G") } else { (300, "5G") };
            let of = |what: &str| format!("hmat-lb,initiator=0,target={node},hierarchy=memory,data-type=access-{what}");
            qemu.arg("-numa").arg(format!("{},latency={latency}", of("latency")));
            qemu.arg("-numa").arg(format!("{},bandwidth={bandwidth}", of("bandwidth")));
        }
    }

    /// Adds the distances of the nodes, if firmware gives any.
    fn add_distances(&self, qemu: &mut Command) {
        let count = self.nodes.len();
        for (cell, distance) in self.distances.iter().enumerate() {
            let (from, to) = (cell / count, cell % count);
            if from < to {
                // QEMU uses it for the other direction, too.
                qemu.arg("-numa").arg(format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_argument_is_one_word() {
        assert_eq!(escape("plain-1.c"), "plain-1.c");
        assert_eq!(escape("a b%,"), "a%20b%25%2c");
        assert_eq!(escape(""), "%00");
    }
}
