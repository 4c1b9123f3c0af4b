"""The models of a command line: a function of the user's, or a Hugging Face folder, with weights.

A model is named as module:function, or file.py:function, and may be

* `apply_fn(params, x) -> logits`, whose weights are in a file;
* an instance of a Flax module, likewise;
* a pair (apply_fn, params), or a model of PyTorch, Equinox, Keras or nnx, which holds its weights;
* a function without arguments that returns one of these.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxsens import adapters
from jaxsens.core.adapted import framework_of
from jaxsens.core.user_code import first_line
from jaxsens.measuring.config import Config
from jaxsens.measuring.weights import read_weights


@dataclass(frozen=True)
class Model:
    """A model to measure.

    Attributes:
      label: its name in tables.
      apply_fn: `apply_fn(params, x)`, or with a context.
      params: its weights.
    """

    label: str
    apply_fn: Callable[..., Any]
    params: Any


def load_models(config: Config) -> list[Model]:
    """The model, and those that it is compared with.

    Raises:
      ValueError: one of them cannot be loaded; the message is one line.
    """
    assert config.model is not None
    words = [f"{config.model}@{config.params or ''}"]
    words += [word if "@" in word else f"{config.model}@{word}" for word in config.compare]
    models = [_load(word, nested=config.params_keys == "nested") for word in words]
    return [
        Model(label, model.apply_fn, model.params)
        for label, model in zip(short_labels(words), models, strict=True)
    ]


def short_labels(words: list[str]) -> list[str]:
    """What tells words apart, for tables: without the parts that all of them begin or end with.

    >>> short_labels(["net.py:f@a.npz", "net.py:f@b.npz"]), short_labels(["net.py:f@"])
    (['a.npz', 'b.npz'], ['net.py:f'])
    """
    names = [word.rstrip("@/").rpartition("/")[2] for word in words]
    after = [name.rpartition("@")[2] for name in names]
    for candidates in (after, names, words):
        if len(set(candidates)) == len(words):
            return candidates
    raise ValueError(f"the same model is named twice: {', '.join(words)}; name each once")


def _load(word: str, *, nested: bool) -> Model:
    name, _, file = word.rpartition("@")
    found = _unwrapped(_named(name), name)
    if isinstance(found, tuple):
        if file:
            raise ValueError(f"{name} is a pair (apply_fn, params): leave the weights {file} out")
        return Model(word, *found)
    params = read_weights(Path(file).expanduser(), nested=nested) if file else ()
    return Model(word, found, params)


def _unwrapped(found: Any, name: str) -> Any:
    """A function apply_fn, or a pair of it and its weights."""
    # Flax's modules and Haiku's pairs, which are tuples too.
    if not isinstance(found, type) and hasattr(found, "apply") and hasattr(found, "init"):
        return found.apply
    if isinstance(found, tuple) and len(found) == 2 and callable(found[0]):
        return found
    framework = framework_of(found)
    if framework is not None:
        return tuple(getattr(adapters, framework)(found))
    if isinstance(found, type):
        raise ValueError(f"{name} is a class; name an instance, or a function that makes one")
    if not callable(found):
        raise ValueError(
            f"{name} must be apply_fn(params, x), a Flax module or a pair (apply_fn, params); got "
            f"{type(found).__name__}"
        )
    if _takes_nothing(found):
        try:
            made = found()
        except Exception as error:
            raise ValueError(
                f"{name}() fails: {type(error).__name__}: {first_line(error)}"
            ) from error
        if inspect.isfunction(made) and _takes_nothing(made):
            raise ValueError(f"{name}() must return a model; got a function without arguments")
        return _unwrapped(made, f"{name}()")
    return found


def _takes_nothing(function: Any) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _named(name: str) -> Any:
    """What stands under module:name or file.py:name."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise ValueError(f"--model must be module:function or file.py:function; got {name!r}")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    except Exception as error:
        raise ValueError(
            f"{place} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{place} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _from_name(name: str) -> Any:
    # As `python -m` does; the command may also be started by its script.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _from_file(path: Path) -> Any:
    path = path.expanduser().resolve()
    name = f"jaxsens_measured_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and Flax modules look their own module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
