"""One family of operations per file: what an edit makes of each operation's result.

How to add one: docs/developers/add_a_rule.md.
"""

import importlib
import pkgutil

from jaxsens.incremental.rules.rule_call import RuleCall, rule

__all__ = ["RuleCall", "rule"]

# Every file here makes its rules known as it is imported: a new file needs no list to stand in.
for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)
