"""``brim recommend RUN``: what the recommender of a run would show people, by the ids and titles of its data set."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brim.config.served_run import ServedRun
    from brim.workloads.recommender.serving.catalogue import Catalogue
    from brim.workloads.recommender.serving.rankings import Ranking

MOST_WATCHED = 5  # titles that are named of what somebody has watched


def recommend(
    run: Annotated[Path, typer.Argument(help="A run folder of the recommender.", metavar="RUN")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Override the location of the data, such as data.path=FOLDER.", metavar="KEY=VALUE"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="A user of the training data, by id.")] = None,
    like: Annotated[str | None, typer.Option(help="A new user, by items they have watched: 1,2,3.")] = None,
    text: Annotated[str | None, typer.Option(help="A new user, in words, in the form of the users' texts.")] = None,
    new_item: Annotated[str | None, typer.Option(help="A new item, in words.")] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Write recommendations for all users to the file --out.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Parquet file for --all.")] = None,
    k: Annotated[int, typer.Option("--k", help="Number of items.")] = 10,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Include what the user has seen.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Recommend items to a user, to somebody new, or to everybody; or say who would like a new item."""
    from brim.config.served_run import open_served_run
    from brim.errors import ConfigError
    from brim.workloads.recommender.serving.parquet_export import export_all

    if everybody != (out is not None) or (everybody and any(one is not None for one in (user, like, text, new_item))):
        raise ConfigError("every user is --all --out FILE.parquet, without --user, --like, --text or --new-item")
    if out is not None and out.suffix != ".parquet":
        raise ConfigError(f"--out={out} must end in .parquet")
    if user is not None and (like is not None or text is not None):
        raise ConfigError(
            "--user is somebody of the training data, --like and --text are somebody new: name one of them"
        )
    if not everybody and all(one is None for one in (user, like, text, new_item)):
        raise ConfigError("say for whom: --user ID, --like 1,2,3, --text '...', or --all --out FILE.parquet")
    if new_item is not None and (like is not None or text is not None):
        raise ConfigError("--new-item goes with --user, or alone")
    served = open_served_run(run, overrides or [])
    if out is not None:
        rows = export_all(served.model, served.catalogue, out, k, include_seen)
        shown = {"out": str(out), "rows": rows}
        typer.echo(json.dumps(shown) if as_json else f"{out} has {rows:,} rows")
        return
    if new_item is not None:
        found = _for_new_item(served, new_item, user, k)
    else:
        found = _for_person(served, user, like, text, k, include_seen)
    typer.echo(json.dumps(found) if as_json else _in_words(found))


def _for_person(
    served: "ServedRun", user: str | None, like: str | None, text: str | None, k: int, include_seen: bool
) -> dict[str, Any]:
    from brim.workloads.recommender.serving.rankings import rank_items

    catalogue = served.catalogue
    told: dict[str, Any]
    if user is not None:
        row = catalogue.user_row(user)
        watched = catalogue.seen_by(row)
        ranking = rank_items(served.model, row, k, None if include_seen else watched)
        told = {"user": catalogue.user_id(row), "text": catalogue.dataset.people[row].text()}
    else:
        watched = [catalogue.item_row(item) for item in _ids(like)]
        ranking = rank_items(served.model, k=k, watched=watched or None, text=text)
        told = {"user": None, "text": text}
    return {**told, "watched": _items(catalogue, watched), "recommended": _ranked(catalogue, ranking)}


def _for_new_item(served: "ServedRun", text: str, user: str | None, k: int) -> dict[str, Any]:
    from brim.workloads.recommender.serving.rankings import place_of, rank_alike, rank_users

    catalogue = served.catalogue
    if user is not None:
        row = catalogue.user_row(user)
        place, count = place_of(served.model, row, text, catalogue.seen_by(row))
        return {"new_item": text, "user": catalogue.user_id(row), "place": place, "of": count}
    people = rank_users(served.model, text, k)
    users = [
        {"user": catalogue.user_id(row), "text": catalogue.dataset.people[row].text(), "score": score}
        for row, score in zip(people.ids, people.scores, strict=True)
    ]
    return {"new_item": text, "users": users, "alike": _ranked(catalogue, rank_alike(served.model, text, k))}


def _ids(like: str | None) -> list[str]:
    """The ids in ``1,2,3``."""
    from brim.errors import ConfigError

    words = [] if like is None else [word.strip() for word in like.split(",")]
    if not all(words):
        raise ConfigError(f"--like {like} must be ids of items with commas between them, such as 1,2,3")
    return words


def _items(catalogue: "Catalogue", rows: list[int]) -> list[dict[str, Any]]:
    movies = [catalogue.movie(row) for row in rows]
    return [
        {"item": catalogue.item_id(row), "title": movie.title, "genres": list(movie.genres)}
        for row, movie in zip(rows, movies, strict=True)
    ]


def _ranked(catalogue: "Catalogue", ranking: "Ranking") -> list[dict[str, Any]]:
    return [
        {**item, "score": score} for item, score in zip(_items(catalogue, ranking.ids), ranking.scores, strict=True)
    ]


def _in_words(found: dict[str, Any]) -> str:
    from brim.errors import printable

    if "place" in found:
        lines = [f"For user {found['user']} it would be at place {found['place']:,} of {found['of']:,}."]
    elif "users" in found:
        lines = ["Who would like it best:"]
        lines += [f"{one['user']:>8}  {one['score']:8.3f}  {one['text']}" for one in found["users"]]
        lines += ["What is most like it:", *_item_lines(found["alike"])]
    else:
        who = "Somebody new" if found["user"] is None else f"User {found['user']}"
        titles = "; ".join(item["title"] for item in found["watched"][:MOST_WATCHED])
        more = f" and {len(found['watched']) - MOST_WATCHED:,} more" if len(found["watched"]) > MOST_WATCHED else ""
        lines = [f"{who}{': ' + found['text'] if found['text'] else ''}"]
        lines += [f"Watched: {titles}{more}"] if titles else []
        lines += ["Recommended:", *_item_lines(found["recommended"])]
        lines += ["nothing: they have seen every item; --include-seen"] * (not found["recommended"])
    return "\n".join(map(printable, lines))


def _item_lines(items: list[dict[str, Any]]) -> list[str]:
    return [
        f"{place:>3}. {item['item']:>6}  {item['score']:8.3f}  {item['title']}"
        + (f"  ({', '.join(item['genres'])})" if item["genres"] else "")
        for place, item in enumerate(items, 1)
    ]
