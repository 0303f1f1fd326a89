"""Dictionaries, strings, lists and sorting: what a small script does, without the standard library's weight."""


def main():
    squares = {n: str(n * n) for n in range(4000)}
    counts = {}
    for text in squares.values():
        counts[text[:2]] = counts.get(text[:2], 0) + 1
    lines = [f"{count:4} {prefix}" for prefix, count in sorted(counts.items())]
    print("\n".join(lines[:5]))


main()
