"""Hugging Face folders: `config.json`, `model.safetensors` and, for texts, `tokenizer.json`.

The package transformers makes the model, `jaxsens.adapters` makes it a function of JAX. Images are
covered as the model sees them, (C, H, W) and normalised; texts are changed in their embeddings, as
the model's table gives them.

Assumption: an image is the square in its middle, scaled to the model's size, whatever other way of
cutting its processor has; and padding follows a text.
"""

import dataclasses
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from jaxsens import adapters
from jaxsens import data as datasets
from jaxsens.cli.wording import nearest
from jaxsens.core.user_code import first_line
from jaxsens.measuring.config import Config
from jaxsens.measuring.data import Examples, stored_arrays, x_name
from jaxsens.measuring.models import Model, short_labels
from jaxsens.measuring.pictures import PictureArray, PictureFolder, picture_files
from jaxsens.measuring.words import GRIDS, made_of
from jaxsens.perturbations import Grid

_IMAGES = ("convnext", "convnextv2", "deit", "resnet", "vit")
_TEXTS = ("bert", "distilbert", "gpt2", "roberta")
#: Whose own patches are the usual windows; for others these are.
_PATCHED, _PATCH = ("deit", "vit"), 16
#: Longer texts are cut.
_MOST_TOKENS = 512


@dataclass(frozen=True)
class HuggingFace:
    """A model of a folder.

    Attributes:
      path: the folder.
      config: what config.json says.
      module: the PyTorch module, in eval mode.
    """

    path: Path
    config: dict[str, Any]
    module: Any

    @property
    def is_text(self) -> bool:
        """Whether it reads texts; else images."""
        return self.config["model_type"] in _TEXTS

    def model(self, label: str) -> Model:
        """The module as a function of JAX."""
        if self.config["model_type"] == "gpt2":
            return Model(label, *adapters.torch(_at_last_token(self.module)))
        adapt = adapters.embeddings if self.is_text else adapters.torch
        return Model(label, *adapt(self.module))

    def grid(self, word: str | None) -> Grid:
        """The windows: the user's, or the usual ones; of images with the channels first."""
        if self.is_text:
            return made_of(word or "tokens", GRIDS)
        kind = self.config["model_type"]
        patch = self.config.get("patch_size", _PATCH) if kind in _PATCHED else _PATCH
        grid = made_of(word or f"patches:{patch}", GRIDS)
        return dataclasses.replace(grid, channels="first") if hasattr(grid, "channels") else grid

    def examples(self, config: Config, data_dir: PurePath | None) -> Examples:
        """The examples of --data, as this model takes them."""
        read = self._texts if self.is_text else self._images
        return read(config, data_dir)

    def _images(self, config: Config, data_dir: PurePath | None) -> Examples:
        assert config.data is not None
        path, some = Path(config.data).expanduser(), slice(config.num_examples)
        size = config.image_size or self.config.get("image_size") or self._processor_size()
        prepare = _Normalised.of(self._processor())
        if path.is_dir():
            files = picture_files(path)[some]
            x: Any = PictureFolder(files, size, prepare, channels=3)
            return Examples(
                x, names=[file.relative_to(path).as_posix() for file in files], pictures=x
            )
        if path.suffix in (".npy", ".npz"):
            arrays = stored_arrays(path)
            name = "pixel_values" if "pixel_values" in arrays else x_name(arrays, path)
            x = arrays[name][some]
            return Examples(x, pictures=x)
        if config.data in datasets.NAMES:
            images, _ = datasets.load(config.data, config.split, data_dir)
            pixels = np.rint((images[some] + 1) * 127.5).astype(np.uint8)
            x = PictureArray(pixels, size, prepare, channels=3)
            return Examples(x, pictures=x)
        raise ValueError(
            f"--data {config.data} is no npy or npz file, no folder of images and no dataset"
            + nearest(config.data, datasets.NAMES)
        )

    def _texts(self, config: Config, data_dir: PurePath | None) -> Examples:
        ids, mask, words = self._tokens(config, data_dir)
        table = self.module.get_input_embeddings().weight.detach().float().numpy()
        if ids.max(initial=0) >= len(table) or ids.min(initial=0) < 0:
            raise ValueError(
                f"{config.data} has ids from {ids.min()} to {ids.max()}, the model's table has "
                f"{len(table)} rows"
            )
        mask = np.asarray(mask, bool)
        return Examples(Embedded(ids, table), context=mask, mask=mask, words=words)

    def _tokens(
        self, config: Config, data_dir: PurePath | None
    ) -> tuple[np.ndarray, np.ndarray, Sequence[Sequence[str]]]:
        """(n, T) ids, which of them are real, and their words."""
        assert config.data is not None
        path = Path(config.data).expanduser()
        if path.suffix in (".npy", ".npz"):
            arrays = stored_arrays(path)
            name = "input_ids" if "input_ids" in arrays else x_name(arrays, path)
            ids = np.asarray(arrays[name][: config.num_examples])
            if ids.ndim != 2 or ids.dtype.kind not in "iu":
                raise ValueError(f"{path} must hold ids (n, T); got {ids.dtype} of {ids.shape}")
            mask = arrays.get("attention_mask", np.ones(ids.shape, bool))[: len(ids)]
            return ids, mask, [[str(token) for token in row] for row in ids]
        if config.data in datasets.TEXT_NAMES:
            split = "validation" if config.split == "test" else config.split
            texts: Sequence[str] = datasets.load_text(config.data, split, data_dir).first
        elif path.is_file():
            lines = path.read_text("utf-8").splitlines()
            texts = [line.strip() for line in lines if line.strip()]
        else:
            raise ValueError(
                f"--data {config.data} is no npy, npz or text file, and no dataset"
                + nearest(config.data, datasets.TEXT_NAMES)
            )
        texts = texts[: config.num_examples]
        if not texts:
            raise ValueError(f"{config.data} has no text: give one a line")
        return self._tokenised(texts)

    def _tokenised(
        self, texts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, Sequence[Sequence[str]]]:
        from tokenizers import Tokenizer

        file = self.path / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{file} is missing, which texts need; or give ids in an npz file")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises its own
            raise ValueError(f"{file} cannot be read: {first_line(error)}") from None
        places = self.config.get("max_position_embeddings") or self.config.get("n_positions")
        # RoBERTa counts its positions from behind the number of the padding.
        most = min(_MOST_TOKENS, (places or _MOST_TOKENS) - 2)
        tokenizer.enable_truncation(most)
        tokenizer.no_padding()
        found = tokenizer.encode_batch(list(texts))
        longest = max(1, *(len(each.ids) for each in found))
        ids, mask = np.zeros((len(found), longest), np.int32), np.zeros((len(found), longest), bool)
        for row, each in enumerate(found):
            ids[row, : len(each.ids)], mask[row, : len(each.ids)] = each.ids, True
        return ids, mask, [each.tokens for each in found]

    def _processor(self) -> dict[str, Any]:
        file = self.path / "preprocessor_config.json"
        return _read_json(file) if file.is_file() else {}

    def _processor_size(self) -> int:
        size = self._processor().get("size", 224)
        if isinstance(size, dict):
            size = size.get("shortest_edge") or size.get("height") or 224
        return int(size)


