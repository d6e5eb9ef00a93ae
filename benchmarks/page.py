"""Write docs/benchmarks.md, of its template and the result files.

    python benchmarks/page.py

The template, ``page.template.md``, has figures as ``figures.toml`` has them, ``{expression:format}`` with the same
values and helpers. ``make check`` compares the page with what this would write.
"""

from figures import GENERATED, ROOT, generated, read_values


def main() -> None:
    values = read_values(ROOT)
    for name in GENERATED:
        (ROOT / name).write_text(generated(ROOT, name, values))
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
