# A hash of about 100 MB in a process that forks when it is told to, as process.py does.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);

$| = 1;
my %hash = map { ("key number $_" => "value $_") } 1 .. 500_000;
print "READY\n";
while (<STDIN>) {
    my $start = clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
    my $child = fork;
    if (!$child) { sleep while 1 }
    my $elapsed = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $start;
    kill 'KILL', $child;
    waitpid $child, 0;
    # Stores to each value, so that its page is this process's own again.
    $_ .= '' for values %hash;
    printf "%d\n", $elapsed * 1e9;
}
