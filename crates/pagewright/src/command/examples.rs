//! Examples of command lines, which `--help` shows and a test parses.

/// Command lines, and what each does; the first word after `pagewright` is the command.
const EXAMPLES: [(&str, &str); 22] = [
    ("pagewright", "the tour: each mechanism at work"),
    ("pagewright record -o job.pwt -- perl job.pl", "capture a program of yours"),
    ("pagewright replay job.pwt --compare cow_page_tables=never,always", "what a mechanism does to it"),
    ("pagewright check --steps 100000", "random programs under the oracle"),
    ("pagewright replay job.pwt", "count its faults, TLB misses and flushes"),
    ("pagewright replay job.pwt --compare tlb_batch=never,auto --mem 50%", "in half of its memory"),
    ("pagewright replay job.pwt --arch arm64 --cpus 8 --oracle", "on another machine, with every access judged"),
    (
        "pagewright replay job.pwt --set transparent_hugepage.enabled=always --json job.json",
        "with a setting, and as JSON",
    ),
    ("pagewright info job.pwt --all", "each process and file of a capture"),
    ("pagewright run pageout --swap 64M", "a workload that pages out"),
    ("pagewright run fork-server --compare cow_page_tables=never,always", "forks with tables copied and shared"),
    ("pagewright record -o sort.pwt -- sort words.txt", "what sort accesses"),
    ("pagewright evaluate cow-table --html fork.html", "forks, with plots"),
    ("pagewright evaluate batch migrc --json flushes.json", "two evaluations as JSON"),
    ("pagewright evaluate clear --full", "with the largest inputs"),
    ("pagewright check --explore --theme huge --schedules 10000", "interleaved programs with huge pages"),
    ("pagewright check --against linux --steps 100000", "beside the kernel of this computer"),
    ("pagewright snapshot 4711", "what a fork of process 4711 costs, and what huge pages would hold"),
    ("pagewright snapshot 4711 --json fork.json", "also as JSON"),
    ("pagewright boot --cpus 4 -- ./program arguments", "a Linux program on the kernel in QEMU"),
    ("pagewright boot --arch arm64 --check -- ./program", "with all counts checked at power-off"),
    ("pagewright boot --shell", "an interactive shell"),
];

/// Number of examples of the program itself, at the start of the table.
const OF_THE_PROGRAM: usize = 4;

/// The end of the help of the program.
pub(crate) fn of_the_program() -> String {
    format!(
        "{}\n\nExit status: 0 success, 1 a finding, 2 bad input, 130 interrupted; record and boot otherwise exit with the status of \
         their program (docs/commands.md).",
        listed(EXAMPLES[..OF_THE_PROGRAM].iter())
    )
}

/// The end of the help of a command: its examples, and `more`.
pub(super) fn of_command(command: &str, more: &str) -> String {
    let is_of_it = |example: &&(&str, &str)| example.0.split(' ').nth(1) == Some(command);
    format!("{}\n\n{more}", listed(EXAMPLES.iter().filter(is_of_it))).trim_end().to_owned()
}

fn listed<'a>(examples: impl Iterator<Item = &'a (&'a str, &'a str)>) -> String {
    let lines: Vec<String> = examples.map(|(line, meaning)| format!("  {line}\n          {meaning}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use crate::setting::{Comparison, Setting};
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_example_is_a_command_line() {
        for (line, _) in EXAMPLES {
            if let Err(error) = Cli::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
            let words: Vec<&str> = line.split(' ').collect();
            for pair in words.windows(2) {
                match *pair {
                    ["--set", argument] => drop(Setting::parse_all(&[argument.to_owned()]).expect(line)),
                    ["--compare", argument] => drop(Comparison::parse(&[argument.to_owned()], &[]).expect(line)),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.clone().render_long_help().to_string();
            let line = format!("pagewright {} ", command.get_name());
            assert!(help.contains("Examples:") && help.contains(&line), "{line}: {help}");
        }
    }
}
