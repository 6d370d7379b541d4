"""The census: an independent count of what is left (law 7, design 5)."""

from expunge.census.count import Question, bodies_of_live_rows, count_left, count_left_by_pseudonym
from expunge.census.sql import COUNTED

__all__ = ["COUNTED", "Question", "bodies_of_live_rows", "count_left", "count_left_by_pseudonym"]
