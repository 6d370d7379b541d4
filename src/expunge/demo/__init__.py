"""Demo data: three fictional people of a small sailing club, as JSON lines."""
