"""What nothing reads is left out of a model.

Models compute every token of their last block, although only one of them is read. A pass backwards
over the traced model asks of each value which entries are needed (`parts`), operation by operation
(`steps`: what that needs of its operands), and the model is written anew for these entries alone
(`rewriting`). An operation without such a rule is computed whole, of whole operands.
"""

from jaxsens.incremental.needed.rewriting import needed_alone, without_unneeded

__all__ = ["needed_alone", "without_unneeded"]
