"""Which run a folder belongs to: its experiment, config and data; and what it was made with.

Another experiment, config or data is refused, in one line and before anything is touched. Other
versions, another machine or another kind of random numbers may change the last bits or everything:
that is said, and is the user's to judge.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from jaxsens.core.files import WorkdirError
from jaxsens.core.storage import Storage
from jaxsens.reporting.plain_json import dumps, leaves, plain


def config_hash(experiment: str, config: dict[str, Any]) -> str:
    """Ten hexadecimal digits that name an experiment's configuration; key order is irrelevant.

    Example:
      >>> config_hash("fig4", {"epochs": 5, "sigma": 0.5})
      '8b258bbeab'
    """
    identity = {"experiment": experiment, "config": config}
    return hashlib.sha256(dumps(identity, "config", sort_keys=True).encode()).hexdigest()[:10]


def default_folder(experiment: str, config: dict[str, Any], root: Path | str = "runs") -> Path:
    """The folder of a run without `--workdir`: `runs/<experiment>/<config hash>`."""
    return Path(root) / experiment / config_hash(experiment, config)


def identity(
    experiment: str,
    config: dict[str, Any],
    data: dict[str, str] | None,
    made_with: dict[str, Any] | None,
) -> dict[str, Any]:
    """What config.json says; data and surroundings only where they are known."""
    known = {"data": data, "made_with": made_with}
    return {"experiment": experiment, "config": plain(config, "config")} | {
        name: plain(given, name) for name, given in known.items() if given is not None
    }


def refuse_foreign_files(place: Storage) -> None:
    """Raises WorkdirError for a folder that holds files but no run."""
    names = place.entries()
    # A run killed before it wrote config.json leaves only these two.
    foreign = {n for n in names if not re.fullmatch(r"\.lock|\.config\.json\.\d+\.tmp", n)}
    if foreign and "config.json" not in names:
        raise WorkdirError(
            f"{place.location} is not a run folder: it has no config.json but holds other files "
            f"({min(foreign)}); choose another --workdir"
        )


def stored(place: Storage) -> dict[str, Any]:
    """What the folder's config.json says.

    Raises:
      WorkdirError: it was not written by jaxsens.
    """
    try:
        found = json.loads(place.read("config.json").decode("utf-8"))
        if not isinstance(found["experiment"], str):
            raise TypeError("experiment is not a name")
        for name in ("config", "data", "made_with"):
            dict(found["config"] if name == "config" else found.get(name, {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WorkdirError(
            f"{place.location} is not a run folder: its config.json was not written by jaxsens; "
            "choose another --workdir"
        ) from error
    return found


def changes(place: Storage, here: dict[str, Any]) -> tuple[str, ...]:
    """Compares the folder's config.json, if it has one, with what it would say if written now.

    Returns:
      What is different of versions and machine, each in words; nothing if one of the two does not
      say, as folders of earlier versions.

    Raises:
      WorkdirError: the folder belongs to another run, or to other data.
    """
    if not place.exists("config.json"):
        return ()
    there = stored(place)
    if different := _differences(_fields(there), _fields(here)):
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        raise WorkdirError(
            f"{place.location} holds another run ({', '.join(different[:3])}{more}); "
            "choose another --workdir"
        )
    if others := other_data(there.get("data"), here.get("data")):
        raise WorkdirError(
            f"{place.location} was made with other data ({', '.join(others)} differ); give the "
            "--data-dir that it was made with or choose another --workdir"
        )
    if "made_with" not in there or "made_with" not in here:
        return ()
    return tuple(_differences(_texts(there["made_with"]), _texts(here["made_with"])))


def other_data(there: dict[str, str] | None, here: dict[str, str] | None) -> list[str]:
    """The names whose digests differ; none if one of the two is not known."""
    if there is None or here is None:
        return []
    return sorted(name for name in there | here if there.get(name) != here.get(name))


def _differences(there: dict[str, str], here: dict[str, str]) -> list[str]:
    return [
        f"{name}: {there.get(name, 'absent'):.60} there, {here.get(name, 'absent'):.60} here"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]


def _fields(identity: dict[str, Any]) -> dict[str, str]:
    """The experiment and every field of its config, nested ones dotted, each as one line."""
    fields = {"--exp": identity["experiment"], **dict(leaves(identity["config"], "", dict))}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items()}


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
