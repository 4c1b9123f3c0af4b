"""What a call of oneDNN does: primitives, executed in turn on arrays and on copies of these."""

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from typing import NamedTuple

from jaxsens.core.onednn import library


class Step(NamedTuple):
    """A primitive and what it is executed on."""

    primitive: c_void_p
    arguments: ctypes.Array


class Plan(NamedTuple):
    """What a call does.

    Attributes:
      memories: of its two arguments and of its result, which get their addresses in every call.
      steps: executed in turn.
    """

    memories: tuple[c_void_p, ...]
    steps: Sequence[Step]


class Role(NamedTuple):
    """An array of a primitive.

    Attributes:
      argument: the number by which it is given.
      query: the number by which the layout is asked for that the primitive wants.
      layout: how the array lies in memory.
    """

    argument: int
    query: int
    layout: c_void_p


def plan_of(descriptor: c_void_p, roles: Sequence[Role]) -> Plan:
    """The plan of one primitive.

    An array that it wants in another order than it has is copied: before, or after if it is the
    result.

    Args:
      descriptor: of the primitive.
      roles: of its two arguments and of its result, in the order of the call.
    """
    memories = tuple(library.memory(role.layout) for role in roles)
    before, after, pairs = list[Step](), list[Step](), list[tuple[int, c_void_p]]()
    for role, memory in zip(roles, memories, strict=True):
        wanted, used = library.chosen_layout(descriptor, role.query), memory
        if not library.is_same(role.layout, wanted):
            used = library.memory(wanted, library.ALLOCATE)
            if role is roles[-1]:
                after.append(Step(*library.copy(wanted, used, role.layout, memory)))
            else:
                before.append(Step(*library.copy(role.layout, memory, wanted, used)))
        pairs.append((role.argument, used))
    itself = Step(library.primitive(descriptor), library.arguments(pairs))
    return Plan(memories, (*before, itself, *after))
