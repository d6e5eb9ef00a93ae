"""What the expressions of figures.toml can use: how results become figures."""

from statistics import mean, median
from typing import Any


def ratios(rows: dict[str, Any], name: str, than: str) -> list[float]:
    """How many times as fast one contender of step.py was as another, within each round."""
    return [a / b for a, b in zip(rows[name]["rounds"], rows[than]["rounds"], strict=True)]


def errors(cases: list[dict[str, Any]], name: str) -> dict[str, float]:
    """The sizes of a forecast's errors over cases of memory.py, in percent."""
    found = sorted(100 * abs(case[name]) for case in cases)
    p95 = found[min(len(found) - 1, int(0.95 * len(found)))]
    return {"median": median(found), "p95": p95, "worst": found[-1]}


def three(cases: list[dict[str, Any]], name: str, *forms: str) -> str:
    return ", ".join(f"{error:{form}} %" for error, form in zip(errors(cases, name).values(), forms, strict=True))


def rate(rows: dict[str, Any], name: str) -> float:
    return float(median(rows[name]["rounds"]))


def busy(rows: dict[str, Any], name: str) -> str:
    return f"{100 * rows[name]['busy']:.0f} %"


def of_replaying(rows: dict[str, Any]) -> float:
    return 100 * rate(rows, "brim captured") / rate(rows, "replaying alone")


def span(values: list[float], form: str = ".1f") -> str:
    """The range of values, "9.9 to 11.1"."""
    return f"{min(values):{form}} to {max(values):{form}}"


def beside(found: dict[str, Any], name: str, form: str = ".1f", x: str = "x") -> str:
    """A ratio of feed.py with its range: "5.1x (4.6 to 5.3)"."""
    return f"{found['ratios'][name]:{form}}{x} ({span(found['ranges'][name], form)})"


def ported(name: str, row: dict[str, Any]) -> str:
    """A row of ports.py: lines, seconds to the first step and samples a second of brim and of the other trainer."""
    (_, own), (beside, other) = row.items()
    forms = {"lines": "d", "first_step": ".2f", "rate": ",.0f"}
    cells = " | ".join(f"{own[key]:{form}} | {other[key]:{form}}" for key, form in forms.items())
    whose = {"transformers": "transformers.Trainer", "lightning": "Lightning"}[beside]
    return f"| {name.replace('_', ' ')}, beside {whose} | {cells} | {own['ratio']:.1f} |"


def zh(text: str) -> str:
    """The same in Chinese."""
    return text.replace("x (", " 倍（").replace(" to ", " 到 ").replace(")", "）")  # noqa: RUF001


def race(found: dict[str, Any], event: str) -> str:
    """A row of recommender.py: seconds of both, and the median and range of the ratios."""
    seconds = [f"{found['seconds'][name][event]:.3f} s" for name in ("brim", "RecBole")]
    return f"{' | '.join(seconds)} | {found['times_faster'][event]:.2f} ({span(found['range'][event], '.2f')}) |"


def seeds(runs: dict[str, Any]) -> str:
    """The quality of several seeds: NDCG@10 of each, and means."""
    of = {name: [run[name] for run in runs.values()] for name in ("ndcg@10", "recall@10", "recall@20")}
    each = ", ".join(f"{value:.4f}" for value in of["ndcg@10"])
    return f"{each} (mean {mean(of['ndcg@10']):.4f}) | {mean(of['recall@10']):.4f} | {mean(of['recall@20']):.4f}"


def each_seed(rows: list[dict[str, float]]) -> str:
    """Errors of forecasts, a value for each seed."""
    return " | ".join(", ".join(f"{row[name]:.4f}" for row in rows) for name in ("mse", "mae"))


def naive(rows: dict[str, dict[str, float]], name: str) -> str:
    """Errors of a naive forecast."""
    return f"{rows[name]['mse']:.4f} | {rows[name]['mae']:.4f}"


def helped(text: dict[str, list[float]], name: str, bold: str = "") -> str:
    """A row of text_helps.py."""
    found = mean(text[name])
    times = found / text["popularity"][0]
    each = ", ".join(f"{value:.4f}" for value in text[name])
    return f"{bold}{found:.4f}{bold} | {bold}{times:.2f}x{bold} | {each}"


def worst(rows: list[dict[str, Any]], name: str) -> float:
    return float(max(row[name] for row in rows if name in row))


def least(rows: list[dict[str, Any]], name: str) -> float:
    return float(min(row[name] for row in rows if name in row))


def machine(name: str, found: dict[str, Any]) -> str:
    """Where and when a result was made, as far as its file says so; of a forecast, beside which truth."""
    of = found | found.get("truth", {})
    known = [of.get("machine", of.get("card")), of.get("torch") and f"torch {of['torch']}", of.get("date")]
    forecast, at = found.get("forecast with torch"), found.get("commit")
    facts = [*known, forecast and f"forecast with torch {forecast}", at and f"commit {at}"]
    if not any(facts):
        raise ValueError(f"{name} says neither where nor when it was measured; a page cannot name its origin")
    return f"`{name}`: " + ", ".join(str(fact) for fact in facts if fact)


HELPERS = (
    median, mean, ratios, errors, three, rate, busy, of_replaying, span, beside, zh, race, seeds, helped, worst, least,
    each_seed, naive, machine, ported,
)  # fmt: skip
