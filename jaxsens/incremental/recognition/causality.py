"""Whether attention is causal: no query sees a later token, and every query sees some.

A fill of -1e30 or less in place of a logit has no weight beside an ordinary logit, whatever that
is. A number that is added (-1e9 for what is not seen), a milder fill, and a mask that each example
has of its own (padding) need a look at the example: that its mask is causal, and that its logits
are so small beside what hides others that they never outweigh it. With logits up to `_LARGEST`,

    hidden  ≤  -1e8 + 1e7,    seen  ≥  -1e7 - 1e7,    e^(hidden - seen) = 0.

Where that does not hold, an edit is in doubt and takes a whole pass.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.values import Value, Windowed, edited_array

#: At or below `_HIDDEN` a fill has no weight beside a logit above `_SEEN`.
_HIDDEN, _SEEN = -1e30, -1e20
#: The same of offsets, if no scaled logit is larger than `_LARGEST`.
_HIDDEN_OFFSET, _SEEN_OFFSET, _LARGEST = -1e8, -1e7, 1e7

Shape = tuple[int, int, int]


def is_causal(mask: AffineMask, shape: Shape) -> bool:
    """Whether attention with this mask is causal, whatever its logits (h, Q, T) are."""
    if shape[1] != shape[2]:
        return False
    scale, offset = (np.broadcast_to(np.asarray(a), shape) for a in (mask.scale, mask.offset))
    later = np.triu(np.ones(shape[1:], bool), 1)
    hidden = ((scale == 0) & (offset <= _HIDDEN)) | (offset == -np.inf)
    # A query that sees nothing takes the mean of all tokens, later ones too.
    sees = (~later & (offset > _SEEN)).any(axis=-1)
    return bool(hidden[:, later].all() and sees.all())


def looks_causal(mask: AffineMask, shape: Shape) -> bool:
    """Whether it is, if no scaled logit is larger than `_LARGEST`, as most models' are not."""
    if shape[1] != shape[2]:
        return False
    # In NumPy: JAX would compile a dozen operations for every shape.
    offset = np.broadcast_to(np.asarray(mask.offset, np.float64), shape)
    return bool(_hides_later(offset, np))


class Causality(NamedTuple):
    """What an edit must know to rely on the order of tokens in one example.

    Arrays, or their shapes where costs are counted.

    Attributes:
      holds: whether the clean example's attention is causal.
      reach: how large a scaled logit is at most, for a key of length 1.
    """

    holds: Any
    reach: Any

    def is_in_doubt(self, keys: Value) -> Bool[Array, ""]:
        """Whether attention may not be causal with these keys (1, T, h, e), after an edit."""
        new = keys.new if isinstance(keys, Windowed) else edited_array(keys)
        return ~(self.holds & (self.reach * _longest(new) <= _LARGEST))


def causality_of(
    mask: AffineMask, q: Float[Array, "1 T h e"], k: Float[Array, "1 T h e"]
) -> Causality:
    """The causality of one example, given its mask, queries and keys."""
    num_tokens = q.shape[1]
    offset = jnp.broadcast_to(mask.offset, (q.shape[2], num_tokens, num_tokens))
    reach = jnp.abs(mask.scale).max() * _longest(q)
    return Causality(_hides_later(offset) & (reach * _longest(k) <= _LARGEST), reach)


def _hides_later(offset: Any, numpy: Any = jnp) -> Any:
    """Of offsets (h, T, T), by JAX or, where they are known, by NumPy."""
    later = numpy.triu(numpy.ones(offset.shape[1:], bool), 1)[None]
    hides = numpy.where(later, offset <= _HIDDEN_OFFSET, True).all()
    return hides & (~later & (offset > _SEEN_OFFSET)).any(axis=-1).all()


def _longest(vectors: Float[Array, "*a e"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.square(vectors).sum(axis=-1).max())
