/* A sieve: enough to send a compiler through all of its passes. */
extern int printf(const char *, ...);

static char composite[1000];

int main(void)
{
    int sum = 0;
    for (int i = 2; i < 1000; i++) {
        if (composite[i])
            continue;
        sum += i;
        for (int j = i * i; j < 1000; j += i)
            composite[j] = 1;
    }
    printf("%d\n", sum);
    return 0;
}
