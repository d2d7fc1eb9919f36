"""The sizes at which graphs with free sizes are compared, to find how integers depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenon.export.axes import Axes

if TYPE_CHECKING:
    from tenon.export.captured import Symbol

#: From the example's size, at least 2, to the sizes that are compared.
Choice: TypeAlias = Callable[[int], Sequence[int]]

CHOICES: tuple[Choice, ...] = (
    lambda n: (n + 1, 2 * n + 1, n + 4, 2 * n + 4, n + 7, 3 * n + 1),
    lambda n: (2 * n, 3 * n, 5 * n, 4 * n, 7 * n),
    lambda n: (n, n - 1, (n + 1) // 2, n // 2, n // 3),
    lambda n: (n, n // 2, n // 4),
    lambda n: (n, n + 1, n + 2),
    lambda n: (n - 1, n, n + 1),
    lambda n: (n, n + 2, n + 4, n + 6, n + 10),
    lambda n: (n, n + 4, n + 8, n + 12, n + 20),
)


def sample_sizes(
    symbols: Mapping[str, Symbol], axes: Axes, choices: Sequence[Choice] = CHOICES
) -> Iterator[list[dict[str, int]]]:
    """Yield lists of sizes to compare; of each the first is the base, then symbols change one by one.

    The first list has odd sizes, which distinguish ``(n + 1)//2`` from ``n//2``; for models that need even
    ones, or a small range, multiples or fractions of the example's size follow. No axis has size 1, which
    broadcasts, or 0.
    """
    derived = [size for own in axes.values() for size in own.values() if size.function != "symbol"]
    for choose in choices:

        def size(name: str, number: int, choose: Choice = choose) -> int:
            # Not 1, which broadcasts: what then runs need not run at other sizes.
            sizes = [each for each in choose(max(symbols[name].example, 2)) if each > 1]
            return sizes[number % len(sizes)]

        base = {name: size(name, 0) for name in symbols}
        samples = [base]
        for number in (1, 2):
            samples += [base | {name: size(name, number)} for name in symbols]
        samples.append({name: size(name, 3 + i) for i, name in enumerate(symbols)})
        fits = all(
            s.least <= sizes[name] and (s.most is None or sizes[name] <= s.most)
            for sizes in samples
            for name, s in symbols.items()
        ) and all(size.at(sizes) > 1 for sizes in samples for size in derived)
        if fits and len({tuple(sizes.values()) for sizes in samples}) > 2:
            yield samples
