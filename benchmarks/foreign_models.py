"""Models that nobody here wrote, as their packages make them, each with a window edit.

Each is made untrained, from its package's own layers or whole, where the package has it whole; what
stands here besides is what its user would write. Where weights are so small that no draw flips a
label, they are scaled up (`lively`), which changes no count of operations.

These modules import no framework before a model is asked for.
"""

from benchmarks import foreign_jax_models, foreign_torch_models

#: By the name of the row.
CASES = foreign_jax_models.CASES | foreign_torch_models.CASES
