"""The image datasets as the paper uses them, with its numbers as data.

Models, learning rates, batch sizes, patches and noise are those of arXiv 2403.06925; where it
is silent, a comment says what was chosen.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import flax.linen as nn

from jaxsens.cli.config import Preset
from jaxsens.models import CNN, MLP, ConvMixer, DenseNet, ResNet, ViTSimple, ViTSmall

ModelName = Literal[
    "mlp-leaky",
    "mlp-sigmoid",
    "cnn",
    "densenet",
    "resnet",
    "convmixer",
    "vit-small",
    "vit-simple",
    "vit-plain",
]
LABELS: dict[ModelName, str] = {
    "mlp-leaky": "MLP-LeakyReLU",
    "mlp-sigmoid": "MLP-sigmoid",
    "cnn": "CNN",
    "densenet": "DenseNet-121",
    "resnet": "ResNet-18",
    "convmixer": "ConvMixer",
    "vit-small": "ViT-small",
    "vit-simple": "ViT-simple",
    "vit-plain": "ViT without shifts",
}


@dataclass(frozen=True)
class ModelSetting:
    """A model on one dataset: how it is built and trained, and what the paper measured.

    Attributes:
      build: the paper's model.
      learning_rate: the paper's.
      paper: the paper's sensitivity at the end of training, if it gives one.
      reduced: a smaller model of the same kind, for a CPU; default the same model.
      optimizer: the paper's is plain SGD.
    """

    build: Callable[[], nn.Module]
    learning_rate: float
    paper: float | None = None
    reduced: Callable[[], nn.Module] | None = None
    optimizer: Literal["sgd", "adam"] = "sgd"


@dataclass(frozen=True)
class Scale:
    """How much of everything a preset uses; None means all there is.

    Attributes:
      epochs: passes over the training images.
      evaluate_every: epochs between two evaluations.
      num_measured: training images in the final measurement.
      tolerance: half-width of the 95 % interval of each point along training.
      num_accuracy: images, at the most, for each accuracy.
      num_train: training images.
      reduced: whether models are the reduced ones.
    """

    epochs: int
    evaluate_every: int
    num_measured: int | None
    tolerance: float
    num_accuracy: int | None = 10_000
    num_train: int | None = None
    reduced: bool = False


SCALES: dict[Preset, Scale] = {
    "quick": Scale(epochs=40, evaluate_every=5, num_measured=1437, tolerance=0.01),
    "small": Scale(epochs=20, evaluate_every=5, num_measured=2000, tolerance=0.003),
    # The number of epochs is the default of the released code; the paper gives none.
    "paper": Scale(50, 5, num_measured=None, tolerance=0.001, num_accuracy=None),
}


@dataclass(frozen=True)
class ImageSetting:
    """A dataset as the paper uses it: how its images are edited, and which models learn them.

    Attributes:
      figure: the paper's figure.
      patch: side of a patch in pixels.
      edit: what happens to a patch.
      variance: of the noise on a patch.
      batch_size: images of a step.
      models: those that the paper trains on it.
      orderings: what the paper says of them: (less, more sensitive).
      binary: whether labels are digit < 5 against digit >= 5.
      scales: replace those of `SCALES`.
    """

    figure: str
    patch: int
    edit: Literal["gaussian", "donor"]
    variance: float
    batch_size: int
    models: dict[ModelName, ModelSetting]
    orderings: tuple[tuple[ModelName, ModelName], ...]
    binary: bool = False
    scales: dict[Preset, Scale] = field(default_factory=dict)

    def scale(self, preset: Preset) -> Scale:
        """How much of everything the preset uses on this dataset."""
        return self.scales.get(preset, SCALES[preset])

    @property
    def available(self) -> dict[ModelName, ModelSetting]:
        """The paper's models, and one that it does not have: its ViT-small without shifts."""
        if "vit-small" not in self.models:
            return self.models
        return {**self.models, "vit-plain": _without_shifts(self.models["vit-small"])}

    def orderings_of(self, names: Collection[str]) -> list[tuple[ModelName, ModelName]]:
        """What is asked of these models: (less, more sensitive).

        What the paper says of ViT-small against other kinds of models is asked of the ViT without
        shifts too.
        """
        of_plain: list[tuple[ModelName, ModelName]] = [
            ("vit-plain", greater) for lesser, greater in self.orderings if lesser == "vit-small"
        ]
        return [pair for pair in (*self.orderings, *of_plain) if set(pair) <= set(names)]


