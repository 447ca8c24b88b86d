"""`python -m tests.bench [--quick] [NAME …]`: measure, print a table, write `bench.json`.

Runs on an embedded server of its own, or on the one that DATABASE_URL names.
"""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from tests.bench.append import append_batch_50
from tests.bench.cycles import cycles_per_second, cycles_slow_commits
from tests.bench.latency import stimulus_latency
from tests.bench.llm import llm_overhead
from tests.bench.locomo import locomo
from tests.bench.logins import logins
from tests.bench.measure import Figure
from tests.bench.memory import memory_10k
from tests.bench.memory_search import mem_search
from tests.bench.memory_write import mem_import, mem_write
from tests.bench.place import Server, server
from tests.bench.watchers import watchers

Bench = Callable[..., Awaitable[list[Figure]]]

BENCHES: Final[dict[str, Bench]] = {
    "cycles": cycles_per_second,
    "slow_commits": cycles_slow_commits,
    "append": append_batch_50,
    "latency": stimulus_latency,
    "watchers": watchers,
    "memory": memory_10k,
    "logins": logins,
    "llm_overhead": llm_overhead,
    "mem_write": mem_write,
    "mem_import": mem_import,
    "mem_search": mem_search,
    "locomo": locomo,
}


async def measure(names: Sequence[str], *, quick: bool) -> list[Figure]:
    """Return the figures of the named benchmarks, in order, printing each as it comes."""
    figures: list[Figure] = []
    async with server() as place:
        print(_header(place))
        for name in names:
            for figure in await BENCHES[name](place, quick=quick):
                print(_line(figure), flush=True)
                figures.append(figure)
    return figures


def _header(place: Server) -> str:
    where = "embedded server" if place.is_embedded else "server of DATABASE_URL"
    columns = f"{'name':<34}{'ours':>12}{'limit':>12}  {'unit':<10}{'ratio':>7}{'target':>9}"
    return f"On the {where}\n{columns}"


def _line(figure: Figure) -> str:
    sign = ">=" if figure.higher_is_better else "<="
    target = "" if figure.target is None else f"{sign} {figure.target:g}"
    mark = "" if figure.is_reached else "  MISSED"
    return (
        f"{figure.name:<34}{_number(figure.ours):>12}{_number(figure.limit):>12}  "
        f"{figure.unit:<10}{figure.ratio:>7.2f}{target:>9}{mark}"
        + (f"  ({figure.note})" if figure.note else "")
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def report(figures: Sequence[Figure]) -> bytes:
    """Return `bench.json`: what scripts compare."""
    lines = [
        {
            "name": f.name,
            "ours": round(f.ours, 3),
            "limit": round(f.limit, 3),
            "ratio": round(f.ratio, 3),
            "unit": f.unit,
            "higher_is_better": f.higher_is_better,
        }
        for f in figures
    ]
    return msgspec.json.format(msgspec.json.encode(lines), indent=2) + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    figures = uvloop.run(measure(options.names or list(BENCHES), quick=options.quick))
    options.output.write_bytes(report(figures))
    missed = [f.name for f in figures if not f.is_reached]
    print(f"Written to {options.output}." + (f" Missed: {', '.join(missed)}." if missed else ""))


if __name__ == "__main__":
    main()
