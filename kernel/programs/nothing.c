/* Does nothing: the kernel's own needs of memory are what is left to test. */
int main(void)
{
    return 0;
}
