"""Operations: one registry that every surface speaks through (law 15)."""

from expunge.operations.catalogue import OPERATIONS
from expunge.operations.registry import Actor, Call, Operation, Role, perform

__all__ = ["OPERATIONS", "Actor", "Call", "Operation", "Role", "perform"]
