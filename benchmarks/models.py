"""The models that are compared, each with its window edit and its number of images: numpy only.

The gains are chosen so that some draws flip the untrained model, but not all of them.
"""

from typing import Any

from benchmarks.workload import Setting

_CIFAR: dict[str, Any] = {"shape": (32, 32, 3), "window": (4, 4, 3), "variance": 1.0}
_TEXT: dict[str, Any] = {
    "shape": (32, 256),
    "window": (1, 256),
    "variance": 15.0,
    "num_samples": 3,
}

#: The papers' models. The embeddings' tables are as small as can be: noise enters after them.
SETTINGS = {
    "mlp": Setting("MLP", {"num_classes": 10}, num_images=1600),
    "cnn": Setting("CNN", {"num_classes": 10}, num_images=40),
    "vit": Setting(
        "ViTSmall",
        {"num_classes": 10, "patch": 4, "depth": 2, "heads": 8, "hidden": 256},
        num_images=20,
    ),
    "resnet18": Setting("ResNet", {"num_classes": 10}, **_CIFAR, gain=1.0, num_images=4),
    "densenet121": Setting("DenseNet", {"num_classes": 10}, **_CIFAR, gain=1.0, num_images=2),
    "convmixer": Setting("ConvMixer", {"num_classes": 10}, **_CIFAR, gain=1.0, num_images=4),
    "vit8": Setting(
        "ViTSmall",
        {"num_classes": 10, "patch": 4, "depth": 8, "heads": 32, "hidden": 256},
        **_CIFAR,
        num_images=2,
    ),
    "lstm": Setting("LSTM", {"vocab_size": 4}, **_TEXT, num_images=16),
    "roberta": Setting("RoBERTa", {"vocab_size": 4, "max_positions": 34}, **_TEXT, num_images=4),
    "gpt2": Setting(
        "GPT2", {"vocab_size": 4, "max_positions": 32}, **_TEXT, gain=8.0, num_images=8
    ),
}