def _without_shifts(vit: ModelSetting) -> ModelSetting:
    def plain(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        changed: dict[str, Any] = {"shifts": False}
        return lambda: build().clone(**changed)

    reduced = plain(vit.reduced) if vit.reduced else None
    return replace(vit, build=plain(vit.build), reduced=reduced, paper=None)


#: ViT < CNN < MLP, as pairs (less, more sensitive).
_ORDER: tuple[tuple[ModelName, ModelName], ...] = (
    ("vit-small", "cnn"),
    ("vit-small", "mlp-leaky"),
    ("vit-small", "mlp-sigmoid"),
    ("cnn", "mlp-leaky"),
    ("cnn", "mlp-sigmoid"),
)

#: ViT-simple < ViT-small < ResNet < DenseNet; the second version puts ConvMixer above the ViTs.
_COLOUR_ORDER: tuple[tuple[ModelName, ModelName], ...] = (
    ("vit-simple", "vit-small"),
    ("vit-small", "convmixer"),
    ("vit-small", "resnet"),
    ("vit-small", "densenet"),
    ("vit-simple", "resnet"),
    ("vit-simple", "densenet"),
    ("resnet", "densenet"),
)


def _reduced_vit(hidden: int) -> nn.Module:
    return ViTSmall(10, 4, depth=3, heads=4, hidden=hidden)


#: The models for 32×32 colour images; the reduced ones are narrower, shallower or both.
_COLOUR_MODELS: dict[ModelName, ModelSetting] = {
    "densenet": ModelSetting(
        lambda: DenseNet(10), 0.005, 0.3673, lambda: DenseNet(10, growth=12, blocks=(3, 6, 12, 8))
    ),
    "resnet": ModelSetting(lambda: ResNet(10), 0.001, 0.0827, lambda: ResNet(10, width=16)),
    # The paper gives no learning rate and no size for ConvMixer.
    "convmixer": ModelSetting(
        lambda: ConvMixer(10), 0.05, None, lambda: ConvMixer(10, width=128, depth=8)
    ),
    "vit-small": ModelSetting(
        lambda: ViTSmall(10, 4, depth=8, heads=32, hidden=256),
        0.1,
        0.0050,
        lambda: _reduced_vit(256),
    ),
    "vit-simple": ModelSetting(
        lambda: ViTSimple(10), 0.2, 0.0014, lambda: ViTSimple(10, depth=3, heads=4, hidden=256)
    ),
}

#: Twenty thousand images and two cores: about an hour.
_SMALL_COLOUR = Scale(8, 4, num_measured=300, tolerance=0.01, num_accuracy=2000, reduced=True)

SETTINGS: dict[str, ImageSetting] = {
    # Not in the paper: its models and noise on 8×8 images, so that the direction shows in minutes.
    # The CNN's learning rate is ten times that of Fashion-MNIST, for forty times fewer images.
    "digits": ImageSetting(
        figure="like Fig. 4",
        patch=2,
        edit="gaussian",
        variance=5.0,
        batch_size=50,
        models={
            "mlp-leaky": ModelSetting(lambda: MLP(10), 0.1),
            "mlp-sigmoid": ModelSetting(lambda: MLP(10, activation=nn.sigmoid), 0.5),
            "cnn": ModelSetting(lambda: CNN(10), 0.05),
            "vit-small": ModelSetting(lambda: ViTSmall(10, 2, depth=2, heads=8, hidden=256), 0.1),
        },
        orderings=_ORDER,
    ),
    # Not in the paper: generated images of CIFAR-10's size, with its noise. For twenty-five times
    # fewer images, learning rates of the convolutional networks are larger and the ViT has Adam as
    # in Fig. 12: with SGD it stays at 16 % accuracy.
    "shapes": ImageSetting(
        figure="like Fig. 6",
        patch=4,
        edit="gaussian",
        variance=1.0,
        batch_size=50,
        models={
            "mlp-leaky": ModelSetting(lambda: MLP(10), 0.1),
            "resnet": ModelSetting(lambda: ResNet(10), 0.05, None, lambda: ResNet(10, width=8)),
            "convmixer": ModelSetting(
                lambda: ConvMixer(10), 0.05, None, lambda: ConvMixer(10, width=64, depth=2)
            ),
            "vit-small": ModelSetting(
                lambda: ViTSmall(10, 4, depth=8, heads=32, hidden=256),
                0.002,
                None,
                lambda: ViTSmall(10, 4, depth=2, heads=2, hidden=128),
                "adam",
            ),
        },
        orderings=(
            ("vit-small", "resnet"),
            ("vit-small", "convmixer"),
            ("vit-small", "mlp-leaky"),
        ),
        scales={
            # 2,000 images cannot give much better than ±0.02, and trying measures every patch.
            "quick": Scale(12, 4, num_measured=200, tolerance=0.03, reduced=True),
            "small": Scale(20, 5, num_measured=2000, tolerance=0.03, reduced=True),
        },
    ),
    # Digit < 5 against ≥ 5. The paper does not say what replaces a patch; here, the same patch of
    # another image.
    "mnist": ImageSetting(
        figure="Fig. 11",
        patch=7,
        edit="donor",
        variance=1.0,
        batch_size=50,
        models={
            "mlp-leaky": ModelSetting(lambda: MLP(2, widths=(100,)), 0.01),
            "vit-small": ModelSetting(lambda: ViTSmall(2, 7, depth=2, heads=1, hidden=128), 0.01),
        },
        orderings=(("vit-small", "mlp-leaky"),),
        binary=True,
    ),
    "fashion_mnist": ImageSetting(
        figure="Fig. 4",
        patch=4,
        edit="gaussian",
        variance=5.0,
        batch_size=100,
        models={
            "mlp-leaky": ModelSetting(lambda: MLP(10), 0.1, 0.0559),
            "mlp-sigmoid": ModelSetting(lambda: MLP(10, activation=nn.sigmoid), 0.5, 0.0505),
            "cnn": ModelSetting(lambda: CNN(10), 0.005, 0.0453),
            "vit-small": ModelSetting(
                lambda: ViTSmall(10, 4, depth=2, heads=8, hidden=256), 0.1, 0.0098
            ),
        },
        orderings=_ORDER,
    ),
    "cifar10": ImageSetting(
        figure="Fig. 6",
        patch=4,
        edit="gaussian",
        variance=1.0,
        batch_size=100,
        models=_COLOUR_MODELS,
        orderings=_COLOUR_ORDER,
        scales={
            "quick": Scale(2, 1, num_measured=100, tolerance=0.05, num_train=2000, reduced=True),
            "small": _SMALL_COLOUR,
        },
    ),
    "svhn": ImageSetting(
        figure="Fig. 5",
        patch=4,
        edit="gaussian",
        variance=1.0,
        batch_size=100,
        models={
            "resnet": ModelSetting(
                lambda: ResNet(10), 0.0015, 0.0516, lambda: ResNet(10, width=16)
            ),
            "vit-small": ModelSetting(
                lambda: ViTSmall(10, 4, depth=8, heads=32, hidden=512),
                0.1,
                0.0147,
                lambda: _reduced_vit(512),
            ),
        },
        orderings=(("vit-small", "resnet"),),
        scales={
            "quick": Scale(2, 1, num_measured=100, tolerance=0.05, num_train=2000, reduced=True),
            # Few images and many epochs: half an hour on a CPU.
            "small": replace(_SMALL_COLOUR, epochs=40, evaluate_every=10, num_train=4_000),
        },
    ),
}