def load_subjects(config: Config, data_dir: PurePath | None) -> list[tuple[Model, Examples, Grid]]:
    """The models of --hf and --compare, each with the examples as it takes them.

    Raises:
      ValueError: a folder has no model that is known here; the message is one line.
    """
    assert config.hf is not None
    words = [config.hf, *config.compare]
    labels = short_labels([word.rstrip("/") for word in words])
    found = [load_folder(Path(word).expanduser()) for word in words]
    return [
        (each.model(label), each.examples(config, data_dir), each.grid(config.grid))
        for label, each in zip(labels, found, strict=True)
    ]


def load_folder(path: Path) -> HuggingFace:
    """The model in a folder.

    Raises:
      ValueError: the folder has none, or none that is known here; the message is one line.
    """
    config = _read_json(path / "config.json")
    kind = config.get("model_type")
    if kind not in (*_IMAGES, *_TEXTS):
        raise ValueError(
            f"{path} has a model of type {kind!r}; --hf knows {', '.join((*_IMAGES, *_TEXTS))}; "
            "else give --model file.py:function, which returns jaxsens.adapters.torch(module)"
        )
    if not any((path / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        raise ValueError(
            f"{path} has no model.safetensors; other files of weights are pickles, which run code: "
            "save it with save_pretrained(folder)"
        )
    (name, *_) = config.get("architectures") or [""]
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise ValueError("--hf needs: pip install 'jaxsens[measure,torch]'") from None
    if ("For" not in name and "LMHead" not in name) or not hasattr(transformers, name):
        raise ValueError(
            f"{path}/config.json names {name or 'no architecture'}, which has no logits; save a "
            "model such as ViTForImageClassification"
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        module = getattr(transformers, name).from_pretrained(
            path, local_files_only=True, use_safetensors=True
        )
    except Exception as error:  # transformers, safetensors and PyTorch have errors of their own
        raise ValueError(f"{path} cannot be loaded: {first_line(error)}") from error
    return HuggingFace(path, config, module.eval())


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"{file} is not there; --hf takes a folder of Hugging Face")
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {first_line(error)}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file} cannot be read: expected an object")
    return found


@dataclass(frozen=True)
class _Normalised:
    """What an image processor makes of pixels: (C, H, W), scaled and normalised."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, processor: dict[str, Any]) -> "_Normalised":
        """As preprocessor_config.json says, else as ViT's own does: to [-1, 1]."""
        mean, std = processor.get("image_mean", [0.5] * 3), processor.get("image_std", [0.5] * 3)
        if not processor.get("do_normalize", True):
            mean, std = [0.0] * 3, [1.0] * 3
        scale = processor.get("rescale_factor", 1 / 255)
        if not processor.get("do_rescale", True):
            scale = 1.0
        return cls(float(scale), tuple(map(float, mean)), tuple(map(float, std)))

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        scaled = (pixels * self.scale - np.array(self.mean)) / np.array(self.std)
        return np.ascontiguousarray(scaled.transpose(2, 0, 1), np.float32)


class Embedded:
    """(n, T, d) embeddings of ids, looked up when they are asked for."""

    def __init__(self, ids: np.ndarray, table: np.ndarray) -> None:
        self._ids, self._table = ids, table
        self.shape, self.dtype = (*ids.shape, table.shape[1]), table.dtype

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._table[self._ids[index]]


def _at_last_token(model: Any) -> Any:
    """GPT-2's logits at the last real token of each text, whichever head it has.

    Its own head for classes looks for padding in ids, and there are none here.
    """
    torch = importlib.import_module("torch")

    class LastToken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model.transformer
            self.head = model.score if hasattr(model, "score") else model.lm_head

        def forward(self, embeddings: Any, mask: Any) -> Any:
            hidden = self.body(
                inputs_embeds=embeddings, attention_mask=mask.to(torch.int32), use_cache=False
            ).last_hidden_state
            last = mask.to(torch.int32).sum(dim=1, keepdim=True) - 1
            is_last = torch.arange(mask.shape[1])[None] == last
            return self.head((hidden * is_last[:, :, None].to(hidden.dtype)).sum(dim=1))

    return LastToken().eval()
