"""What is tried in place of the paper's ViT-small, and what it is held against."""

from .._images.paper import ModelName

#: The convolutional network that the ViTs are held against.
REFERENCE: dict[str, ModelName] = {"digits": "cnn", "fashion_mnist": "cnn", "cifar10": "resnet"}
#: Depths and heads tried; on CIFAR-10 the paper's, elsewhere around the dataset's own model.
DEPTHS = {"digits": (1, 2, 3), "fashion_mnist": (1, 2, 3), "cifar10": (4, 8, 10)}
HEADS = {"digits": (4, 8, 12), "fashion_mnist": (4, 8, 12), "cifar10": (16, 24, 32)}
REDUCED_DEPTHS, REDUCED_HEADS = (2, 3, 4), (2, 3, 4)
