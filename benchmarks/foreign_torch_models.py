"""Models of Hugging Face and PyTorch; see `foreign_models`."""

import functools
from typing import Any

from benchmarks.foreign_case import WIDTH, Cases, Foreign, adapted, case, images, padding, texts

#: By the name of the row.
CASES: Cases = {}
_case = functools.partial(case, CASES)


def _hugging_face(kind: str, head: str, factor: float = 1.0, **settings: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(num_labels=10, **settings)
    model = getattr(transformers, f"{kind}For{head}Classification")(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights *= factor if weights.ndim > 1 else 1
    return model


_SIZES = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256}


_RESNET = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2],
           "layer_type": "basic"}  # fmt: skip
_CONVNEXT = {"hidden_sizes": [40, 80, 160, 320], "depths": [2, 2, 6, 2],
             "layer_scale_init_value": 0.1}  # fmt: skip


@_case("HF ConvNeXt", "transformers", "ConvNext", 100.0, _CONVNEXT)
@_case("HF ResNet-18", "transformers", "ResNet", 10.0, _RESNET)
@_case("HF ViT, 4 blocks", "transformers", "ViT", 10.0, {"num_hidden_layers": 4})
@_case("HF ViT, 2 blocks", "transformers", "ViT", 10.0, {"num_hidden_layers": 2})
def hugging_face_image(kind: str, sigma: float, settings: dict) -> Foreign:
    """A classifier of 3×32×32 images."""
    if kind == "ViT":
        settings = {"image_size": 32, "patch_size": 4, **_SIZES, **settings}
    model = _hugging_face(kind, "Image", 1.0 if kind == "ResNet" else 10.0, **settings)
    return Foreign(adapted("torch", model), images(3, 32, 32), 4, sigma, "first")


_TEXT = {"vocab_size": 100, "pad_token_id": 0, "max_position_embeddings": 64}
_GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 100,
         "pad_token_id": 0}  # fmt: skip
_LLAMA = {**_SIZES, **_TEXT, "num_hidden_layers": 2, "num_key_value_heads": 2}
_BERT = {**_SIZES, **_TEXT, "num_hidden_layers": 4}


@_case("HF Llama, 2 blocks, bfloat16", "transformers", "Llama", _LLAMA, False, "bfloat16")
@_case("HF Llama, 2 blocks, grouped queries", "transformers", "Llama", _LLAMA, False)
@_case("HF GPT-2, 2 blocks, padding mask", "transformers", "GPT2", _GPT2, True)
@_case("HF GPT-2, 2 blocks", "transformers", "GPT2", _GPT2, False)
@_case("HF BERT, 4 blocks, padding mask", "transformers", "Bert", _BERT, True)
def hugging_face_text(kind: str, settings: dict, padded: bool, dtype: str = "") -> Foreign:
    """A classifier of texts, from their embeddings on."""
    import torch

    model = _hugging_face(kind, "Sequence", 4.0, **settings)
    model = model.to(getattr(torch, dtype)) if dtype else model
    context = padding() if padded else None
    return Foreign(adapted("embeddings", model), texts(), 1, 3.0, context=context)


@_case("torch TransformerEncoder, 2 blocks", "torch")
def torch_encoder() -> Foreign:
    """PyTorch's own layers, norm last as they come; the first token is read."""
    import torch

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
            self.blocks = torch.nn.TransformerEncoder(layer, 2)
            self.head = torch.nn.Linear(WIDTH, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(x)[:, 0])

    torch.manual_seed(0)
    return Foreign(adapted("torch", Reader().eval()), texts(), 1, 10.0)
